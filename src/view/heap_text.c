/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "What holds the memory", in one screen: how much there is, how it went, what grows, who allocates; with --text all
 * of it, with --site one of them.
 */
#include "view/heap_priv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

#define LINE_CELLS 40u
#define SPOT_CELLS 10u
#define MOST_HINTS 3u
#define FIXED_COLUMNS 58u /* of a line of the table, before the name */
#define LEAST_SPOTS 3u
#define MOST_NS 9e18

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

static void title(struct heap_text *v, const char *words)
{
	paint(v->out, v->t, PAINT_TITLE, words);
}

static void end_line(struct heap_text *v)
{
	buf_char(v->out, '\n');
	v->lines++;
}

static const char *dot(const struct heap_text *v)
{
	return v->t->unicode ? " · " : " - ";
}

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
	end_line(v);
}

/* Live, leaked and at the peak; then all that was allocated. */
static void sums_lines(struct heap_text *v)
{
	const struct profile_heap *h = v->h;
	const struct heap_sum *s = &h->sum;
	double calls = s->number[HEAP_ALLOCATED];

	title(v, "Live    ");
	heap_bytes(v->out, s->live_bytes);
	if (h->sampled) {
		buf_str(v->out, " (");
		heap_range(v->out, heap_interval(s->live_bytes, s->variance[HEAP_VAR_LIVE_BYTES], heap_weight(h, s, true)), true);
		buf_char(v->out, ')');
	}
	buf_str(v->out, " in ");
	heap_count(v->out, s->live);
	buf_str(v->out, round(s->live) == 1 ? " block" : " blocks");
	buf_str(v->out, h->range ? " then" : " at the end");
	if (h->peak_bytes > 0) {
		buf_str(v->out, dot(v));
		buf_str(v->out, "peak ");
		heap_bytes(v->out, h->peak_bytes);
		if (h->peak_ns) {
			buf_str(v->out, " at ");
			moment_words(v, h->peak_ns);
		}
	}
	end_line(v);
	title(v, "Asked   ");
	heap_bytes(v->out, s->number[HEAP_ALLOCATED_BYTES]);
	buf_str(v->out, " in ");
	heap_count(v->out, calls);
	buf_str(v->out, round(calls) == 1 ? " call" : " calls");
	if (calls > 0) {
		buf_str(v->out, ", ");
		words_share(v->out, 100 * s->number[HEAP_TEMPORARY] / calls);
		buf_str(v->out, " of them temporary");
	}
	end_line(v);
}

/* Beside malloc, and in none of the other lines. */
static void mapped_line(struct heap_text *v)
{
	const struct heap_sum *s = &v->h->mapped;

	if (!v->h->maps)
		return;
	title(v, "Mapped  ");
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
	end_line(v);
}

static void picture_line(struct heap_text *v)
{
	double cells[LINE_CELLS], most = 0;

	if (v->h->totals.len < 3)
		return;
	heap_total_cells(v->h, cells, LINE_CELLS);
	for (size_t i = 0; i < LINE_CELLS; i++)
		most = fmax(most, cells[i]);
	title(v, "Time    ");
	heap_spark(v->out, v->t, cells, LINE_CELLS);
	buf_str(v->out, "  up to ");
	heap_bytes(v->out, most);
	end_line(v);
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
		end_line(v);
	}
	for (size_t kind = 0; kind < LOSS_KIND_COUNT; kind++) {
		if (!v->p->quality.losses[kind])
			continue;
		paint_on(v->out, v->t, PAINT_WARN);
		buf_str(v->out, "Lost    ");
		words_count(v->out, v->p->quality.losses[kind]);
		buf_printf(v->out, " %s", loss_words((enum loss_kind)kind));
		paint_off(v->out, v->t, PAINT_WARN);
		end_line(v);
	}
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
	end_line(v);
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

static void first_cell(struct heap_text *v, const struct heap_sum *s)
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
		buf_str(v->out, dot(v));
	}
	if (spot->growth.trend == HEAP_TREND_GROWS) {
		paint_on(v->out, v->t, PAINT_BAD);
		buf_str(v->out, "grows ");
		heap_rate(v->out, &spot->growth, true);
		paint_off(v->out, v->t, PAINT_BAD);
		buf_str(v->out, dot(v));
	}
	used = v->out->failed || !v->out->data ? 0 : term_width(v->out->data + start);
	if (heap_rows_of_stacks(v->p, sites, spot->count, v->o->heap_order, &v->rows) ||
		path_words(v, v->rows.data[0].stack, v->t->columns > used + 20 ? v->t->columns - used : v->t->columns ? 20 : 0))
		return -ENOMEM;
	if (v->rows.len > 1)
		buf_printf(v->out, "%s%zu paths", dot(v), v->rows.len);
	buf_char(v->out, '\n');
	return 0;
}

static int spot_lines(struct heap_text *v, size_t index)
{
	const struct heap_spot *spot = &v->spots.spots.data[index];
	const double *n = spot->sum.number;

	buf_printf(v->out, "%3zu ", index + 1);
	first_cell(v, &spot->sum);
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

	end_line(v);
	paint_on(v->out, v->t, PAINT_TITLE);
	buf_printf(v->out, "  # %10s%11s%11s%7s  %-10s  %s", v->h->range && v->o->heap_order == HEAP_BY_GROWTH
		? "grown" : sorted_by[v->o->heap_order].title, blocks ? "blocks" : "live", "asked", "temp", "time",
		sorted_by[v->o->heap_order].words);
	paint_off(v->out, v->t, PAINT_TITLE);
	end_line(v);
}

static int table(struct heap_text *v, size_t limit)
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

/* ---- threads, and what goes from one to another ---- */

/* "worker 1234", "4,000 x worker" */
static void who(struct heap_text *v, uint32_t thread)
{
	if (thread == PROFILE_NONE || v->crowds.size[thread] == 1) {
		heap_thread_name(v->p, thread, v->out);
		return;
	}
	words_count(v->out, v->crowds.size[thread]);
	buf_str(v->out, " x ");
	words_text(v->out, v->p->threads.data[thread].name);
}

#define LINE_THREADS 4u
#define LINE_PAIRS 3u

static int compare_threads(const void *left, const void *right)
{
	const struct heap_thread *a = left, *b = right;

	return (a->allocated_bytes < b->allocated_bytes) - (a->allocated_bytes > b->allocated_bytes);
}

VEC_TYPE(heap_thread_list, struct heap_thread);

static int by_index(const void *left, const void *right)
{
	const struct heap_thread *a = left, *b = right;

	return (a->thread > b->thread) - (a->thread < b->thread);
}

/* Crowds become one. */
static void join_crowds(struct heap_thread_list *list)
{
	size_t kept = 0;

	qsort(list->data, list->len, sizeof(*list->data), by_index);
	for (size_t i = 1; i < list->len; i++) {
		struct heap_thread *to = &list->data[kept], *t = &list->data[i];

		if (t->thread != to->thread) {
			list->data[++kept] = *t;
			continue;
		}
		to->allocated += t->allocated;
		to->allocated_bytes += t->allocated_bytes;
		to->freed += t->freed;
		to->freed_bytes += t->freed_bytes;
		to->freed_unknown += t->freed_unknown;
	}
	list->len = kept + 1;
}

static int threads_sorted(const struct heap_text *v, struct heap_thread_list *ret)
{
	vec_each(&v->h->threads, t) {
		struct heap_thread thread = *t;

		if (t->thread == PROFILE_NONE || !(t->allocated > 0 || t->freed > 0))
			continue;
		thread.thread = v->crowds.as[t->thread];
		if (vec_push(ret, thread))
			return -ENOMEM;
	}
	if (ret->len)
		join_crowds(ret);
	if (ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), compare_threads);
	return 0;
}

static int threads_line(struct heap_text *v)
{
	struct heap_thread_list list = {0};
	int rc = threads_sorted(v, &list);

	if (!rc && list.len > 1) {
		title(v, "Threads ");
		for (size_t i = 0; i < list.len && i < LINE_THREADS && list.data[i].allocated > 0; i++) {
			buf_str(v->out, i ? ", " : "");
			who(v, list.data[i].thread);
			buf_char(v->out, ' ');
			heap_bytes(v->out, list.data[i].allocated_bytes);
		}
		if (list.len > LINE_THREADS)
			buf_printf(v->out, ", %zu more", list.len - LINE_THREADS);
		end_line(v);
	}
	vec_release(&list);
	return rc;
}

static void pair_words(struct heap_text *v, const struct heap_pair *pair)
{
	who(v, pair->from);
	buf_str(v->out, v->t->unicode ? " → " : " -> ");
	who(v, pair->to);
	buf_char(v->out, ' ');
	heap_bytes(v->out, pair->bytes);
	buf_str(v->out, " in ");
	heap_count(v->out, pair->count);
}

static int pairs_line(struct heap_text *v)
{
	struct heap_pairs pairs = {0};
	int rc = heap_pairs_build(v->p, &v->crowds, &pairs);

	if (!rc && pairs.len) {
		title(v, "Freed   ");
		buf_str(v->out, "by other threads: ");
		for (size_t i = 0; i < pairs.len && i < LINE_PAIRS; i++) {
			buf_str(v->out, i ? ", " : "");
			pair_words(v, &pairs.data[i]);
		}
		if (pairs.len > LINE_PAIRS)
			buf_printf(v->out, ", %zu more", pairs.len - LINE_PAIRS);
		end_line(v);
	}
	vec_release(&pairs);
	return rc;
}

/* ---- one screen ---- */

static int facts(struct heap_text *v)
{
	int rc;

	heap_headline(v->p, v->t, v->out);
	v->lines++;
	range_line(v);
	sums_lines(v);
	v->lines += heap_wasted_line(v->h, v->t, v->out);
	mapped_line(v);
	picture_line(v);
	rc = threads_line(v);
	rc = rc ? rc : pairs_line(v);
	missing_lines(v);
	return rc ? rc : growth_lines(v);
}

static int screen(struct heap_text *v)
{
	size_t rows = v->t->rows ? v->t->rows - 1 : 60, limit;
	int rc = facts(v);

	/* a blank line, the title, that there is more, and of what; two lines each */
	limit = rows > v->lines + 4 ? (rows - v->lines - 4) / 2 : 0;
	if (limit < LEAST_SPOTS)
		limit = LEAST_SPOTS;
	return rc ? rc : table(v, v->o->top ? v->o->top : limit);
}

static void release(struct heap_text *v)
{
	heap_spots_release(&v->spots);
	vec_release(&v->chain);
	vec_release(&v->rows);
	heap_crowds_release(&v->crowds);
	free(v->line);
}

static int with(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err,
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
	return with(p, o, out, err, screen);
}

/* ---- everything ---- */

/* Buckets that have something, with a bar. */
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
	title(v, words);
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

static void histograms(struct heap_text *v, const uint32_t *sites, size_t count)
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
	int rc = threads_sorted(v, &list);

	if (!rc && list.len) {
		buf_char(v->out, '\n');
		title(v, "Threads\n");
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
		who(v, t->thread);
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
		title(v, "Allocated by one thread, freed by another\n");
	}
	for (size_t i = 0; i < pairs.len && !rc; i++) {
		buf_str(v->out, "  ");
		pair_words(v, &pairs.data[i]);
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
			title(v, "Blocks that realloc made larger: reserve what they will need\n");
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
	int rc = facts(v);

	vec_each(&v->h->processes, process) {
		buf_printf(v->out, "  pid %u ", process->pid);
		words_text(v->out, process->name);
		if (process->allocator) {
			buf_str(v->out, ", allocator of ");
			words_text(v->out, process->allocator);
		}
		buf_str(v->out, process->how == HEAP_LAUNCHED ? ", from its start\n" : ", attached: what it had before is not known\n");
	}
	rc = rc ? rc : table(v, v->o->top ? v->o->top : v->spots.spots.len);
	histograms(v, NULL, 0);
	heap_class_table(v->h, v->t, v->out);
	rc = rc ? rc : all_threads(v);
	rc = rc ? rc : all_pairs(v);
	realloc_lines(v);
	return rc;
}

int heap_everything(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	return with(p, o, out, err, everything);
}

/* ---- one site ---- */

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
	first_cell(v, &row->sum);
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
	title(v, "Freed by other threads\n");
	for (size_t i = 0; i < v->rows.len && i < MOST_FREERS; i++) {
		const struct heap_row *r = &v->rows.data[i];

		heap_bytes_cell(v->out, 12, r->sum.number[HEAP_FREED_BYTES]);
		heap_count_cell(v->out, 12, r->sum.number[HEAP_FREED]);
		buf_str(v->out, "  ");
		who(v, r->thread);
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
	double cells[LINE_CELLS];
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
	heap_line_cells(v->h, v->line, cells, LINE_CELLS);
	if (spot->growth.trend != HEAP_TREND_UNKNOWN || v->h->moments.len > 2) {
		buf_str(v->out, "  ");
		heap_spark(v->out, v->t, cells, LINE_CELLS);
		buf_char(v->out, '\n');
	}
	histograms(v, sites, spot->count);
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
	return with(p, o, out, err, details);
}
