/* SPDX-License-Identifier: BSD-2-Clause */
/* All that is known of allocations: sonde report --text. */
#include "view/heap_text_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

static void histogram(struct heap_text *v, const uint32_t *sites, size_t count, enum heap_shape kind, const char *words)
{
	bool time = kind == HEAP_LIFETIMES || kind == HEAP_AGES || kind == HEAP_LIVE_BYTES_BY_AGE;
	bool bytes = kind == HEAP_LIVE_BYTES_BY_AGE || kind == HEAP_USABLE;
	double sum[HEAP_BUCKETS], most = 0;

	heap_shape_sum(v->p, sites, count, kind, sum);
	for (unsigned i = 0; i < HEAP_BUCKETS; i++)
		most = fmax(most, sum[i]);
	if (most <= 0)
		return;
	buf_char(v->out, '\n');
	heap_text_title(v, words);
	buf_char(v->out, '\n');
	for (unsigned i = 0; i < HEAP_BUCKETS; i++) {
		struct buf name = {0};

		if (sum[i] <= 0)
			continue;
		heap_bucket_name(i, time, &name);
		buf_printf(v->out, "  %10s ", name.data ? name.data : "");
		buf_release(&name);
		if (bytes)
			heap_bytes_cell(v->out, 14, sum[i]);
		else
			heap_count_cell(v->out, 14, sum[i]);
		buf_str(v->out, "  ");
		for (int k = 0; k < 1 + (int)(sum[i] / most * 30); k++)
			buf_str(v->out, v->t->unicode ? "█" : "#");
		buf_char(v->out, '\n');
	}
}

void heap_text_histograms(struct heap_text *v, const uint32_t *sites, size_t count)
{
	histogram(v, sites, count, HEAP_SIZES, "Sizes of all blocks, from");
	histogram(v, sites, count, HEAP_LIVE_SIZES, "Sizes of live blocks, from");
	histogram(v, sites, count, HEAP_LIFETIMES, "How long blocks lived that were freed, from");
	histogram(v, sites, count, HEAP_LIVE_BYTES_BY_AGE, "Live bytes by their age, from");
	histogram(v, sites, count, HEAP_USABLE, "Bytes the allocator gave above what was asked for, by the size of live blocks, from");
}

static int all_threads(struct heap_text *v)
{
	struct heap_thread_list list = {0};
	int rc = heap_text_threads(v, &list);

	if (!rc && list.len) {
		buf_char(v->out, '\n');
		heap_text_title(v, "Threads\n");
		buf_str(v->out, "  allocated         calls      freed         calls  not seen allocated  thread\n");
	}
	for (size_t i = 0; i < list.len && !rc; i++) {
		const struct heap_thread *t = &list.data[i];

		heap_bytes_cell(v->out, 11, t->allocated_bytes);
		heap_count_cell(v->out, 14, t->allocated);
		heap_bytes_cell(v->out, 11, t->freed_bytes);
		heap_count_cell(v->out, 14, t->freed);
		heap_count_cell(v->out, 20, t->freed_unknown);
		buf_str(v->out, "  ");
		heap_text_who(v, t->thread);
		buf_char(v->out, '\n');
	}
	vec_release(&list);
	return rc;
}

static int all_pairs(struct heap_text *v)
{
	struct heap_pairs pairs = {0};
	int rc = heap_pairs_build(v->p, &v->crowds, &pairs);

	if (!rc && pairs.len) {
		buf_char(v->out, '\n');
		heap_text_title(v, "Allocated by one thread, freed by another\n");
	}
	for (size_t i = 0; i < pairs.len && !rc; i++) {
		buf_str(v->out, "  ");
		heap_text_pair(v, &pairs.data[i]);
		buf_char(v->out, '\n');
	}
	vec_release(&pairs);
	return rc;
}

#define MOST_CHAINS 10u

/* Who lets realloc copy: a block that grows in many steps could be reserved at once. */
static void realloc_lines(struct heap_text *v)
{
	size_t shown = 0;

	vec_each(&v->spots.spots, s) {
		const double *n = s->sum.number;

		if (round(n[HEAP_MOVED]) < 1 || shown >= MOST_CHAINS)
			continue;
		if (!shown++) {
			buf_char(v->out, '\n');
			heap_text_title(v, "Blocks that realloc made larger: reserve what they will need\n");
		}
		buf_str(v->out, "  ");
		heap_count(v->out, n[HEAP_REALLOCATED]);
		buf_str(v->out, " times, ");
		heap_count(v->out, n[HEAP_MOVED]);
		buf_str(v->out, " of them to another place, from ");
		heap_bytes(v->out, n[HEAP_REALLOCATED_BYTES] / fmax(n[HEAP_REALLOCATED], 1));
		buf_str(v->out, " on average: ");
		heap_spot_name(v->p, s, 0, true, v->out);
		buf_char(v->out, '\n');
	}
}

static int everything(struct heap_text *v)
{
	int rc = heap_text_facts(v);

	vec_each(&v->h->processes, process) {
		buf_printf(v->out, "  pid %u ", process->pid);
		words_text(v->out, process->name);
		if (process->allocator) {
			buf_str(v->out, ", allocator of ");
			words_text(v->out, process->allocator);
		}
		buf_str(v->out, process->how == HEAP_LAUNCHED ? ", from its start\n"
			: process->how == HEAP_TOLD
			? ", by samples that it takes itself: what it had before is not known, nor what is temporary\n"
			: process->how == HEAP_PROBES ? ", by probes in the kernel: what it had before them is not known\n"
						      : ", attached: what it had before is not known\n");
	}
	rc = rc ? rc : heap_text_table(v, v->o->top ? v->o->top : v->spots.spots.len);
	heap_text_histograms(v, NULL, 0);
	heap_class_table(v->h, v->t, v->out);
	rc = rc ? rc : all_threads(v);
	rc = rc ? rc : all_pairs(v);
	realloc_lines(v);
	return rc;
}

int heap_everything(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	return heap_text_with(p, o, out, err, everything);
}
