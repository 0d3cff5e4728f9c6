/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of the text about allocations share: heap_text.c, heap_text_threads.c, heap_everything.c, heap_details.c. */
#ifndef SONDE_VIEW_HEAP_TEXT_PRIV_H
#define SONDE_VIEW_HEAP_TEXT_PRIV_H

#include "view/heap_priv.h"

#define HEAP_LINE_CELLS 40u

struct heap_text {
	const struct profile *p;
	const struct profile_heap *h;
	const struct view_options *o;
	const struct term *t;
	struct heap_spots spots;
	struct chain chain;
	struct heap_rows rows;
	struct heap_crowds crowds;
	double *line; /* by moment */
	struct buf *out;
	size_t lines; /* that were written before the table */
};

static inline void heap_text_title(struct heap_text *v, const char *words)
{
	paint(v->out, v->t, PAINT_TITLE, words);
}

static inline void heap_text_end_line(struct heap_text *v)
{
	buf_char(v->out, '\n');
	v->lines++;
}

static inline const char *heap_text_dot(const struct heap_text *v)
{
	return v->t->unicode ? " · " : " - ";
}

/* Makes what `draw` shows. 0, -ENOMEM. */
int heap_text_with(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err,
	int (*draw)(struct heap_text *v));

/* ---- heap_text.c; 0 or -ENOMEM ---- */

int heap_text_facts(struct heap_text *v);               /* the lines above the table */
int heap_text_table(struct heap_text *v, size_t limit);
void heap_text_first_cell(struct heap_text *v, const struct heap_sum *s); /* what the table is sorted by */

/* ---- heap_text_threads.c ---- */

VEC_TYPE(heap_thread_list, struct heap_thread);

int heap_text_threads(const struct heap_text *v, struct heap_thread_list *ret); /* by bytes; crowds are one */
void heap_text_who(struct heap_text *v, uint32_t thread);                       /* "worker 1234", "4,000 x worker" */
void heap_text_pair(struct heap_text *v, const struct heap_pair *pair);
int heap_text_threads_line(struct heap_text *v);
int heap_text_pairs_line(struct heap_text *v);

/* ---- heap_everything.c ---- */

/* As heap_shape_sum(): buckets that have something, with bars. */
void heap_text_histograms(struct heap_text *v, const uint32_t *sites, size_t count);

#endif
