/* SPDX-License-Identifier: BSD-2-Clause */
/* What the views of allocations share. */
#ifndef SONDE_VIEW_HEAP_PRIV_H
#define SONDE_VIEW_HEAP_PRIV_H

#include "profile/heap.h"
#include "view/view_priv.h"

/* ---- rows (heap_rows.c): sums over sites, the largest first. 0 or -ENOMEM; `ret` is emptied first ---- */

struct heap_row {
	uint32_t stack;  /* leaf node, PROFILE_NONE: no stack; of threads always */
	uint32_t thread; /* of the others: index; PROFILE_NONE: left out by the filter */
	struct heap_sum sum;
};
VEC_TYPE(heap_rows, struct heap_row);

/* Sites on the same path of functions, of whatever thread. By `order`, then by what was allocated. */
int heap_rows_of_stacks(const struct profile *p, const uint32_t *sites, size_t count, enum heap_order order,
	struct heap_rows *ret);
/* Threads that allocate, by bytes. */
int heap_rows_of_threads(const struct profile *p, const uint32_t *sites, size_t count, struct heap_rows *ret);

/* Blocks that one thread allocated and another one freed. */
struct heap_pair {
	uint32_t from, to; /* indices of threads; to: PROFILE_NONE: left out by the filter */
	double count, bytes;
};
VEC_TYPE(heap_pairs, struct heap_pair);

/* Threads of one process and name, when they are many, are told as one: but for the first thread of a process. */
struct heap_crowds {
	uint32_t *as;   /* by thread: whom it stands with, itself when it stands alone */
	uint32_t *size; /* of the crowd that it is in */
};
int heap_crowds_build(const struct profile *p, struct heap_crowds *ret);
void heap_crowds_release(struct heap_crowds *c);

/* Other threads that freed blocks of a spot, and where: of the sum there is only what was freed. `crowds` NULL: each
 * thread is itself. */
int heap_rows_of_freers(const struct profile *p, const struct heap_spots *spots, const struct heap_spot *spot,
	const struct heap_crowds *crowds, struct heap_rows *ret);
int heap_pairs_build(const struct profile *p, const struct heap_crowds *crowds, struct heap_pairs *ret);

const char *heap_trend_name(enum heap_trend trend); /* "grows": a word of the JSON */

/* ---- words (heap_words.c) ---- */

void heap_bytes(struct buf *out, double bytes); /* of any sign, rounded */
void heap_count(struct buf *out, double count);
/* To the right of so many columns; "-" for nothing. */
void heap_bytes_cell(struct buf *out, size_t columns, double bytes);
void heap_count_cell(struct buf *out, size_t columns, double count);
void heap_range(struct buf *out, struct heap_interval i, bool bytes); /* "1.2 MiB to 1.5 MiB" */
/* "960 KiB a minute (900 KiB to 1.0 MiB)"; brief: without the interval. */
void heap_rate(struct buf *out, const struct heap_growth *g, bool brief);
/* "remember (server.c:70)", "f in libfoo.so"; in about so many columns, 0: any number */
void heap_spot_name(const struct profile *p, const struct heap_spot *spot, size_t columns, bool unicode, struct buf *out);
void heap_thread_name(const struct profile *p, uint32_t thread, struct buf *out); /* with its tid */
void heap_bucket_name(unsigned bucket, bool time, struct buf *out); /* least size, or time */

/* What ran, for how long, how it was watched; and what the weights of profile_heap_weigh() are. A line each. */
void heap_headline(const struct profile *p, const struct term *t, struct buf *out);
void heap_weight_line(const struct profile *p, struct buf *out);

/* A cell a value, as high as it is beside the largest. */
void heap_spark(struct buf *out, const struct term *t, const double *values, size_t count);
/* Live bytes in so many equal parts of the range: the most there was in each. All, and of heap_line(). */
void heap_total_cells(const struct profile_heap *h, double *ret, size_t cells);
void heap_line_cells(const struct profile_heap *h, const double *line, double *ret, size_t cells);

/* ---- size classes (heap_classes.c): what the allocator gave above what was asked for; nothing where that is not known ---- */

/* "Wasted  1.2 MiB of 10 MiB..."; false: nothing was written. */
bool heap_wasted_line(const struct profile_heap *h, const struct term *t, struct buf *out);
void heap_class_table(const struct profile_heap *h, const struct term *t, struct buf *out);

/* ---- views: as those of view.h, for profiles with a heap ---- */

int heap_summary(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);
int heap_everything(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);
int heap_details(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* `,"heap":{...}` */
int heap_json(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

#endif
