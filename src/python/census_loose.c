/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects that the collector has no list of: found through what refers to them.
 *
 * The objects of the lists are gone through by address, and what they refer to is counted once. A tuple or a
 * dict that holds nothing a circle could go through has left the lists, so what such ones hold is looked at as well.
 */
#include "base/vec.h"
#include "python/census_priv.h"
#include "python/object_priv.h"
#include "python/object_refs.h"

struct loose {
	struct census *c;
	struct marks seen;
	VEC(uint64_t) todo; /* containers that are not in the lists */
	bool failed;
};

static bool is_container(enum python_kind kind)
{
	return kind == PYTHON_TUPLE || kind == PYTHON_DICT || kind == PYTHON_LIST || kind == PYTHON_SET;
}

/* Classes in C and the like: they belong to the program's text, not to its heap. */
static bool is_counted(const struct census_type *t)
{
	return t->type->kind != PYTHON_TYPE;
}

static bool found(void *ctx, const struct python_ref *ref)
{
	struct loose *l = (struct loose *)ctx;
	struct python_census *ret = l->c->ret;
	struct census_type *t;
	uint64_t bytes;
	int added;

	if (marks_have(&ret->objects_at, ref->to))
		return false;
	added = marks_add(&l->seen, ref->to);
	l->failed |= added < 0;
	if (added <= 0)
		return l->failed;
	t = census_type(l->c, python_type_of(l->c->p, ref->to));
	if (!t || !is_counted(t))
		return false;
	bytes = python_object_bytes(l->c->p, ref->to, t->type);
	ret->rows.data[t->row].loose++;
	ret->rows.data[t->row].loose_bytes += bytes;
	ret->loose++;
	ret->loose_bytes += bytes;
	if (is_container(t->type->kind) && vec_push(&l->todo, ref->to))
		l->failed = true;
	ret->cut |= ret->loose >= l->c->most;
	return l->failed || ret->cut;
}

static bool look_at(void *ctx, uint64_t object)
{
	struct loose *l = (struct loose *)ctx;

	python_refs_each(l->c->p, object, NULL, found, l);
	while (l->todo.len && !l->failed && !l->c->ret->cut)
		python_refs_each(l->c->p, l->todo.data[--l->todo.len], NULL, found, l);
	return l->failed || l->c->ret->cut;
}

int census_loose(struct census *c)
{
	struct loose l = {.c = c};

	marks_each(&c->ret->objects_at, look_at, &l);
	marks_release(&l.seen);
	vec_release(&l.todo);
	return l.failed ? -ENOMEM : 0;
}
