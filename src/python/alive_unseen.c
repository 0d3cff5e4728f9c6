/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that no root leads to. Among themselves their references are counted, as the collector would: one that has
 * more than were found is held by something that is not seen, and so is what it refers to. Where it stands in a struct
 * of an interpreter, that is it. The rest is circles.
 */
#include <string.h>

#include "python/alive_priv.h"
#include "python/object_priv.h"

struct lonely {
	uint64_t object;
	uint64_t found; /* references from other lonely ones */
};

struct unseen {
	struct alive *a;
	VEC(struct lonely) objects; /* ascending */
	struct marks marks;
	uint64_t instances;
	bool failed;
};

static bool collect(void *ctx, uint64_t object)
{
	struct unseen *u = (struct unseen *)ctx;

	if (marks_have(&u->a->seen, object))
		return false;
	u->failed |= vec_push(&u->objects, (struct lonely){.object = object}) ||
		marks_add(&u->marks, object) < 0;
	u->instances += alive_is_one(u->a, object);
	return u->failed;
}

static int by_object(const void *x, const void *y)
{
	const struct lonely *a = x, *b = y;

	return (a->object > b->object) - (a->object < b->object);
}

static bool count_found(void *ctx, const struct python_ref *ref)
{
	struct unseen *u = (struct unseen *)ctx;
	struct lonely key = {.object = ref->to}, *it;

	if (!marks_have(&u->marks, ref->to))
		return false;
	it = bsearch(&key, u->objects.data, u->objects.len, sizeof(key), by_object);
	if (it)
		it->found++;
	return false;
}

/* References that the object has, itself saying; the collector's own number where it is immortal. */
static uint64_t reference_count(struct python *p, uint64_t object)
{
	uint64_t count;

	if (!python_read_u64(p, object, &count))
		return 0;
	return p->minor >= 12 ? count & UINT32_MAX : count;
}

static int add_roots(struct unseen *u)
{
	struct alive *a = u->a;
	struct marks kept = {0};
	int rc = alive_interpreter_words(a, &u->marks, &kept);

	vec_each(&u->objects, it)
	{
		uint64_t count = reference_count(a->p, it->object);
		struct root r = {.kind = PYTHON_ROOT_UNSEEN, .object = it->object, .from = count - it->found};

		if (marks_have(&kept, it->object))
			r.kind = PYTHON_ROOT_INTERPRETER;
		if (!rc && count > it->found)
			rc = vec_push(&a->roots, r);
	}
	marks_release(&kept);
	return rc;
}

static struct python_alive_way *way_without_steps(struct alive *a, enum python_root root)
{
	vec_each(&a->ret->ways, w)
		if (w->root == root && !w->steps.len)
			return w;
	return NULL;
}

/* Instances that are roots themselves have no chain; they are one way, whatever holds them. */
static int tell_held(struct unseen *u)
{
	struct alive *a = u->a;

	vec_each(&a->roots, r)
	{
		struct python_alive_way *last = way_without_steps(a, r->kind);
		const struct python_type *t = python_type_of_object(a->p, r->object);

		if (!alive_is_one(a, r->object))
			continue;
		a->ret->unseen += r->kind == PYTHON_ROOT_UNSEEN;
		if (last)
			last->instances++;
		else if (vec_push(&a->ret->ways, (struct python_alive_way){.root = r->kind,
			.first = r->object,
			.first_type = t ? t->full_name : "?",
			.unseen = r->from,
			.instances = 1}))
			return -ENOMEM;
	}
	return 0;
}

static enum python_root root_of(const struct alive *a, uint32_t entry)
{
	uint32_t parent = a->entries.data[entry].parent;

	while (parent >= a->roots.len)
		parent = a->entries.data[parent - a->roots.len].parent;
	return a->roots.data[parent].kind;
}

/*
 * An object that was freed meanwhile has no reference at all, and one that was made just now has other ones at a
 * second look; both are left out.
 */
static void tell_nobody(struct unseen *u)
{
	struct alive *a = u->a;

	python_refresh(a->p);
	vec_each(&u->objects, it)
	{
		if (!it->found || marks_have(&a->seen, it->object) || !alive_is_one(a, it->object) ||
			reference_count(a->p, it->object) != it->found)
			continue;
		a->ret->nobody++;
		if (!a->ret->nobody_example)
			a->ret->nobody_example = it->object;
	}
}

/* Follows from what is held unseen, within what no root leads to. */
static int follow_unseen(struct unseen *u)
{
	struct alive *a = u->a;
	int rc;

	vec_each(&a->roots, r)
		free(r->name);
	a->roots.len = 0;
	a->entries.len = a->followed = 0;
	rc = add_roots(u);
	a->clear_roots = a->roots.len;
	vec_each(&a->roots, r)
		if (marks_add(&a->seen, r->object) < 0)
			rc = -ENOMEM;
	if (rc)
		return rc;
	alive_follow(a, &u->marks);
	vec_each(&a->shapes, s)
		if (root_of(a, s->entry) == PYTHON_ROOT_UNSEEN)
			a->ret->unseen += s->instances;
	rc = a->failed ? -ENOMEM : alive_tell_ways(a);
	return rc ? rc : tell_held(u);
}

int alive_find_unseen(struct alive *a)
{
	struct unseen u = {.a = a};
	int rc = 0;

	marks_each(&a->census.objects_at, collect, &u);
	/* Without such instances the question is answered. */
	if (!u.failed && u.instances) {
		qsort(u.objects.data, u.objects.len, sizeof(*u.objects.data), by_object);
		vec_each(&u.objects, it)
			python_refs_count_each(a->p, it->object, &u.marks, count_found, &u);
		rc = follow_unseen(&u);
		if (!rc)
			tell_nobody(&u);
	}
	vec_release(&u.objects);
	marks_release(&u.marks);
	return u.failed ? -ENOMEM : rc;
}
