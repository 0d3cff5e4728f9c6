/* SPDX-License-Identifier: BSD-2-Clause */
/* The "heap" of a report's JSON: docs/JSON.md. */
#include "view/heap_priv.h"

#include <math.h>
#include <stdlib.h>

#include "base/cleanup.h"

#define MOST_STACKS 8u  /* of a site */
#define MOST_LINKS 200u /* of a stack: frames beside the outermost */
#define MOST_FREERS 8u
#define LINE_POINTS 60u

/* `"key":` with a comma before it unless it opens the object. */
static void key(struct buf *out, const char *name, bool first)
{
	if (!first)
		buf_char(out, ',');
	buf_json(out, name);
	buf_char(out, ':');
}

/* Estimates are rounded: bytes and blocks come whole. */
static void whole(struct buf *out, const char *name, double value, bool first)
{
	key(out, name, first);
	buf_printf(out, "%.0f", round(value) + 0.0);
}

static void text(struct buf *out, const char *name, const char *value, bool first)
{
	if (!value)
		return;
	key(out, name, first);
	buf_json(out, value);
}

static void boolean(struct buf *out, const char *name, bool value)
{
	key(out, name, false);
	buf_str(out, value ? "true" : "false");
}

static void interval(struct buf *out, const char *name, struct heap_interval i)
{
	key(out, name, false);
	buf_printf(out, "[%.0f,%.0f]", floor(i.low), ceil(i.high));
}

static void open_item(struct buf *out, bool first)
{
	buf_str(out, first ? "\n  {" : ",\n  {");
}

/* ---- sums ---- */

static void sum_keys(const struct profile_heap *h, const struct heap_sum *s, struct buf *out)
{
	const double *n = s->number;

	whole(out, "live_bytes", s->live_bytes, false);
	whole(out, "live_count", s->live, false);
	if (!h->range) {
		whole(out, "leaked_bytes", s->leaked_bytes, false);
		whole(out, "leaked_count", s->leaked, false);
	} else {
		whole(out, "before_bytes", s->before_bytes, false);
		whole(out, "before_count", s->before, false);
		whole(out, "grown_bytes", s->live_bytes - s->before_bytes, false);
	}
	if (h->classes.len)
		whole(out, "wasted_bytes", s->wasted_bytes, false);
	whole(out, "total_bytes", n[HEAP_ALLOCATED_BYTES], false);
	whole(out, "total_count", n[HEAP_ALLOCATED], false);
	whole(out, "temporary_count", n[HEAP_TEMPORARY], false);
	whole(out, "temporary_bytes", n[HEAP_TEMPORARY_BYTES], false);
	whole(out, "cross_thread_frees", n[HEAP_CROSS_FREED], false);
	whole(out, "cross_thread_bytes", n[HEAP_CROSS_FREED_BYTES], false);
	whole(out, "realloc_count", n[HEAP_REALLOCATED], false);
	whole(out, "realloc_moved", n[HEAP_MOVED], false);
	whole(out, "realloc_old_bytes", n[HEAP_REALLOCATED_BYTES], false);
}

static void interval_keys(const struct profile_heap *h, const struct heap_sum *s, double peak, double peak_variance,
	struct buf *out)
{
	const double *v = s->variance;
	double bytes = heap_weight(h, s, true), count = heap_weight(h, s, false);

	interval(out, "ci95", heap_interval(s->live_bytes, v[HEAP_VAR_LIVE_BYTES], bytes));
	interval(out, "ci95_count", heap_interval(s->live, v[HEAP_VAR_LIVE], count));
	interval(out, "ci95_total", heap_interval(s->number[HEAP_ALLOCATED_BYTES], v[HEAP_VAR_ALLOCATED_BYTES], bytes));
	interval(out, "ci95_total_count",
		heap_interval(s->number[HEAP_ALLOCATED], v[HEAP_VAR_ALLOCATED], count));
	interval(out, "ci95_peak", heap_interval(peak, peak_variance, bytes));
}

/* ---- one site ---- */

static void path_array(const struct profile *p, uint32_t stack, bool first, struct buf *out)
{
	uint32_t levels[MOST_LINKS];
	size_t count = profile_stack_levels(p, stack, levels, MOST_LINKS);

	key(out, "stack", first);
	buf_char(out, '[');
	for (size_t i = 0; i < count && i < MOST_LINKS; i++) {
		if (i)
			buf_char(out, ',');
		buf_json(out, p->functions.data[p->levels.data[levels[i]].function].name);
	}
	buf_char(out, ']');
	if (count > MOST_LINKS)
		boolean(out, "cut", true);
}

static void stack_array(const struct profile *p, const struct heap_rows *rows, struct buf *out)
{
	key(out, "stacks", false);
	buf_char(out, '[');
	for (size_t i = 0; i < rows->len && i < MOST_STACKS; i++) {
		const struct heap_row *r = &rows->data[i];

		buf_str(out, i ? ",\n    {" : "\n    {");
		path_array(p, r->stack, true, out);
		whole(out, "live_bytes", r->sum.live_bytes, false);
		whole(out, "live_count", r->sum.live, false);
		whole(out, "peak_bytes", r->sum.number[HEAP_PEAK_BYTES], false);
		whole(out, "total_bytes", r->sum.number[HEAP_ALLOCATED_BYTES], false);
		whole(out, "total_count", r->sum.number[HEAP_ALLOCATED], false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
	whole(out, "stack_count", (double)rows->len, false);
}

static void thread_keys(const struct profile *p, uint32_t thread, struct buf *out)
{
	const struct profile_thread *t = &p->threads.data[thread];

	whole(out, "pid", t->pid, true);
	whole(out, "tid", t->tid, false);
	text(out, "name", t->name, false);
}

static void site_threads(const struct profile *p, const struct heap_rows *rows, struct buf *out)
{
	key(out, "threads", false);
	buf_char(out, '[');
	for (size_t i = 0; i < rows->len; i++) {
		buf_str(out, i ? ",{" : "{");
		thread_keys(p, rows->data[i].thread, out);
		whole(out, "live_bytes", rows->data[i].sum.live_bytes, false);
		whole(out, "total_bytes", rows->data[i].sum.number[HEAP_ALLOCATED_BYTES], false);
		whole(out, "total_count", rows->data[i].sum.number[HEAP_ALLOCATED], false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

static void freer_array(const struct profile *p, const struct heap_rows *rows, struct buf *out)
{
	if (!rows->len)
		return;
	key(out, "freed_by", false);
	buf_char(out, '[');
	for (size_t i = 0; i < rows->len && i < MOST_FREERS; i++) {
		buf_str(out, i ? ",{" : "{");
		if (rows->data[i].thread == PROFILE_NONE)
			text(out, "name", "", true);
		else
			thread_keys(p, rows->data[i].thread, out);
		whole(out, "count", rows->data[i].sum.number[HEAP_FREED], false);
		whole(out, "bytes", rows->data[i].sum.number[HEAP_FREED_BYTES], false);
		if (rows->data[i].stack != PROFILE_NONE)
			path_array(p, rows->data[i].stack, false, out);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

/* [[least size, count]...] of the buckets that have some. */
static void shape(const struct profile *p, const uint32_t *sites, size_t count, enum heap_shape kind, const char *name,
	struct buf *out)
{
	double sum[HEAP_BUCKETS];
	bool any = false;

	heap_shape_sum(p, sites, count, kind, sum);
	for (unsigned i = 0; i < HEAP_BUCKETS; i++) {
		if (sum[i] <= 0)
			continue;
		if (!any)
			key(out, name, false);
		buf_printf(out, "%s[%.0f,%.0f]", any ? "," : "[", i ? ldexp(1, (int)i - 1) : 0.0, round(sum[i]));
		any = true;
	}
	if (any)
		buf_char(out, ']');
}

static void shapes(const struct profile *p, const uint32_t *sites, size_t count, struct buf *out)
{
	shape(p, sites, count, HEAP_SIZES, "sizes", out);
	shape(p, sites, count, HEAP_LIVE_SIZES, "live_sizes", out);
	shape(p, sites, count, HEAP_LIFETIMES, "lifetimes_us", out);
	shape(p, sites, count, HEAP_AGES, "ages_us", out);
	shape(p, sites, count, HEAP_LIVE_BYTES_BY_AGE, "live_bytes_by_age_us", out);
	shape(p, sites, count, HEAP_USABLE, "wasted_bytes_by_size", out);
}

static void growth(const struct heap_growth *g, struct buf *out)
{
	key(out, "growth", false);
	buf_char(out, '{');
	text(out, "trend", heap_trend_name(g->trend), true);
	if (g->trend != HEAP_TREND_UNKNOWN) {
		key(out, "bytes_per_s", false);
		buf_printf(out, "%.3f", g->rate);
		key(out, "ci95", false);
		buf_printf(out, "[%.3f,%.3f]", g->low, g->high);
		key(out, "since_s", false);
		buf_printf(out, "%.3f", g->since_s);
	}
	buf_char(out, '}');
}

static void site_names(const struct profile *p, const struct heap_spot *spot, struct buf *out)
{
	static const char *const kinds[] = {[HEAP_MALLOC] = "malloc", [HEAP_POOL] = "pool", [HEAP_MAPPED] = "mapped"};
	const struct profile_function *f = spot->function == PROFILE_NONE ? NULL : &p->functions.data[spot->function];

	text(out, "name", f ? f->name : "[no stack]", true);
	text(out, "module", f ? module_name(p, f) : "", false);
	text(out, "kind", kinds[heap_kind_of(p, spot->pool)], false);
	if (spot->pool != PROFILE_NONE)
		text(out, "allocator", p->functions.data[spot->pool].name, false);
	text(out, "file", spot->file, false);
	whole(out, "line", spot->line, false);
}

static int site(const struct profile *p, const struct heap_spots *spots, const struct heap_spot *spot, struct buf *out)
{
	const struct profile_heap *h = p->heap;
	const uint32_t *sites = spots->order.data + spot->first;
	double freed = spot->sum.number[HEAP_FREED];
	struct heap_rows rows = {0};
	int rc;

	site_names(p, spot, out);
	sum_keys(h, &spot->sum, out);
	whole(out, "peak_bytes", spot->sum.number[HEAP_PEAK_BYTES], false);
	whole(out, "peak_count", spot->sum.number[HEAP_PEAK], false);
	interval_keys(h, &spot->sum, spot->sum.number[HEAP_PEAK_BYTES], spot->sum.variance[HEAP_VAR_PEAK_BYTES], out);
	if (freed > 0)
		whole(out, "mean_lifetime_ns", spot->sum.number[HEAP_LIFETIME_NS] / freed, false);
	whole(out, "samples", (double)spot->sum.samples, false);
	if (!h->range || spot->growth.trend != HEAP_TREND_UNKNOWN)
		growth(&spot->growth, out);
	shapes(p, sites, spot->count, out);
	rc = heap_rows_of_threads(p, sites, spot->count, &rows);
	site_threads(p, &rows, out);
	rc = rc ? rc : heap_rows_of_stacks(p, sites, spot->count, HEAP_BY_LIVE, &rows);
	stack_array(p, &rows, out);
	rc = rc ? rc : heap_rows_of_freers(p, spots, spot, NULL, &rows);
	freer_array(p, &rows, out);
	vec_release(&rows);
	return rc;
}

/* ---- the whole ---- */

static void process_array(const struct profile_heap *h, struct buf *out)
{
	static const char *const precisions[] = {"", "exact", "sampled", "calls"};
	static const char *const hows[] = {"", "launched", "attached", "probes", "told"};

	key(out, "processes", false);
	buf_char(out, '[');
	for (size_t i = 0; i < h->processes.len; i++) {
		const struct heap_process *process = &h->processes.data[i];

		open_item(out, !i);
		whole(out, "pid", process->pid, true);
		text(out, "name", process->name, false);
		text(out, "precision", process->precision <= HEAP_CALLS ? precisions[process->precision] : "", false);
		whole(out, "rate", (double)process->rate, false);
		text(out, "how", process->how <= HEAP_TOLD ? hows[process->how] : "", false);
		text(out, "allocator", process->allocator, false);
		text(out, "uncovered", process->uncovered, false);
		boolean(out, "maps", process->maps);
		boolean(out, "ended", process->ended);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

static void thread_array(const struct profile *p, struct buf *out)
{
	bool first = true;

	key(out, "threads", false);
	buf_char(out, '[');
	vec_each(&p->heap->threads, t) {
		if (t->thread == PROFILE_NONE)
			continue;
		open_item(out, first);
		first = false;
		thread_keys(p, t->thread, out);
		whole(out, "total_count", t->allocated, false);
		whole(out, "total_bytes", t->allocated_bytes, false);
		whole(out, "freed_count", t->freed, false);
		whole(out, "freed_bytes", t->freed_bytes, false);
		whole(out, "freed_unknown", t->freed_unknown, false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

static void class_array(const struct profile_heap *h, struct buf *out)
{
	if (!h->classes.len)
		return;
	key(out, "size_classes", false);
	buf_char(out, '[');
	for (size_t i = 0; i < h->classes.len; i++) {
		const struct heap_class *c = &h->classes.data[i];
		double wasted = c->live_usable - c->live_bytes;

		open_item(out, !i);
		whole(out, "size", (double)c->usable, true);
		whole(out, "live_count", c->live, false);
		whole(out, "live_bytes", c->live_bytes, false);
		whole(out, "usable_bytes", c->live_usable, false);
		whole(out, "wasted_bytes", wasted, false);
		interval(out, "ci95_wasted", heap_interval(wasted, c->variance_wasted, 0));
		whole(out, "peak_count", c->peak, false);
		whole(out, "peak_bytes", c->peak_bytes, false);
		whole(out, "peak_usable_bytes", c->peak_usable, false);
		whole(out, "peak_wasted_bytes", c->peak_usable - c->peak_bytes, false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

/* At most LINE_POINTS of the totals, the largest of each stretch of time. */
static void timeline(const struct profile *p, struct buf *out)
{
	const struct profile_heap *h = p->heap;
	uint64_t length = h->to_ns - h->from_ns;
	size_t i = 0, shown = 0;

	key(out, "timeline", false);
	buf_char(out, '[');
	while (i < h->totals.len && h->totals.data[i].time_ns < h->from_ns)
		i++;
	for (unsigned part = 0; part < LINE_POINTS; part++) {
		uint64_t end = h->from_ns + (uint64_t)((double)length * (part + 1) / LINE_POINTS);
		const struct heap_total *best = NULL;

		for (; i < h->totals.len && h->totals.data[i].time_ns <= end; i++)
			if (!best || h->totals.data[i].live_bytes > best->live_bytes)
				best = &h->totals.data[i];
		if (!best)
			continue;
		buf_str(out, shown++ ? ",\n  {" : "\n  {");
		whole(out, "ns", (double)(best->time_ns - p->start_ns), true);
		whole(out, "live_bytes", best->live_bytes, false);
		whole(out, "live_count", best->live, false);
		whole(out, "total_bytes", best->allocated_bytes, false);
		if (best->rss_bytes > 0)
			whole(out, "rss_bytes", best->rss_bytes, false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
}

static int flow_array(const struct profile *p, struct buf *out)
{
	struct heap_pairs pairs = {0};
	int rc = heap_pairs_build(p, NULL, &pairs);

	key(out, "flows", false);
	buf_char(out, '[');
	for (size_t i = 0; i < pairs.len; i++) {
		const struct heap_pair *pair = &pairs.data[i];

		open_item(out, !i);
		key(out, "from", true);
		buf_char(out, '{');
		thread_keys(p, pair->from, out);
		buf_str(out, "}");
		key(out, "freed_by", false);
		buf_char(out, '{');
		if (pair->to != PROFILE_NONE)
			thread_keys(p, pair->to, out);
		buf_char(out, '}');
		whole(out, "count", pair->count, false);
		whole(out, "bytes", pair->bytes, false);
		buf_char(out, '}');
	}
	buf_char(out, ']');
	vec_release(&pairs);
	return rc;
}

/* What programs have mapped themselves, which is in nothing else. */
static void mapped(const struct profile_heap *h, struct buf *out)
{
	key(out, "mapped", false);
	buf_char(out, '{');
	whole(out, "peak_bytes", h->mapped.number[HEAP_PEAK_BYTES], true);
	sum_keys(h, &h->mapped, out);
	buf_char(out, '}');
}

static void head(const struct profile *p, struct buf *out)
{
	const struct profile_heap *h = p->heap;

	whole(out, "from_ns", (double)(h->from_ns - p->start_ns), true);
	whole(out, "to_ns", (double)(h->to_ns - p->start_ns), false);
	boolean(out, "sampled", h->sampled);
	sum_keys(h, &h->sum, out);
	whole(out, "peak_bytes", h->peak_bytes, false);
	if (h->peak_ns >= p->start_ns)
		whole(out, "peak_ns", (double)(h->peak_ns - p->start_ns), false);
	interval_keys(h, &h->sum, h->peak_bytes, h->peak_variance, out);
	if (h->maps)
		mapped(h, out);
	buf_char(out, '\n');
}

static int site_array(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	struct heap_spots spots = {0};
	int rc = heap_spots_build(p, o->heap_order, &spots, err);

	if (rc)
		return rc;
	key(out, "sites", false);
	buf_char(out, '[');
	for (size_t i = 0; i < spots.spots.len && !rc && (!o->top || i < o->top); i++) {
		open_item(out, !i);
		rc = site(p, &spots, &spots.spots.data[i], out);
		buf_char(out, '}');
	}
	buf_char(out, ']');
	heap_spots_release(&spots);
	return rc ? err_nomem(err) : 0;
}

static void wrapper_array(const struct profile *p, struct buf *out)
{
	bool first = true;

	key(out, "wrappers", false);
	buf_char(out, '[');
	for (size_t i = 0; p->heap->wrappers && i < p->functions.len; i++) {
		if (!p->heap->wrappers[i])
			continue;
		buf_str(out, first ? "" : ",");
		buf_json(out, p->functions.data[i].name);
		first = false;
	}
	buf_char(out, ']');
}

int heap_json(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err)
{
	int rc;

	buf_str(out, ",\n\"heap\":{");
	head(p, out);
	process_array(p->heap, out);
	thread_array(p, out);
	timeline(p, out);
	class_array(p->heap, out);
	shapes(p, NULL, 0, out);
	rc = flow_array(p, out);
	wrapper_array(p, out);
	buf_char(out, '\n');
	rc = rc ? err_nomem(err) : site_array(p, o, out, err);
	buf_char(out, '}');
	return rc;
}
