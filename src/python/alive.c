/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The search: breadth first from all roots at once. The queue is kept, with 16 bytes an object, and is at the same time
 * the tree of shortest chains; how one object refers to the next is asked again for the few chains that are told.
 */
#include "python/alive_priv.h"

#include <string.h>

#include "base/hash.h"
#include "python/object_priv.h"

#define ROOT_DEPTH_BY_ADDRESS 3u

static bool same_type(const char *full_name, const char *wanted)
{
	size_t n = strlen(full_name), m = strlen(wanted);

	/* "User" means app.models.User, but not app.models.SuperUser. */
	return n >= m && !strcmp(full_name + n - m, wanted) && (n == m || full_name[n - m - 1] == '.');
}

static void suggest(const struct python_census *c, const char *wanted, struct buf *out)
{
	const char *dot = strrchr(wanted, '.');
	const char *part = dot ? dot + 1 : wanted;
	unsigned found = 0;

	vec_each(&c->rows, row)
		if (*part && found < 5 && strcasestr(row->name, part)) {
			buf_printf(out, "%s%s", found++ ? ", " : "; there are ", row->name);
		}
}

/* The one type that is meant, among those that have objects. */
static int choose_type(struct alive *a, struct err *err)
{
	const char *wanted = a->options->type;
	struct buf words = {0};
	unsigned found = 0;

	vec_each(&a->census.rows, row)
	{
		if (!same_type(row->name, wanted))
			continue;
		if (!strcmp(row->name, wanted))
			found = 0;
		if (!found++) {
			a->type = row->name;
			a->ret->instances = row->objects + row->loose;
			a->ret->bytes = row->bytes + row->loose_bytes;
			a->loose = row->loose > 0;
		}
		buf_printf(&words, "%s%s", words.len ? ", " : "", row->name);
		if (!strcmp(row->name, wanted))
			break;
	}
	if (found > 1)
		err_set(err, EINVAL, "several types are called %s: %s", wanted, words.data);
	if (!found) {
		buf_clear(&words);
		suggest(&a->census, wanted, &words);
		err_set(err, ENOENT, "there is no object of type %s%s", wanted, words.len ? words.data : "");
	}
	buf_release(&words);
	return found == 1 ? 0 : found ? -EINVAL : -ENOENT;
}

/* What is not in the collector's lists is only looked for when the type is not in them. */
static int take_census(struct alive *a, struct err *err)
{
	struct python_census_options options = {0};
	int rc = python_census(a->p, &options, &a->census, err);

	if (!rc)
		rc = choose_type(a, err);
	if (rc != -ENOENT)
		return rc;
	python_census_release(&a->census);
	options.loose = true;
	rc = python_census(a->p, &options, &a->census, err);
	return rc ? rc : choose_type(a, err);
}

/* ---- following ---- */

bool alive_is_one(struct alive *a, uint64_t object)
{
	const struct python_type *t = python_type_of_object(a->p, object);

	/* Names are interned. */
	return t && t->full_name == a->type;
}

static const struct entry *entry_of(const struct alive *a, uint32_t parent)
{
	return parent < a->roots.len ? NULL : &a->entries.data[parent - a->roots.len];
}

/* Chains begin alike when they lead through the same objects, and go on alike through the same types. */
static uint32_t shape_of(struct alive *a, uint64_t object, uint32_t parent)
{
	uint64_t before = parent, as = object;
	const struct entry *e = entry_of(a, parent);
	unsigned depth = 0;

	if (e)
		before = e->shape;
	for (const struct entry *up = e; up && depth <= ROOT_DEPTH_BY_ADDRESS; up = entry_of(a, up->parent))
		depth++;
	if (depth >= ROOT_DEPTH_BY_ADDRESS)
		as = python_type_of(a->p, object);
	return (uint32_t)hash_pair(before, as);
}

static int more_slots(struct alive *a)
{
	size_t slots = a->shape_slot_count ? a->shape_slot_count * 2 : 64;
	uint32_t *grown = calloc(slots, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	for (size_t i = 0; i < a->shapes.len; i++) {
		size_t at = a->shapes.data[i].hash & (slots - 1);

		while (grown[at])
			at = (at + 1) & (slots - 1);
		grown[at] = (uint32_t)i + 1;
	}
	free(a->shape_slots);
	a->shape_slots = grown;
	a->shape_slot_count = slots;
	return 0;
}

/* An instance counts for the shape of what refers to it: instances themselves may be of several classes. */
static int count_instance(struct alive *a, uint32_t hash, uint32_t entry)
{
	size_t at;

	if (a->shapes.len * 2 >= a->shape_slot_count && more_slots(a))
		return -ENOMEM;
	for (at = hash & (a->shape_slot_count - 1); a->shape_slots[at];
		at = (at + 1) & (a->shape_slot_count - 1)) {
		struct shape *s = &a->shapes.data[a->shape_slots[at] - 1];

		if (s->hash == hash) {
			s->instances++;
			return 0;
		}
	}
	if (vec_push(&a->shapes, (struct shape){.hash = hash, .entry = entry, .instances = 1}))
		return -ENOMEM;
	a->shape_slots[at] = (uint32_t)a->shapes.len;
	return 0;
}

/*
 * Whether what the collector does not know may refer to others all the same: some types in C do, such as the entries of
 * functools.lru_cache.
 */
static bool is_holder(struct alive *a, uint64_t object)
{
	static const char *const plain[] = {"float", "complex", "NoneType", "ellipsis", "code", "range", "bytearray"};
	const struct python_type *t;

	if (!a->thorough || marks_have(&a->seen, object))
		return false;
	t = python_type_of_object(a->p, object);
	if (!t)
		return false;
	/* Containers leave the lists while all that they hold is in none. */
	if (t->kind == PYTHON_DICT || t->kind == PYTHON_TUPLE)
		return !marks_have(&a->census.objects_at, object);
	if (t->collected || t->kind != PYTHON_OTHER)
		return false;
	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++)
		if (!strcmp(t->name, plain[i]))
			return false;
	return true;
}

bool alive_add(struct alive *a, uint64_t object)
{
	const struct entry *before = entry_of(a, a->from);
	struct entry e = {.object = object, .parent = a->from};
	bool holder = !marks_have(&a->census.objects_at, object) && is_holder(a, object), one;
	int added = marks_add(&a->seen, object);

	if (added <= 0)
		return added == 0;
	if (a->entries.len + a->roots.len >= UINT32_MAX) {
		a->cut = true;
		return false;
	}
	one = alive_is_one(a, object);
	/* What is not tracked leads nowhere. */
	if (!one && !holder && !marks_have(&a->census.objects_at, object))
		return true;
	e.shape = shape_of(a, object, a->from);
	e.flags = (one ? ENTRY_IS_ONE : 0) | (before && before->flags ? ENTRY_BEHIND_ONE : 0);
	if (one && e.flags & ENTRY_BEHIND_ONE)
		a->ret->behind++;
	/* Of an item in a list each index would be a shape; what it is in counts. */
	else if (one && count_instance(a, before ? before->shape : a->from, (uint32_t)a->entries.len))
		return false;
	return !vec_push(&a->entries, e);
}

struct following {
	struct alive *a;
	struct marks *only;
};

static bool found(void *ctx, const struct python_ref *ref)
{
	struct following *f = (struct following *)ctx;
	struct alive *a = f->a;

	if (!marks_have(f->only, ref->to) && !(a->loose && alive_is_one(a, ref->to)) && !is_holder(a, ref->to))
		return false;
	if (alive_add(a, ref->to))
		return false;
	a->failed |= !a->cut;
	return true;
}

bool alive_refs_each(struct alive *a, uint32_t parent, python_ref_fn *each, void *ctx)
{
	struct marks *known = a->thorough ? &python_any_object : &a->census.objects_at;
	const struct entry *e = entry_of(a, parent);
	const struct root *r;

	if (e)
		return python_refs_each(a->p, e->object, known, each, ctx);
	r = &a->roots.data[parent];
	if (r->frame)
		return python_frame_refs_each(a->p, r->frame, each, ctx);
	if (r->to)
		return python_words_each(a->p, r->from, r->to, &a->census.objects_at, each, ctx);
	return python_refs_each(a->p, r->object, known, each, ctx);
}

static bool may_go_on(const struct alive *a)
{
	return !a->failed && !a->cut;
}

/* Some roots, and then all that was found so far, which grows meanwhile. */
static void follow_from(struct alive *a, struct following *f, size_t first, size_t end)
{
	for (size_t i = first; i < end && may_go_on(a); i++) {
		a->from = (uint32_t)i;
		alive_refs_each(a, a->from, found, f);
	}
	for (; a->followed < a->entries.len && may_go_on(a); a->followed++) {
		a->from = (uint32_t)(a->roots.len + a->followed);
		alive_refs_each(a, a->from, found, f);
	}
}

void alive_follow(struct alive *a, struct marks *only)
{
	struct following f = {.a = a, .only = only};

	/* What modules and frames do not lead to is looked for where it is less clear what is meant. */
	follow_from(a, &f, 0, a->clear_roots);
	follow_from(a, &f, a->clear_roots, a->roots.len);
}

/* ---- all of it ---- */

static void mark_roots(struct alive *a)
{
	vec_each(&a->roots, r)
		if (r->object && marks_add(&a->seen, r->object) < 0)
			a->failed = true;
}

static void forget(struct alive *a)
{
	vec_each(&a->roots, r)
		free(r->name);
	vec_release(&a->roots);
	vec_release(&a->entries);
	vec_release(&a->shapes);
	free(a->shape_slots);
	a->shape_slots = NULL;
	a->shape_slot_count = a->clear_roots = a->followed = 0;
	marks_release(&a->seen);
}

static int search_once(struct alive *a)
{
	int rc = alive_find_roots(a);

	if (rc)
		return rc;
	mark_roots(a);
	alive_follow(a, &a->census.objects_at);
	a->ret->seen = a->seen.count;
	a->ret->cut |= a->cut;
	rc = a->failed ? -ENOMEM : alive_tell_ways(a);
	return rc || a->cut || a->loose ? rc : alive_find_unseen(a);
}

/* What is held unseen is looked for once more, also behind what most often leads nowhere. */
static int search(struct alive *a, struct err *err)
{
	struct python_alive first = *a->ret;
	int rc = search_once(a);

	if (!rc && a->ret->unseen) {
		forget(a);
		python_alive_release(a->ret);
		a->ret->instances = first.instances;
		a->ret->bytes = first.bytes;
		a->thorough = true;
		rc = search_once(a);
	}
	return rc ? err_nomem(err) : 0;
}

static int by_instances(const void *x, const void *y)
{
	const struct python_alive_way *a = x, *b = y;

	if (a->instances != b->instances)
		return (a->instances < b->instances) - (a->instances > b->instances);
	return (a->steps.len > b->steps.len) - (a->steps.len < b->steps.len);
}

int python_alive(struct python *p, const struct python_alive_options *options, struct python_alive *ret,
	struct err *err)
{
	struct alive a = {.p = p, .options = options, .ret = ret};
	int rc = take_census(&a, err);

	if (!rc)
		rc = search(&a, err);
	ret->type = a.type;
	ret->gaps = a.census.gaps;
	ret->again = a.census.again;
	ret->cut |= a.census.cut;
	if (ret->ways.len)
		qsort(ret->ways.data, ret->ways.len, sizeof(*ret->ways.data), by_instances);
	forget(&a);
	python_census_release(&a.census);
	if (rc)
		python_alive_release(ret);
	return rc;
}

void alive_way_release(struct python_alive_way *way)
{
	vec_each(&way->steps, step)
		free(step->reference);
	vec_release(&way->steps);
	free(way->root_name);
}

void python_alive_release(struct python_alive *a)
{
	vec_each(&a->ways, way)
		alive_way_release(way);
	vec_release(&a->ways);
	*a = (struct python_alive){0};
}
