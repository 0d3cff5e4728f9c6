/* SPDX-License-Identifier: BSD-2-Clause */
/* Chains as they are told: the most frequent shapes, one example of each. */
#include <string.h>

#include "python/alive_priv.h"
#include "python/object_priv.h"

static int by_instances(const void *x, const void *y)
{
	const struct shape *a = x, *b = y;

	if (a->instances != b->instances)
		return (a->instances < b->instances) - (a->instances > b->instances);
	return (a->entry > b->entry) - (a->entry < b->entry);
}

struct looked_for {
	struct alive *a;
	uint64_t object;
	struct python_ref ref;
};

static bool is_it(void *ctx, const struct python_ref *ref)
{
	struct looked_for *l = (struct looked_for *)ctx;

	if (ref->to != l->object)
		return false;
	l->ref = *ref;
	return true;
}

static uint64_t count_of(struct python *p, uint64_t object, const struct python_type *t)
{
	struct python_set_walk set;
	uint64_t count, first;

	switch (t->kind) {
	case PYTHON_DICT:
		return python_dict_count(p, object);
	case PYTHON_TUPLE:
	case PYTHON_LIST:
		return python_items(p, object, &count, &first) ? count : 0;
	case PYTHON_SET:
		return python_set_begin(p, object, &set) ? set.used : 0;
	case PYTHON_DEQUE:
		return python_read_u64(p, object + p->layout.var_object.size, &count) ? count : 0;
	default:
		return 0;
	}
}

/* Which variable a cell of a closure is: "'name'". */
static bool closure_name(struct alive *a, const struct entry *tuple, const struct python_ref *ref, struct buf *out)
{
	const struct python_layout *l = &a->p->layout;
	bool apart = l->code.free_names != PYTHON_ABSENT;
	uint64_t code, names, name, closure, count, first, function, cells, index;

	if (tuple->parent < a->roots.len || ref->kind != PYTHON_REF_ITEM)
		return false;
	function = a->entries.data[tuple->parent - a->roots.len].object;
	if (!python_is(a->p, function, "function") ||
		!python_read_u64(a->p, function + l->function.closure, &closure) || closure != tuple->object ||
		!python_read_u64(a->p, function + l->function.code, &code) ||
		!python_read_u64(a->p, code + (apart ? l->code.free_names : l->code.local_names), &names) ||
		!python_items(a->p, closure, &cells, &first) ||
		!python_items(a->p, names, &count, &first) || count < cells)
		return false;
	/* From 3.11 on they are the last ones of all names. */
	index = count - cells + ref->index;
	if (index >= count || !python_read_u64(a->p, first + index * 8, &name))
		return false;
	buf_str(out, " variable ");
	return python_text(a->p, name, 100, out, NULL);
}

static char *reference_words(struct alive *a, const struct entry *e)
{
	struct looked_for l = {.a = a, .object = e->object};
	struct buf text = {0};

	if (!alive_refs_each(a, e->parent, is_it, &l)) {
		buf_str(&text, "?");
		return text.data;
	}
	if (e->parent < a->roots.len ||
		!closure_name(a, &a->entries.data[e->parent - a->roots.len], &l.ref, &text)) {
		buf_clear(&text);
		python_ref_show(a->p, &l.ref, &text);
	}
	if (text.failed) {
		buf_release(&text);
		return NULL;
	}
	return text.data;
}

static int add_step(struct alive *a, const struct entry *e, struct python_alive_way *way)
{
	const struct python_type *t = python_type_of_object(a->p, e->object);
	struct python_alive_step step = {.object = e->object, .type = t ? t->full_name : "?"};

	step.reference = reference_words(a, e);
	if (!step.reference)
		return -ENOMEM;
	if (t)
		step.count = count_of(a->p, e->object, t);
	if (!vec_push(&way->steps, step))
		return 0;
	free(step.reference);
	return -ENOMEM;
}

static int set_root(struct alive *a, uint32_t root, struct python_alive_way *way)
{
	const struct root *r = &a->roots.data[root];
	const struct python_type *t = r->object ? python_type_of_object(a->p, r->object) : NULL;

	way->root = r->kind;
	way->native_id = r->native_id;
	way->main_thread = r->main_thread;
	way->first = r->object;
	way->first_type = t ? t->full_name : "";
	way->unseen = r->kind == PYTHON_ROOT_UNSEEN || r->kind == PYTHON_ROOT_INTERPRETER ? r->from : 0;
	if (r->name) {
		way->root_name = strdup(r->name);
		return way->root_name ? 0 : -ENOMEM;
	}
	return 0;
}

/* From the root to the instance: the way up, turned round. */
static int fill_way(struct alive *a, const struct shape *s, struct python_alive_way *way)
{
	VEC(uint32_t) up = {0};
	uint32_t at = s->entry;
	int rc = 0;

	for (;; at = a->entries.data[at].parent - (uint32_t)a->roots.len) {
		if (vec_push(&up, at)) {
			rc = -ENOMEM;
			break;
		}
		if (a->entries.data[at].parent < a->roots.len)
			break;
	}
	if (!rc)
		rc = set_root(a, a->entries.data[at].parent, way);
	for (size_t i = up.len; i-- > 0 && !rc;)
		rc = add_step(a, &a->entries.data[up.data[i]], way);
	way->instances = s->instances;
	vec_release(&up);
	return rc;
}

static void leave_out(struct python_alive *ret, const struct shape *s)
{
	ret->ways_left_out++;
	ret->instances_left_out += s->instances;
}

int alive_tell_ways(struct alive *a)
{
	size_t most = a->options->most_ways ? a->options->most_ways : SIZE_MAX;
	int rc = 0;

	if (a->shapes.len)
		qsort(a->shapes.data, a->shapes.len, sizeof(*a->shapes.data), by_instances);
	vec_each(&a->shapes, s)
	{
		struct python_alive_way way = {0};

		if (a->ret->ways.len >= most) {
			leave_out(a->ret, s);
			continue;
		}
		rc = fill_way(a, s, &way);
		if (!rc)
			rc = vec_push(&a->ret->ways, way);
		if (rc) {
			alive_way_release(&way);
			break;
		}
	}
	a->shapes.len = 0;
	if (a->shape_slots)
		memset(a->shape_slots, 0, a->shape_slot_count * sizeof(*a->shape_slots));
	return rc;
}
