/* SPDX-License-Identifier: BSD-2-Clause */
/* Histograms of sites: sizes, lifetimes, ages. Most have few buckets that are not zero, and only these are kept. */
#include <errno.h>
#include <string.h>

#include "profile/heap_priv.h"

double heap_shape_count(const struct profile_heap *h, const struct heap_site *s, enum heap_shape kind, unsigned bucket)
{
	const struct heap_shape_row *row;

	if (s->shapes == PROFILE_NONE)
		return 0;
	row = &h->shapes.rows.data[s->shapes + kind];
	if (bucket < row->first || bucket - row->first >= row->buckets)
		return 0;
	return (double)h->shapes.counts.data[row->at + bucket - row->first];
}

static int add_rows(struct heap_shapes *all, struct heap_site *s)
{
	size_t at = all->rows.len;

	if (at >= PROFILE_NONE - HEAP_SHAPES || vec_reserve(&all->rows, at + HEAP_SHAPES))
		return -ENOMEM;
	memset(all->rows.data + at, 0, HEAP_SHAPES * sizeof(*all->rows.data));
	all->rows.len += HEAP_SHAPES;
	s->shapes = (uint32_t)at;
	return 0;
}

int heap_shape_set(struct profile_heap *h, struct heap_site *s, enum heap_shape kind, unsigned first, unsigned buckets,
	const double *counts)
{
	struct heap_shapes *all = &h->shapes;
	struct heap_shape_row *row;

	if (s->shapes == PROFILE_NONE && add_rows(all, s))
		return -ENOMEM;
	row = &all->rows.data[s->shapes + kind];
	if (row->room < buckets) { /* what it had is left behind: it grows a few times at most */
		size_t at = all->counts.len;

		if (at >= PROFILE_NONE - buckets || vec_reserve(&all->counts, at + buckets))
			return -ENOMEM;
		all->counts.len += buckets;
		row->at = (uint32_t)at;
		row->room = (uint8_t)buckets;
	}
	row->first = (uint8_t)first;
	row->buckets = (uint8_t)buckets;
	for (unsigned i = 0; i < buckets; i++)
		all->counts.data[row->at + i] = (float)counts[i];
	return 0;
}

void heap_shape_sum(const struct profile *p, const uint32_t *sites, size_t count, enum heap_shape kind,
	double ret[HEAP_BUCKETS])
{
	const struct profile_heap *h = p->heap;

	memset(ret, 0, HEAP_BUCKETS * sizeof(*ret));
	for (size_t i = 0; i < (sites ? count : h->sites.len); i++) {
		const struct heap_site *s = &h->sites.data[sites ? sites[i] : i];

		if (!sites && heap_pool_of(p, s->stack) != PROFILE_NONE)
			continue;
		for (unsigned b = 0; b < HEAP_BUCKETS; b++)
			ret[b] += heap_shape_count(h, s, kind, b);
	}
}

void heap_shapes_release(struct heap_shapes *all)
{
	vec_release(&all->rows);
	vec_release(&all->counts);
}
