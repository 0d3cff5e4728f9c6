/* SPDX-License-Identifier: BSD-2-Clause */
/* All about one site: sonde report --site. */
#include "view/heap_text_priv.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#define MOST_NS 9e18

static void number_line(struct heap_text *v, const char *words, double bytes, double count, double variance, const struct heap_sum *s)
{
	buf_printf(v->out, "  %-22s", words);
	heap_bytes_cell(v->out, 12, bytes);
	buf_str(v->out, " in ");
	heap_count(v->out, count);
	buf_str(v->out, round(count) == 1 ? " block" : " blocks");
	if (v->h->sampled && variance >= 0) {
		buf_str(v->out, ", ");
		heap_range(v->out, heap_interval(bytes, variance, heap_weight(v->h, s, true)), true);
	}
	buf_char(v->out, '\n');
}

static void number_lines(struct heap_text *v, const struct heap_sum *s)
{
	const double *n = s->number;

	number_line(v, "live", s->live_bytes, s->live, s->variance[HEAP_VAR_LIVE_BYTES], s);
	if (v->h->range)
		number_line(v, "live before", s->before_bytes, s->before, -1, s);
	else
		number_line(v, "leaked", s->leaked_bytes, s->leaked, -1, s);
	number_line(v, "at the peak", n[HEAP_PEAK_BYTES], n[HEAP_PEAK], s->variance[HEAP_VAR_PEAK_BYTES], s);
	number_line(v, "asked for", n[HEAP_ALLOCATED_BYTES], n[HEAP_ALLOCATED], s->variance[HEAP_VAR_ALLOCATED_BYTES], s);
	number_line(v, "freed", n[HEAP_FREED_BYTES], n[HEAP_FREED], -1, s);
	number_line(v, "  at once (temporary)", n[HEAP_TEMPORARY_BYTES], n[HEAP_TEMPORARY], -1, s);
	number_line(v, "  by another thread", n[HEAP_CROSS_FREED_BYTES], n[HEAP_CROSS_FREED], -1, s);
	if (round(n[HEAP_REALLOCATED]) > 0) {
		buf_printf(v->out, "  %-22s", "got by realloc");
		heap_count_cell(v->out, 12, n[HEAP_REALLOCATED]);
		buf_str(v->out, ", moved ");
		heap_count(v->out, n[HEAP_MOVED]);
		buf_char(v->out, '\n');
	}
	if (n[HEAP_FREED] >= 1) {
		buf_printf(v->out, "  %-22s  ", "lived on average");
		words_duration(v->out, (uint64_t)fmin(n[HEAP_LIFETIME_NS] / n[HEAP_FREED], MOST_NS));
		buf_char(v->out, '\n');
	}
}

static void trend_line(struct heap_text *v, const struct heap_growth *g)
{
	static const char *const words[] = {
		[HEAP_TREND_UNKNOWN] = "not known: there are too few moments",
		[HEAP_TREND_STEADY] = "steady",
		[HEAP_TREND_GROWS] = "grows all the time, by ",
		[HEAP_TREND_FILLED] = "it grew, and does not any more",
		[HEAP_TREND_SHRINKS] = "shrinks, by ",
	};

	buf_printf(v->out, "  %-22s  %s", "over time", words[g->trend]);
	if (g->trend == HEAP_TREND_GROWS || g->trend == HEAP_TREND_SHRINKS)
		heap_rate(v->out, g, false);
	buf_char(v->out, '\n');
}

static int path_lines(struct heap_text *v, const struct heap_row *row)
{
	size_t count = profile_stack_levels(v->p, row->stack, NULL, 0);
	uint32_t *levels = malloc((count + 1) * sizeof(*levels));

	if (!levels)
		return -ENOMEM;
	profile_stack_levels(v->p, row->stack, levels, count);
	buf_char(v->out, '\n');
	heap_text_first_cell(v, &row->sum);
	buf_str(v->out, " of ");
	heap_bytes(v->out, row->sum.number[HEAP_ALLOCATED_BYTES]);
	buf_str(v->out, " asked for in ");
	heap_count(v->out, row->sum.number[HEAP_ALLOCATED]);
	buf_str(v->out, " calls\n");
	for (size_t i = 0; i < count; i++) {
		const struct profile_level *level = &v->p->levels.data[levels[i]];
		const struct profile_function *f = &v->p->functions.data[level->function];

		buf_str(v->out, "      ");
		words_text(v->out, f->name);
		if (level->file) {
			buf_str(v->out, " (");
			words_text(v->out, level->file);
			buf_printf(v->out, level->line ? ":%u)" : ")", level->line);
		} else if (*module_name(v->p, f)) {
			buf_str(v->out, " in ");
			words_text(v->out, module_name(v->p, f));
		}
		buf_str(v->out, level->inlined ? " (inl)\n" : "\n");
	}
	free(levels);
	return 0;
}

#define MOST_FREERS 10u

static int freed_by_lines(struct heap_text *v)
{
	if (!v->rows.len)
		return 0;
	buf_char(v->out, '\n');
	heap_text_title(v, "Freed by other threads\n");
	for (size_t i = 0; i < v->rows.len && i < MOST_FREERS; i++) {
		const struct heap_row *r = &v->rows.data[i];

		heap_bytes_cell(v->out, 12, r->sum.number[HEAP_FREED_BYTES]);
		heap_count_cell(v->out, 12, r->sum.number[HEAP_FREED]);
		buf_str(v->out, "  ");
		heap_text_who(v, r->thread);
		if (r->stack != PROFILE_NONE) {
			buf_str(v->out, ": ");
			if (chain_of_stack(v->p, r->stack, &v->chain))
				return -ENOMEM;
			chain_draw(v->out, v->t, v->chain.data, v->chain.len, v->t->columns > 60 ? v->t->columns - 45 : 0);
		}
		buf_char(v->out, '\n');
	}
	if (v->rows.len > MOST_FREERS)
		buf_printf(v->out, "    and %zu more\n", v->rows.len - MOST_FREERS);
	return 0;
}

#define DETAIL_PATHS 10u

static int details(struct heap_text *v)
{
	const struct heap_spot *spot;
	const uint32_t *sites;
	double cells[HEAP_LINE_CELLS];
	size_t paths;
	int rc;

	heap_headline(v->p, v->t, v->out);
	v->lines++;
	if (v->o->heap_site > v->spots.spots.len) {
		buf_printf(v->out, "There is no site %zu: there are %zu.\n", v->o->heap_site, v->spots.spots.len);
		return 0;
	}
	spot = &v->spots.spots.data[v->o->heap_site - 1];
	sites = v->spots.order.data + spot->first;
	buf_printf(v->out, "\nSite %zu by %s: ", v->o->heap_site, heap_order_name(v->o->heap_order));
	paint_on(v->out, v->t, PAINT_TITLE);
	heap_spot_name(v->p, spot, 0, true, v->out);
	paint_off(v->out, v->t, PAINT_TITLE);
	buf_char(v->out, '\n');
	number_lines(v, &spot->sum);
	trend_line(v, &spot->growth);
	heap_line(v->p, sites, spot->count, v->line, NULL);
	heap_line_cells(v->h, v->line, cells, HEAP_LINE_CELLS);
	if (spot->growth.trend != HEAP_TREND_UNKNOWN || v->h->moments.len > 2) {
		buf_str(v->out, "  ");
		heap_spark(v->out, v->t, cells, HEAP_LINE_CELLS);
		buf_char(v->out, '\n');
	}
	heap_text_histograms(v, sites, spot->count);
	rc = heap_rows_of_freers(v->p, &v->spots, spot, &v->crowds, &v->rows);
	rc = rc ? rc : freed_by_lines(v);
	rc = rc ? rc : heap_rows_of_stacks(v->p, sites, spot->count, v->o->heap_order, &v->rows);
	paths = v->rows.len;
	if (!rc)
		buf_printf(v->out, "\n%zu path%s\n", paths, paths == 1 ? "" : "s");
	for (size_t i = 0; i < paths && i < (v->o->top ? v->o->top : DETAIL_PATHS) && !rc; i++)
		rc = path_lines(v, &v->rows.data[i]);
	return rc;
}

int heap_details(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	return heap_text_with(p, o, out, err, details);
}
