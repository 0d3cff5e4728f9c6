/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/heap_priv.h"

#include <math.h>

#define MOST_ROWS 16u

struct sums {
	double live_bytes, live_usable, peak_bytes, peak_usable;
	double wasted_most;         /* of a class */
	const struct heap_class *most;
};

/* What there was most of: at the end, or at the peak when there is little at the end. */
static bool by_peak(const struct profile_heap *h)
{
	return h->sum.live_bytes < h->peak_bytes / 2;
}

static double wasted(const struct heap_class *c, bool peak)
{
	return peak ? c->peak_usable - c->peak_bytes : c->live_usable - c->live_bytes;
}

static struct sums add_up(const struct profile_heap *h)
{
	struct sums s = {0};

	vec_each(&h->classes, c) {
		s.live_bytes += c->live_bytes;
		s.live_usable += c->live_usable;
		s.peak_bytes += c->peak_bytes;
		s.peak_usable += c->peak_usable;
		if (wasted(c, by_peak(h)) <= s.wasted_most)
			continue;
		s.wasted_most = wasted(c, by_peak(h));
		s.most = c;
	}
	return s;
}

static void part(struct buf *out, double bytes, double usable)
{
	heap_bytes(out, usable - bytes);
	buf_str(out, " of ");
	heap_bytes(out, usable);
	if (usable > 0) {
		buf_str(out, " (");
		words_share(out, 100 * (usable - bytes) / usable);
		buf_char(out, ')');
	}
}

/* Blocks of one size, or of at most so many bytes. */
static void class_name(const struct heap_class *c, struct buf *out)
{
	if (!c->usable)
		buf_str(out, "not known");
	else
		heap_bytes(out, (double)c->usable);
}

bool heap_wasted_line(const struct profile_heap *h, const struct term *t, struct buf *out)
{
	struct sums s = add_up(h);
	bool peak = by_peak(h) && !h->range;

	if (!h->classes.len || h->filtered)
		return false;
	paint(out, t, PAINT_TITLE, "Wasted  ");
	part(out, peak ? s.peak_bytes : s.live_bytes, peak ? s.peak_usable : s.live_usable);
	buf_str(out, h->range ? " given then" : peak ? " given at the peak" : " given at the end");
	if (s.most) {
		buf_str(out, ", most of it in blocks of ");
		class_name(s.most, out);
	}
	buf_char(out, '\n');
	return true;
}

static void row(const struct heap_class *c, struct buf *out)
{
	struct buf name = {0};
	double unused = wasted(c, false);

	class_name(c, &name);
	out->failed |= name.failed;
	buf_printf(out, "  %10s", name.data ? name.data : "");
	buf_release(&name);
	heap_count_cell(out, 12, c->live);
	heap_bytes_cell(out, 12, c->live_bytes);
	heap_bytes_cell(out, 12, c->live_usable);
	heap_bytes_cell(out, 12, unused);
	buf_str(out, "  ");
	if (c->live_usable > 0)
		words_percent(out, fmin(100, 100 * unused / c->live_usable));
	else
		buf_str(out, "     -");
	heap_bytes_cell(out, 14, wasted(c, true));
	buf_char(out, '\n');
}

/* The one after those that were shown, by what is wasted, and then by size. */
static const struct heap_class *next_worst(const struct profile_heap *h, const struct heap_class *after)
{
	bool peak = by_peak(h);
	const struct heap_class *best = NULL;

	vec_each(&h->classes, c) {
		double w = wasted(c, peak);

		if (after && (w > wasted(after, peak) || (w >= wasted(after, peak) && c <= after)))
			continue;
		if (!best || w > wasted(best, peak))
			best = c;
	}
	return best;
}

void heap_class_table(const struct profile_heap *h, const struct term *t, struct buf *out)
{
	const struct heap_class *c = NULL;
	size_t shown = 0;

	if (!h->classes.len || h->filtered)
		return;
	buf_char(out, '\n');
	paint(out, t, PAINT_TITLE, "Size classes of the allocator, by what is wasted: blocks of at most\n");
	buf_str(out, "        size      blocks       asked       given      wasted             at the peak\n");
	while (shown < MOST_ROWS && (c = next_worst(h, c))) {
		row(c, out);
		shown++;
	}
	if (h->classes.len > shown)
		buf_printf(out, "    and %zu more: --json\n", h->classes.len - shown);
}
