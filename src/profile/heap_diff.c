/* SPDX-License-Identifier: BSD-2-Clause */
#include "profile/heap_diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"

/* ---- differences ---- */

double heap_difference(const struct heap_sum sum[2], enum heap_order order)
{
	return heap_measure(&sum[1], order) - heap_measure(&sum[0], order);
}

/* PROFILE_NONE: nobody knows it. */
static uint32_t variance_of(enum heap_order order)
{
	switch (order) {
	case HEAP_BY_PEAK:
		return HEAP_VAR_PEAK_BYTES;
	case HEAP_BY_TOTAL:
		return HEAP_VAR_ALLOCATED_BYTES;
	case HEAP_BY_COUNT:
		return HEAP_VAR_LIVE;
	case HEAP_BY_TEMPORARY:
	case HEAP_BY_CROSS:
		return HEAP_VAR_ALLOCATED_BYTES; /* no less sure than all of it */
	default:
		return HEAP_VAR_LIVE_BYTES;
	}
}

/* The recordings know nothing of each other: what each of them may be off adds up as squares. */
struct heap_interval heap_difference_interval(
	const struct profile *const p[2], const struct heap_sum sum[2], enum heap_order order)
{
	uint32_t variance = variance_of(order);
	double below = 0, above = 0, change = heap_difference(sum, order);

	for (int i = 0; i < 2; i++) {
		double value = heap_measure(&sum[i], order);
		struct heap_interval one = heap_interval(value, sum[i].variance[variance],
			heap_weight(p[i]->heap, &sum[i], order != HEAP_BY_COUNT));
		double down = i ? value - one.low : one.high - value, up = i ? one.high - value : value - one.low;

		below += down * down;
		above += up * up;
	}
	return (struct heap_interval){change - sqrt(below), change + sqrt(above)};
}

/* ---- matching ---- */

struct match {
	const struct profile *const *p;
	enum heap_order order;
	struct heap_diff out;
	struct intern keys;
	struct buf key;
	uint8_t *known[2]; /* by module: KNOWN_... */
};

enum {
	KNOWN_NAME = 1,  /* the other profile has a file of that name */
	KNOWN_BUILD = 2, /* and it is the same */
};

static const struct profile_module *module_of(const struct profile *p, const struct heap_spot *s)
{
	uint32_t module = s->function == PROFILE_NONE ? PROFILE_NONE : p->functions.data[s->function].module;

	return module == PROFILE_NONE ? NULL : &p->modules.data[module];
}

static bool is_same_build(const struct profile_module *a, const struct profile_module *b)
{
	return a->build_id_bytes && a->build_id_bytes == b->build_id_bytes && a->build_id_bytes <= sizeof(a->build_id) &&
		!memcmp(a->build_id, b->build_id, a->build_id_bytes);
}

static int find_known(struct match *m, int side)
{
	const struct profile *p = m->p[side], *other = m->p[!side];

	m->known[side] = calloc(p->modules.len + 1, 1);
	if (!m->known[side])
		return -ENOMEM;
	for (size_t i = 0; i < p->modules.len; i++) {
		vec_each(&other->modules, b) {
			if (strcmp(p->modules.data[i].name, b->name) != 0)
				continue;
			m->known[side][i] |= KNOWN_NAME;
			if (is_same_build(&p->modules.data[i], b))
				m->known[side][i] |= KNOWN_BUILD;
		}
	}
	return 0;
}

static struct heap_change new_change(const struct profile *p, const struct heap_spot *s)
{
	const struct profile_module *module = module_of(p, s);

	return (struct heap_change){
		.name = s->function == PROFILE_NONE ? "[no stack]" : p->functions.data[s->function].name,
		.module = module ? module->name : "",
		.file = s->file,
		.line = s->line,
		.allocator = s->pool == PROFILE_NONE ? NULL : p->functions.data[s->pool].name,
		.spot = {PROFILE_NONE, PROFILE_NONE},
	};
}

static int add_spot(struct match *m, int side, uint32_t index)
{
	const struct profile *p = m->p[side];
	const struct heap_spot *s = &m->out.spots[side].spots.data[index];
	struct heap_change change = new_change(p, s), *known;
	const struct profile_module *module = module_of(p, s);
	uint8_t known_as = module ? m->known[side][module - p->modules.data] : 0;
	bool same = known_as & KNOWN_BUILD;
	uint32_t id;

	buf_clear(&m->key);
	buf_add(&m->key, change.name, strlen(change.name) + 1);
	/* "server-1.2" and "server-1.3", "libfoo.so.1.2" and its next version: what is in one of them alone tells nothing. */
	if (known_as & KNOWN_NAME)
		buf_str(&m->key, change.module);
	buf_char(&m->key, '\0');
	buf_u32(&m->key, same ? s->line : 0);
	buf_str(&m->key, change.allocator ? change.allocator : "");
	id = m->key.failed ? INTERN_NONE : intern_add(&m->keys, m->key.data, m->key.len);
	if (id == INTERN_NONE || (id == m->out.changes.len && vec_push(&m->out.changes, change)))
		return -ENOMEM;
	known = &m->out.changes.data[id];
	heap_sum_add(&known->sum[side], &s->sum);
	if (known->line != s->line && !same)
		known->line = 0;
	/* They come the largest first. */
	if (known->spot[side] == PROFILE_NONE)
		known->spot[side] = index;
	return 0;
}

static int compare(const void *left, const void *right, void *ctx)
{
	const struct heap_change *a = left, *b = right;
	enum heap_order order = *(const enum heap_order *)ctx;
	double x = fabs(heap_difference(a->sum, order)), y = fabs(heap_difference(b->sum, order));
	int by_name = strcmp(a->name, b->name);

	if (x != y)
		return x < y ? 1 : -1;
	return by_name ? by_name : (a->line > b->line) - (a->line < b->line);
}

static int match(struct match *m)
{
	for (int side = 0; side < 2; side++) {
		if (find_known(m, side) || heap_spots_build(m->p[side], m->order, &m->out.spots[side], NULL))
			return -ENOMEM;
	}
	for (int side = 0; side < 2; side++)
		for (uint32_t i = 0; i < m->out.spots[side].spots.len; i++)
			if (add_spot(m, side, i))
				return -ENOMEM;
	vec_each(&m->out.changes, c) {
		struct heap_interval i = heap_difference_interval(m->p, c->sum, m->order);

		c->sure = i.low > 0 || i.high < 0;
	}
	if (m->out.changes.len)
		qsort_r(m->out.changes.data, m->out.changes.len, sizeof(*m->out.changes.data), compare, &m->order);
	return 0;
}

int heap_diff_build(const struct profile *const p[2], enum heap_order order, struct heap_diff *ret, struct err *err)
{
	struct match m = {.p = p, .order = order};
	int rc = match(&m);

	free(m.known[0]);
	free(m.known[1]);
	intern_release(&m.keys);
	buf_release(&m.key);
	if (rc) {
		heap_diff_release(&m.out);
		return err_nomem(err);
	}
	*ret = m.out;
	return 0;
}

void heap_diff_release(struct heap_diff *d)
{
	vec_release(&d->changes);
	heap_spots_release(&d->spots[0]);
	heap_spots_release(&d->spots[1]);
}
