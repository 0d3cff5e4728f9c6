/* SPDX-License-Identifier: BSD-2-Clause */
/* What the views of allocations share. */
#ifndef SONDE_VIEW_HEAP_PRIV_H
#define SONDE_VIEW_HEAP_PRIV_H

#include "profile/heap.h"
#include "view/view_priv.h"

/* ---- rows (heap_rows.c): sums over sites, the largest first. 0 or -ENOMEM; `ret` is emptied first ---- */

struct heap_row {
	uint32_t stack;  /* of heap_rows_of_stacks(): leaf node, PROFILE_NONE: no stack */
	uint32_t thread; /* of the others: index; PROFILE_NONE: left out by the filter */
	struct heap_sum sum;
};
VEC_TYPE(heap_rows, struct heap_row);

/* Sites on the same path of functions, of whatever thread. By `order`, then by what was allocated. */
int heap_rows_of_stacks(const struct profile *p, const uint32_t *sites, size_t count, enum heap_order order,
	struct heap_rows *ret);
/* Threads that allocate, by bytes. */
int heap_rows_of_threads(const struct profile *p, const uint32_t *sites, size_t count, struct heap_rows *ret);
/* Other threads that freed blocks of a spot: of the sum there is only what was freed. */
int heap_rows_of_freers(const struct profile *p, const struct heap_spots *spots, const struct heap_spot *spot,
	struct heap_rows *ret);

/* Blocks that one thread allocated and another one freed. */
struct heap_pair {
	uint32_t from, to; /* indices of threads; to: PROFILE_NONE: left out by the filter */
	double count, bytes;
};
VEC_TYPE(heap_pairs, struct heap_pair);
int heap_pairs_build(const struct profile *p, struct heap_pairs *ret);

const char *heap_trend_name(enum heap_trend trend); /* "grows": a word of the JSON */

/* ---- views ---- */

/* `,"heap":{...}` */
int heap_json(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

#endif
