/* SPDX-License-Identifier: BSD-2-Clause */
/* Sites put together by the line of code that wants the memory, and put in order; and sites as samples. */
#include <math.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/heap_priv.h"
#include "profile/profile_priv.h"

static const char *const order_names[HEAP_ORDERS] = {
	[HEAP_BY_LIVE] = "live",
	[HEAP_BY_LEAKED] = "leaked",
	[HEAP_BY_GROWTH] = "growth",
	[HEAP_BY_PEAK] = "peak",
	[HEAP_BY_TOTAL] = "total",
	[HEAP_BY_TEMPORARY] = "temporary",
	[HEAP_BY_CROSS] = "cross",
	[HEAP_BY_COUNT] = "count",
	[HEAP_BY_WASTED] = "wasted",
};

const char *heap_order_name(enum heap_order order)
{
	return order_names[order];
}

int heap_order_by_name(const char *name, enum heap_order *ret)
{
	for (enum heap_order o = 0; o < HEAP_ORDERS; o++) {
		if (strcmp(order_names[o], name) != 0)
			continue;
		*ret = o;
		return 0;
	}
	return -EINVAL;
}

double heap_measure(const struct heap_sum *s, enum heap_order order)
{
	switch (order) {
	case HEAP_BY_LEAKED:
		return s->leaked_bytes;
	case HEAP_BY_GROWTH:
		return s->live_bytes > s->before_bytes ? s->live_bytes - s->before_bytes : 0;
	case HEAP_BY_PEAK:
		return s->number[HEAP_PEAK_BYTES];
	case HEAP_BY_TOTAL:
		return s->number[HEAP_ALLOCATED_BYTES];
	case HEAP_BY_TEMPORARY:
		return s->number[HEAP_TEMPORARY_BYTES];
	case HEAP_BY_CROSS:
		return s->number[HEAP_CROSS_FREED_BYTES];
	case HEAP_BY_COUNT:
		return s->live;
	case HEAP_BY_WASTED:
		return s->wasted_bytes;
	default:
		return s->live_bytes;
	}
}

/* ---- sites -> spots ---- */

struct build {
	const struct profile *p;
	enum heap_order order;
	struct heap_spots out;
	uint8_t *roles;    /* by function */
	uint32_t *spot_of; /* by site */
	struct id_table ids;
	double *line, *variance; /* by moment */
};

static uint64_t spot_hash(const struct heap_spot *s)
{
	return hash_pair(hash_u64((uint64_t)s->function << 32 | s->line), s->pool);
}

static uint64_t spot_hash_of(const void *ctx, uint32_t index)
{
	return spot_hash(&((const struct heap_spots *)ctx)->spots.data[index]);
}

static uint32_t spot_index(struct build *b, const struct profile_level *level, uint32_t pool)
{
	struct heap_spot spot = {
		.function = level ? level->function : PROFILE_NONE,
		.line = level ? level->line : 0,
		.pool = pool,
		.file = level ? level->file : NULL,
	};
	uint64_t hash = spot_hash(&spot);
	struct id_probe probe = id_probe_start(&b->ids, hash);

	while (id_probe_next(&b->ids, &probe)) {
		const struct heap_spot *known = &b->out.spots.data[probe.id];

		if (known->function == spot.function && known->line == spot.line && known->pool == pool)
			return probe.id;
	}
	if (id_table_reserve(&b->ids, spot_hash_of, &b->out) || vec_push(&b->out.spots, spot))
		return PROFILE_NONE;
	id_table_add(&b->ids, hash, (uint32_t)b->out.spots.len - 1);
	return (uint32_t)b->out.spots.len - 1;
}

static int gather(struct build *b)
{
	const struct profile *p = b->p;

	for (size_t i = 0; i < p->functions.len; i++)
		b->roles[i] = heap_role_of(p, &p->functions.data[i]);
	for (size_t i = 0; i < p->heap->sites.len; i++) {
		const struct heap_site *s = &p->heap->sites.data[i];
		uint32_t node, level = heap_find_level(p, s->stack, b->roles, &node);

		b->spot_of[i] = spot_index(
			b, level == PROFILE_NONE ? NULL : &p->levels.data[level], heap_pool_of(p, s->stack));
		if (b->spot_of[i] == PROFILE_NONE)
			return -ENOMEM;
		heap_sum_add(&b->out.spots.data[b->spot_of[i]].sum, &s->sum);
		b->out.spots.data[b->spot_of[i]].count++;
	}
	return 0;
}

/* ---- in order ---- */

#define DESCENDING(a, b) (((a) < (b)) - ((a) > (b)))

static int compare_sites(const void *left, const void *right, void *ctx)
{
	const struct build *b = ctx;
	uint32_t x = *(const uint32_t *)left, y = *(const uint32_t *)right;
	const struct heap_sum *s = &b->p->heap->sites.data[x].sum, *t = &b->p->heap->sites.data[y].sum;
	int order = (b->spot_of[x] > b->spot_of[y]) - (b->spot_of[x] < b->spot_of[y]);

	if (!order)
		order = DESCENDING(heap_measure(s, b->order), heap_measure(t, b->order));
	if (!order)
		order = DESCENDING(s->number[HEAP_ALLOCATED_BYTES], t->number[HEAP_ALLOCATED_BYTES]);
	return order ? order : (x > y) - (x < y);
}

static int compare_spots(const void *left, const void *right, void *ctx)
{
	const struct heap_spot *s = left, *t = right;
	const struct build *b = ctx;
	enum heap_order by = b->order;
	bool by_rate = by == HEAP_BY_GROWTH && !b->p->heap->range;
	int order = 0;

	if (by_rate)
		order = DESCENDING(s->growth.trend == HEAP_TREND_GROWS, t->growth.trend == HEAP_TREND_GROWS);
	if (by_rate && !order)
		order = DESCENDING(s->growth.rate, t->growth.rate);
	if (!order)
		order = DESCENDING(heap_measure(&s->sum, by), heap_measure(&t->sum, by));
	if (!order)
		order = DESCENDING(s->sum.live_bytes, t->sum.live_bytes);
	if (!order)
		order = DESCENDING(s->sum.number[HEAP_ALLOCATED_BYTES], t->sum.number[HEAP_ALLOCATED_BYTES]);
	return order ? order : (s->first > t->first) - (s->first < t->first);
}

static void sort(struct build *b)
{
	size_t next = 0;

	for (size_t i = 0; i < b->p->heap->sites.len; i++)
		b->out.order.data[b->out.order.len++] = (uint32_t)i;
	if (b->out.order.len)
		qsort_r(b->out.order.data, b->out.order.len, sizeof(uint32_t), compare_sites, b);
	vec_each(&b->out.spots, s) {
		s->first = next;
		next += s->count;
		heap_line(b->p, b->out.order.data + s->first, s->count, b->line, b->variance);
		s->growth = heap_growth_of(b->p, b->line, b->variance, &s->sum);
	}
	if (b->out.spots.len)
		qsort_r(b->out.spots.data, b->out.spots.len, sizeof(*b->out.spots.data), compare_spots, b);
}

int heap_spots_build(const struct profile *p, enum heap_order order, struct heap_spots *ret, struct err *err)
{
	struct build b = {.p = p, .order = order};
	const struct profile_heap *h = p->heap;
	int rc = -ENOMEM;

	b.roles = calloc(p->functions.len + 1, 1);
	b.spot_of = calloc(h->sites.len + 1, sizeof(*b.spot_of));
	b.line = calloc(h->moments.len + 1, sizeof(*b.line));
	b.variance = calloc(h->moments.len + 1, sizeof(*b.variance));
	if (b.roles && b.spot_of && b.line && b.variance && !vec_reserve(&b.out.order, h->sites.len + 1))
		rc = gather(&b);
	if (!rc) {
		sort(&b);
		*ret = b.out;
	} else {
		heap_spots_release(&b.out);
	}
	free(b.roles);
	free(b.spot_of);
	free(b.line);
	free(b.variance);
	id_table_release(&b.ids);
	return rc ? err_nomem(err) : 0;
}

void heap_spots_release(struct heap_spots *s)
{
	vec_release(&s->spots);
	vec_release(&s->order);
}

/* ---- samples ---- */

int profile_heap_weigh(struct profile *p, enum heap_order order, struct err *err)
{
	p->mode = PROFILE_HEAP;
	p->heap->weighed = order;
	p->samples.len = 0;
	p->total_weight = p->cpu_ns = p->watched_ns = 0;
	if (vec_reserve(&p->samples, p->heap->sites.len))
		return err_nomem(err);
	vec_each(&p->threads, t)
		t->samples = t->weight = t->cpu_ns = t->watched_ns = 0;
	vec_each(&p->heap->sites, s) {
		double weight = round(heap_measure(&s->sum, order));
		struct profile_sample sample = {
			.time_ns = p->heap->to_ns,
			.weight = weight < 1e18 ? (uint64_t)weight : 1000000000000000000u,
			.thread = s->thread,
			.stack = s->stack,
			.wait = PROFILE_NONE,
			.end = UNWIND_ROOT,
			.state = STATE_ON_CPU,
		};

		if (!sample.weight)
			continue;
		p->samples.data[p->samples.len++] = sample;
		p->total_weight += sample.weight;
		p->threads.data[s->thread].samples++;
		p->threads.data[s->thread].weight += sample.weight;
	}
	return 0;
}
