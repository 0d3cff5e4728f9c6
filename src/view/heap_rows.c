/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/heap_priv.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "capture/id_table.h"

#define DESCENDING(a, b) (((a) < (b)) - ((a) > (b)))

const char *heap_trend_name(enum heap_trend trend)
{
	static const char *const names[] = {
		[HEAP_TREND_UNKNOWN] = "unknown",
		[HEAP_TREND_STEADY] = "steady",
		[HEAP_TREND_GROWS] = "grows",
		[HEAP_TREND_FILLED] = "filled",
		[HEAP_TREND_SHRINKS] = "shrinks",
	};

	return names[trend];
}

/* ---- stacks ---- */

/* Paths are the same when their functions are, whatever lines of them call. */
static uint64_t path_hash(const struct profile *p, uint32_t stack)
{
	uint64_t hash = 1;

	for (uint32_t n = stack; n != PROFILE_NONE; n = p->nodes.data[n].parent) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[n].frame];

		for (uint32_t i = 0; i < f->level_count; i++)
			hash = hash_pair(hash, p->levels.data[f->first_level + i].function);
	}
	return hash;
}

/* Where a walk along the functions of a path stands. */
struct walk {
	uint32_t node, level;
};

static uint32_t walk_next(const struct profile *p, struct walk *w)
{
	const struct profile_frame *f;
	uint32_t function;

	if (w->node == PROFILE_NONE)
		return PROFILE_NONE;
	f = &p->frames.data[p->nodes.data[w->node].frame];
	function = p->levels.data[f->first_level + w->level].function;
	if (++w->level >= f->level_count)
		*w = (struct walk){p->nodes.data[w->node].parent, 0};
	return function;
}

static bool same_path(const struct profile *p, uint32_t a, uint32_t b)
{
	struct walk x = {a, 0}, y = {b, 0};
	uint32_t function;

	if (a == b)
		return true;
	do {
		function = walk_next(p, &x);
		if (function != walk_next(p, &y))
			return false;
	} while (function != PROFILE_NONE);
	return true;
}

struct paths {
	const struct profile *p;
	const struct heap_rows *rows;
};

static uint64_t row_hash_of(const void *ctx, uint32_t index)
{
	const struct paths *paths = ctx;

	return path_hash(paths->p, paths->rows->data[index].stack);
}

static int by_order(const void *left, const void *right, void *ctx)
{
	const struct heap_row *x = left, *y = right;
	enum heap_order by = *(const enum heap_order *)ctx;
	int order = DESCENDING(heap_measure(&x->sum, by), heap_measure(&y->sum, by));

	if (!order)
		order = DESCENDING(x->sum.number[HEAP_ALLOCATED_BYTES], y->sum.number[HEAP_ALLOCATED_BYTES]);
	return order ? order : (x->stack > y->stack) - (x->stack < y->stack);
}

int heap_rows_of_stacks(const struct profile *p, const uint32_t *sites, size_t count, enum heap_order order,
	struct heap_rows *ret)
{
	struct paths paths = {p, ret};
	struct id_table ids = {0};
	int rc = 0;

	ret->len = 0;
	for (size_t i = 0; i < count && !rc; i++) {
		const struct heap_site *s = &p->heap->sites.data[sites[i]];
		uint64_t hash = path_hash(p, s->stack);
		struct id_probe probe = id_probe_start(&ids, hash);
		bool known = false;

		while (!known && id_probe_next(&ids, &probe))
			known = same_path(p, ret->data[probe.id].stack, s->stack);
		if (known) {
			heap_sum_add(&ret->data[probe.id].sum, &s->sum);
			continue;
		}
		rc = id_table_reserve(&ids, row_hash_of, &paths);
		rc = rc ? rc : vec_push(ret, (struct heap_row){.stack = s->stack, .thread = s->thread, .sum = s->sum});
		if (!rc)
			id_table_add(&ids, hash, (uint32_t)ret->len - 1);
	}
	id_table_release(&ids);
	if (!rc && ret->len)
		qsort_r(ret->data, ret->len, sizeof(*ret->data), by_order, &order);
	return rc;
}

/* ---- threads ---- */

static int by_thread(const void *left, const void *right)
{
	const struct heap_row *x = left, *y = right;

	if (x->thread != y->thread)
		return (x->thread > y->thread) - (x->thread < y->thread);
	return (x->stack > y->stack) - (x->stack < y->stack);
}

static int by_bytes(const void *left, const void *right)
{
	const struct heap_row *x = left, *y = right;
	int order = DESCENDING(x->sum.number[HEAP_ALLOCATED_BYTES], y->sum.number[HEAP_ALLOCATED_BYTES]);

	if (!order)
		order = DESCENDING(x->sum.number[HEAP_FREED_BYTES], y->sum.number[HEAP_FREED_BYTES]);
	return order ? order : by_thread(left, right);
}

/* Rows of equal threads and stacks become one. */
static void join_threads(struct heap_rows *rows)
{
	size_t kept = 0;

	if (!rows->len)
		return;
	qsort(rows->data, rows->len, sizeof(*rows->data), by_thread);
	for (size_t i = 1; i < rows->len; i++) {
		if (!by_thread(&rows->data[i], &rows->data[kept]))
			heap_sum_add(&rows->data[kept].sum, &rows->data[i].sum);
		else
			rows->data[++kept] = rows->data[i];
	}
	rows->len = kept + 1;
	qsort(rows->data, rows->len, sizeof(*rows->data), by_bytes);
}

int heap_rows_of_threads(const struct profile *p, const uint32_t *sites, size_t count, struct heap_rows *ret)
{
	ret->len = 0;
	for (size_t i = 0; i < count; i++) {
		const struct heap_site *s = &p->heap->sites.data[sites[i]];

		if (vec_push(ret, (struct heap_row){.stack = PROFILE_NONE, .thread = s->thread, .sum = s->sum}))
			return -ENOMEM;
	}
	join_threads(ret);
	return 0;
}

int heap_rows_of_freers(const struct profile *p, const struct heap_spots *spots, const struct heap_spot *spot,
	const struct heap_crowds *crowds, struct heap_rows *ret)
{
	ret->len = 0;
	if (spot->sum.number[HEAP_CROSS_FREED] <= 0)
		return 0;
	for (size_t i = 0; i < spot->count; i++) {
		size_t count;
		const struct heap_flow *flows = heap_flows_of(p->heap, spots->order.data[spot->first + i], &count);

		for (size_t k = 0; k < count; k++) {
			struct heap_row row = {.stack = flows[k].stack, .thread = flows[k].thread};

			if (crowds && row.thread != PROFILE_NONE)
				row.thread = crowds->as[row.thread];
			row.sum.number[HEAP_FREED] = flows[k].count;
			row.sum.number[HEAP_FREED_BYTES] = flows[k].bytes;
			if (vec_push(ret, row))
				return -ENOMEM;
		}
	}
	join_threads(ret);
	return 0;
}

/* ---- crowds ---- */

static int by_name(const void *left, const void *right, void *ctx)
{
	const struct profile *p = ctx;
	const struct profile_thread *a = &p->threads.data[*(const uint32_t *)left], *b = &p->threads.data[*(const uint32_t *)right];

	if (a->pid != b->pid)
		return (a->pid > b->pid) - (a->pid < b->pid);
	if ((a->tid == a->pid) != (b->tid == b->pid))
		return (b->tid == b->pid) - (a->tid == a->pid);
	/* Interned: equal names are equal pointers; in which order does not matter, as long as they stand together. */
	return (a->name > b->name) - (a->name < b->name);
}

#define CROWD 4u

int heap_crowds_build(const struct profile *p, struct heap_crowds *ret)
{
	size_t n = p->threads.len;
	uint32_t *order = calloc(n + 1, sizeof(*order));

	*ret = (struct heap_crowds){.as = calloc(n + 1, sizeof(*ret->as)), .size = calloc(n + 1, sizeof(*ret->size))};
	if (!order || !ret->as || !ret->size) {
		free(order);
		heap_crowds_release(ret);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < n; i++)
		order[i] = i;
	if (n)
		qsort_r(order, n, sizeof(*order), by_name, (void *)p);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && !by_name(&order[i], &order[end], (void *)p); end++)
			;
		for (size_t k = i; k < end; k++) {
			bool crowd = end - i > CROWD;

			ret->as[order[k]] = crowd ? order[i] : order[k];
			ret->size[order[k]] = crowd ? (uint32_t)(end - i) : 1;
		}
	}
	free(order);
	return 0;
}

void heap_crowds_release(struct heap_crowds *c)
{
	free(c->as);
	free(c->size);
	*c = (struct heap_crowds){0};
}

/* ---- who allocates, who frees ---- */

static int by_pair(const void *left, const void *right)
{
	const struct heap_pair *x = left, *y = right;

	return x->from != y->from ? (x->from > y->from) - (x->from < y->from) : (x->to > y->to) - (x->to < y->to);
}

static int by_pair_bytes(const void *left, const void *right)
{
	const struct heap_pair *x = left, *y = right;
	int order = DESCENDING(x->bytes, y->bytes);

	return order ? order : by_pair(left, right);
}

int heap_pairs_build(const struct profile *p, const struct heap_crowds *crowds, struct heap_pairs *ret)
{
	size_t kept = 0;

	ret->len = 0;
	vec_each(&p->heap->flows, f) {
		struct heap_pair pair = {p->heap->sites.data[f->site].thread, f->thread, f->count, f->bytes};

		if (crowds) {
			pair.from = crowds->as[pair.from];
			pair.to = pair.to == PROFILE_NONE ? PROFILE_NONE : crowds->as[pair.to];
		}
		if (vec_push(ret, pair))
			return -ENOMEM;
	}
	if (!ret->len)
		return 0;
	qsort(ret->data, ret->len, sizeof(*ret->data), by_pair);
	for (size_t i = 1; i < ret->len; i++) {
		if (!by_pair(&ret->data[i], &ret->data[kept])) {
			ret->data[kept].count += ret->data[i].count;
			ret->data[kept].bytes += ret->data[i].bytes;
		} else {
			ret->data[++kept] = ret->data[i];
		}
	}
	ret->len = kept + 1;
	qsort(ret->data, ret->len, sizeof(*ret->data), by_pair_bytes);
	return 0;
}
