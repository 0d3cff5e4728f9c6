/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "What holds the memory", in one screen: how much there is, how it went, what grows, who allocates.
 */
#include "view/heap_text_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define SPOT_CELLS 10u
#define MOST_HINTS 3u
#define FIXED_COLUMNS 58u /* of a line of the table, before the name */
#define LEAST_SPOTS 3u

/* ---- the facts ---- */

static void moment_words(const struct heap_text *v, uint64_t time_ns)
{
	words_duration(v->out, time_ns > v->p->start_ns ? time_ns - v->p->start_ns : 0);
}

static void range_line(struct heap_text *v)
{
	if (!v->h->range)
		return;
	buf_str(v->out, "From ");
	moment_words(v, v->h->from_ns);
	buf_str(v->out, " to ");
	moment_words(v, v->h->to_ns);
	buf_str(v->out, ": live memory went from ");
	heap_bytes(v->out, v->h->sum.before_bytes);
	buf_str(v->out, " to ");
	heap_bytes(v->out, v->h->sum.live_bytes);
	heap_text_end_line(v);
}

/* Programs that sample themselves do not say which blocks are temporary. */
static bool is_told(const struct profile_heap *h)
{
	vec_each(&h->processes, process)
		if (process->how != HEAP_TOLD)
			return false;
	return h->processes.len;
}

/* Live, leaked and at the peak; then all that was allocated. */
static void sums_lines(struct heap_text *v)
{
	const struct profile_heap *h = v->h;
	const struct heap_sum *s = &h->sum;
	double calls = s->number[HEAP_ALLOCATED];

	heap_text_title(v, "Live    ");
	heap_bytes(v->out, s->live_bytes);
	if (h->sampled) {
		buf_str(v->out, " (");
		heap_range(v->out, heap_interval(s->live_bytes, s->variance[HEAP_VAR_LIVE_BYTES], heap_weight(h, s, true)), true);
		buf_char(v->out, ')');
	}
	buf_str(v->out, " in ");
	heap_count(v->out, s->live);
	buf_str(v->out, round(s->live) == 1 ? " block" : " blocks");
	/* What one process had at its end may be more than all had at a time. */
	buf_str(v->out, h->range ? " then" : h->processes.len > 1 ? " at the end of each process" : " at the end");
	if (h->peak_bytes > 0) {
		buf_str(v->out, heap_text_dot(v));
		buf_str(v->out, "peak ");
		heap_bytes(v->out, h->peak_bytes);
		if (h->processes.len > 1)
			buf_str(v->out, " of all together");
		if (h->peak_ns) {
			buf_str(v->out, " at ");
			moment_words(v, h->peak_ns);
		}
	}
	heap_text_end_line(v);
	heap_text_title(v, "Asked   ");
	heap_bytes(v->out, s->number[HEAP_ALLOCATED_BYTES]);
	buf_str(v->out, " in ");
	heap_count(v->out, calls);
	buf_str(v->out, round(calls) == 1 ? " call" : " calls");
	if (calls > 0 && !is_told(v->h)) {
		buf_str(v->out, ", ");
		words_share(v->out, 100 * s->number[HEAP_TEMPORARY] / calls);
		buf_str(v->out, " of them temporary");
	}
	heap_text_end_line(v);
}

/* Beside malloc, and in none of the other lines. */
static void mapped_line(struct heap_text *v)
{
	const struct heap_sum *s = &v->h->mapped;

	if (!v->h->maps)
		return;
	heap_text_title(v, "Mapped  ");
	heap_bytes(v->out, s->live_bytes);
	buf_str(v->out, " in ");
	heap_count(v->out, s->live);
	buf_str(v->out, round(s->live) == 1 ? " mapping" : " mappings");
	buf_str(v->out, v->h->range ? " then, " : " at the end, ");
	heap_bytes(v->out, s->number[HEAP_ALLOCATED_BYTES]);
	buf_str(v->out, " in ");
	heap_count(v->out, s->number[HEAP_ALLOCATED]);
	buf_str(v->out, round(s->number[HEAP_ALLOCATED]) == 1 ? " call" : " calls");
	buf_str(v->out, " in all: by programs themselves, not malloc, and not in the lines above");
	heap_text_end_line(v);
}

static void picture_line(struct heap_text *v)
{
	double cells[HEAP_LINE_CELLS], most = 0;

	if (v->h->totals.len < 3)
		return;
	heap_total_cells(v->h, cells, HEAP_LINE_CELLS);
	for (size_t i = 0; i < HEAP_LINE_CELLS; i++)
		most = fmax(most, cells[i]);
	heap_text_title(v, "Time    ");
	heap_spark(v->out, v->t, cells, HEAP_LINE_CELLS);
	buf_str(v->out, "  up to ");
	heap_bytes(v->out, most);
	heap_text_end_line(v);
}

/* What is missing: who was not seen at all, and what was not written down. */
static void missing_lines(struct heap_text *v)
{
	vec_each(&v->h->processes, process) {
		if (!process->uncovered)
			continue;
		paint_on(v->out, v->t, PAINT_WARN);
		buf_str(v->out, "Unseen  ");
		words_text(v->out, process->name);
		buf_printf(v->out, " %u: ", process->pid);
		words_text(v->out, process->uncovered);
		paint_off(v->out, v->t, PAINT_WARN);
		heap_text_end_line(v);
	}
	for (size_t kind = 0; kind < LOSS_KIND_COUNT; kind++) {
		if (!v->p->quality.losses[kind])
			continue;
		paint_on(v->out, v->t, PAINT_WARN);
		buf_str(v->out, "Lost    ");
		words_count(v->out, v->p->quality.losses[kind]);
		buf_printf(v->out, " %s", loss_words((enum loss_kind)kind));
		paint_off(v->out, v->t, PAINT_WARN);
		heap_text_end_line(v);
	}
}

#define MOST_WRAPPERS 4u

/* Functions of the program that are passed over because of how they are called; who is named is a guess then. */
static void wrappers_line(struct heap_text *v)
{
	size_t count = 0;

	for (size_t i = 0; v->h->wrappers && i < v->p->functions.len; i++) {
		if (!v->h->wrappers[i] || count++ >= MOST_WRAPPERS)
			continue;
		if (count == 1)
			heap_text_title(v, "Through ");
		buf_str(v->out, count == 1 ? "" : ", ");
		words_text(v->out, v->p->functions.data[i].name);
	}
	if (!count)
		return;
	if (count > MOST_WRAPPERS)
		buf_printf(v->out, " and %zu more", count - MOST_WRAPPERS);
	buf_str(v->out, ", which hand on what malloc gives: their callers are named (--show-wrappers)");
	heap_text_end_line(v);
}

static int by_rate(const void *left, const void *right)
{
	const struct heap_spot *a = *(const struct heap_spot *const *)left, *b = *(const struct heap_spot *const *)right;

	return (a->growth.rate < b->growth.rate) - (a->growth.rate > b->growth.rate);
}

static void growth_line(struct heap_text *v, const struct heap_spot *spot)
{
	paint_on(v->out, v->t, PAINT_BAD);
	buf_str(v->out, v->t->unicode ? "  → " : "  -> ");
	heap_spot_name(v->p, spot, 0, true, v->out);
	buf_str(v->out, " grows all the time: ");
	heap_rate(v->out, &spot->growth, false);
	paint_off(v->out, v->t, PAINT_BAD);
	heap_text_end_line(v);
}

/* Too slow to be worth a line: this part of what is live in all, over the whole recording. */
#define LEAST_GROWTH 0.01

static int growth_lines(struct heap_text *v)
{
	const struct heap_spot **grow = calloc(v->spots.spots.len + 1, sizeof(*grow));
	double seconds = (double)(v->h->to_ns - v->h->from_ns) / NS_PER_S;
	size_t count = 0;

	if (!grow)
		return -ENOMEM;
	vec_each(&v->spots.spots, s)
		if (s->growth.trend == HEAP_TREND_GROWS && s->growth.rate * seconds > LEAST_GROWTH * v->h->sum.live_bytes)
			grow[count++] = s;
	if (count)
		qsort(grow, count, sizeof(*grow), by_rate);
	for (size_t i = 0; i < count && i < MOST_HINTS; i++)
		growth_line(v, grow[i]);
	free(grow);
	return 0;
}

/* ---- the table ---- */

static const struct {
	const char *title, *words;
} sorted_by[HEAP_ORDERS] = {
	[HEAP_BY_LIVE] = {"live", "who holds most memory"},
	[HEAP_BY_LEAKED] = {"leaked", "who leaked most"},
	[HEAP_BY_GROWTH] = {"live", "who grows most"},
	[HEAP_BY_PEAK] = {"peak", "who held most at the peak"},
	[HEAP_BY_TOTAL] = {"asked", "who asked for most"},
	[HEAP_BY_TEMPORARY] = {"temp", "who allocates most for a moment"},
	[HEAP_BY_CROSS] = {"elsewhere", "whose memory other threads free"},
	[HEAP_BY_COUNT] = {"blocks", "who holds most blocks"},
	[HEAP_BY_WASTED] = {"wasted", "whose live blocks are larger than was asked for"},
};

/* The first column: what the table is sorted by. */
static double first_number(const struct heap_text *v, const struct heap_sum *s)
{
	if (v->o->heap_order == HEAP_BY_GROWTH)
		return v->h->range ? s->live_bytes - s->before_bytes : s->live_bytes;
	return heap_measure(s, v->o->heap_order);
}

void heap_text_first_cell(struct heap_text *v, const struct heap_sum *s)
{
	if (v->o->heap_order == HEAP_BY_COUNT)
		heap_count_cell(v->out, 10, s->live);
	else
		heap_bytes_cell(v->out, 10, first_number(v, s));
}

/* The interval of the first column; nothing where there is none. */
static bool first_interval(const struct heap_text *v, const struct heap_sum *s, struct heap_interval *ret)
{
	static const int8_t variances[HEAP_ORDERS] = {[HEAP_BY_LIVE] = HEAP_VAR_LIVE_BYTES, [HEAP_BY_LEAKED] = HEAP_VAR_LIVE_BYTES,
		[HEAP_BY_GROWTH] = HEAP_VAR_LIVE_BYTES, [HEAP_BY_PEAK] = HEAP_VAR_PEAK_BYTES,
		[HEAP_BY_TOTAL] = HEAP_VAR_ALLOCATED_BYTES, [HEAP_BY_TEMPORARY] = -1, [HEAP_BY_CROSS] = -1,
		[HEAP_BY_COUNT] = HEAP_VAR_LIVE, [HEAP_BY_WASTED] = -1};
	int8_t variance = variances[v->o->heap_order];

	if (!v->h->sampled || variance < 0 || (v->h->range && v->o->heap_order == HEAP_BY_GROWTH))
		return false;
	*ret = heap_interval(first_number(v, s), s->variance[variance],
		heap_weight(v->h, s, v->o->heap_order != HEAP_BY_COUNT));
	return true;
}

static void spot_picture(struct heap_text *v, const struct heap_spot *spot)
{
	double cells[SPOT_CELLS];

	heap_line(v->p, v->spots.order.data + spot->first, spot->count, v->line, NULL);
	heap_line_cells(v->h, v->line, cells, SPOT_CELLS);
	paint_on(v->out, v->t, PAINT_DIM);
	heap_spark(v->out, v->t, cells, SPOT_CELLS);
	paint_off(v->out, v->t, PAINT_DIM);
}

/* The path to the most of it, without the allocator's end. */
static int path_words(struct heap_text *v, uint32_t stack, size_t columns)
{
	uint32_t node, level = heap_site_level(v->p, stack, &node), inner;

	if (level == PROFILE_NONE) {
		buf_str(v->out, "[no stack]");
		return 0;
	}
	if (chain_of_stack(v->p, node, &v->chain))
		return -ENOMEM;
	/* Inlined allocators are levels of the same frame. */
	inner = level - v->p->frames.data[v->p->nodes.data[node].frame].first_level;
	if (inner < v->chain.len)
		v->chain.len -= inner;
	chain_draw(v->out, v->t, v->chain.data, v->chain.len, columns);
	return 0;
}

/* Interval, trend, and the path. */
static int spot_second_line(struct heap_text *v, const struct heap_spot *spot)
{
	const uint32_t *sites = v->spots.order.data + spot->first;
	size_t start = v->out->len, used;
	struct heap_interval i;

	buf_str(v->out, "       ");
	if (first_interval(v, &spot->sum, &i)) {
		heap_range(v->out, i, v->o->heap_order != HEAP_BY_COUNT);
		buf_str(v->out, heap_text_dot(v));
	}
	if (spot->growth.trend == HEAP_TREND_GROWS) {
		paint_on(v->out, v->t, PAINT_BAD);
		buf_str(v->out, "grows ");
		heap_rate(v->out, &spot->growth, true);
		paint_off(v->out, v->t, PAINT_BAD);
		buf_str(v->out, heap_text_dot(v));
	}
	used = v->out->failed || !v->out->data ? 0 : term_width(v->out->data + start);
	if (heap_rows_of_stacks(v->p, sites, spot->count, v->o->heap_order, &v->rows) ||
		path_words(v, v->rows.data[0].stack, v->t->columns > used + 20 ? v->t->columns - used : v->t->columns ? 20 : 0))
		return -ENOMEM;
	if (v->rows.len > 1)
		buf_printf(v->out, "%s%zu paths", heap_text_dot(v), v->rows.len);
	buf_char(v->out, '\n');
	return 0;
}

static int spot_lines(struct heap_text *v, size_t index)
{
	const struct heap_spot *spot = &v->spots.spots.data[index];
	const double *n = spot->sum.number;

	buf_printf(v->out, "%3zu ", index + 1);
	heap_text_first_cell(v, &spot->sum);
	if (v->o->heap_order == HEAP_BY_LIVE || v->o->heap_order == HEAP_BY_GROWTH)
		heap_count_cell(v->out, 11, spot->sum.live);
	else
		heap_bytes_cell(v->out, 11, spot->sum.live_bytes);
	heap_bytes_cell(v->out, 11, n[HEAP_ALLOCATED_BYTES]);
	buf_str(v->out, " ");
	if (round(n[HEAP_TEMPORARY]) > 0)
		words_percent(v->out, fmin(100, 100 * n[HEAP_TEMPORARY] / fmax(n[HEAP_ALLOCATED], 1)));
	else
		buf_str(v->out, "     -");
	buf_str(v->out, "  ");
	spot_picture(v, spot);
	buf_str(v->out, "  ");
	paint_on(v->out, v->t, PAINT_TITLE);
	heap_spot_name(v->p, spot,
		v->t->columns > FIXED_COLUMNS + 20 ? v->t->columns - FIXED_COLUMNS : v->t->columns ? 20 : 0, v->t->unicode, v->out);
	paint_off(v->out, v->t, PAINT_TITLE);
	buf_char(v->out, '\n');
	return spot_second_line(v, spot);
}

/* Those at the end of the order that have nothing of it are not worth a line. */
static size_t worth_showing(const struct heap_text *v)
{
	size_t count = 0;

	vec_each(&v->spots.spots, s)
		count += fabs(first_number(v, &s->sum)) >= 0.5;
	return count;
}

static void table_title(struct heap_text *v)
{
	bool blocks = v->o->heap_order == HEAP_BY_LIVE || v->o->heap_order == HEAP_BY_GROWTH;

	heap_text_end_line(v);
	paint_on(v->out, v->t, PAINT_TITLE);
	buf_printf(v->out, "  # %10s%11s%11s%7s  %-10s  %s", v->h->range && v->o->heap_order == HEAP_BY_GROWTH
		? "grown" : sorted_by[v->o->heap_order].title, blocks ? "blocks" : "live", "asked", "temp", "time",
		sorted_by[v->o->heap_order].words);
	paint_off(v->out, v->t, PAINT_TITLE);
	heap_text_end_line(v);
}

int heap_text_table(struct heap_text *v, size_t limit)
{
	size_t worth = worth_showing(v);
	int rc = 0;

	table_title(v);
	for (size_t i = 0, shown = 0; i < v->spots.spots.len && shown < limit && !rc; i++) {
		if (fabs(first_number(v, &v->spots.spots.data[i].sum)) < 0.5)
			continue;
		rc = spot_lines(v, i);
		shown++;
	}
	if (!worth)
		buf_str(v->out, "    nothing\n");
	if (worth > limit)
		buf_printf(v->out, "    and %zu more: -n %zu, or --text\n", worth - limit, worth);
	paint(v->out, v->t, PAINT_DIM,
		"    --site N tells all about one; --sort leaked, growth, peak, total, temporary, cross, wasted\n");
	return rc;
}

/* ---- one screen ---- */

int heap_text_facts(struct heap_text *v)
{
	int rc;

	heap_headline(v->p, v->t, v->out);
	v->lines++;
	range_line(v);
	sums_lines(v);
	v->lines += heap_wasted_line(v->h, v->t, v->out);
	mapped_line(v);
	picture_line(v);
	rc = heap_text_threads_line(v);
	rc = rc ? rc : heap_text_pairs_line(v);
	missing_lines(v);
	wrappers_line(v);
	return rc ? rc : growth_lines(v);
}

static int screen(struct heap_text *v)
{
	size_t rows = v->t->rows ? v->t->rows - 1 : 60, limit;
	int rc = heap_text_facts(v);

	/* a blank line, the title, that there is more, and of what; two lines each */
	limit = rows > v->lines + 4 ? (rows - v->lines - 4) / 2 : 0;
	if (limit < LEAST_SPOTS)
		limit = LEAST_SPOTS;
	return rc ? rc : heap_text_table(v, v->o->top ? v->o->top : limit);
}

static void release(struct heap_text *v)
{
	heap_spots_release(&v->spots);
	vec_release(&v->chain);
	vec_release(&v->rows);
	heap_crowds_release(&v->crowds);
	free(v->line);
}

int heap_text_with(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err,
	int (*draw)(struct heap_text *v))
{
	struct heap_text v = {.p = p, .h = p->heap, .o = o, .t = &o->term, .out = out};
	int rc = heap_spots_build(p, o->heap_order, &v.spots, err);

	if (rc)
		return rc;
	v.line = calloc(p->heap->moments.len + 1, sizeof(*v.line));
	rc = v.line ? heap_crowds_build(p, &v.crowds) : -ENOMEM;
	rc = rc ? rc : draw(&v);
	release(&v);
	return rc || out->failed ? err_nomem(err) : 0;
}

int heap_summary(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	return heap_text_with(p, o, out, err, screen);
}
