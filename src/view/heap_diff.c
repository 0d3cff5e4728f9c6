/* SPDX-License-Identifier: BSD-2-Clause */
/* Two recordings of allocations, and what is different. */
#include "view/heap_priv.h"

#include <math.h>
#include <string.h>

#include "profile/heap_diff.h"

#define FIXED_COLUMNS 46u
#define MOST_CHANGES 20u

static void change_cell(struct buf *out, const struct term *t, enum heap_order order, double change)
{
	enum paint how = change > 0 ? PAINT_BAD : PAINT_GOOD;
	struct buf words = {0};

	if (change > 0)
		buf_char(&words, '+');
	if (order == HEAP_BY_COUNT)
		heap_count(&words, change);
	else
		heap_bytes(&words, change);
	for (size_t i = words.len; i < 12; i++)
		buf_char(out, ' ');
	out->failed |= words.failed;
	if (words.data)
		paint(out, t, how, words.data);
	buf_release(&words);
}

static void number_cell(struct buf *out, enum heap_order order, double number)
{
	if (order == HEAP_BY_COUNT)
		heap_count_cell(out, 12, number);
	else
		heap_bytes_cell(out, 12, number);
}

static void change_name(const struct heap_change *c, const struct term *t, struct buf *out)
{
	size_t columns = t->columns > FIXED_COLUMNS + 20 ? t->columns - FIXED_COLUMNS : t->columns ? 20 : 0;
	const char *slash = c->file ? strrchr(c->file, '/') : NULL;
	struct buf words = {0};

	name_fit(&words, c->name, 0, t->unicode);
	if (c->file && c->line) {
		buf_str(&words, " (");
		words_text(&words, slash ? slash + 1 : c->file);
		buf_printf(&words, ":%u)", c->line);
	} else if (*c->module) {
		buf_str(&words, " in ");
		words_text(&words, c->module);
	}
	if (c->allocator) {
		buf_char(&words, ' ');
		words_text(&words, c->allocator);
	}
	out->failed |= words.failed;
	if (words.data)
		buf_add(out, words.data, columns ? term_fit(words.data, columns) : words.len);
	buf_release(&words);
}

static void change_lines(const struct profile *const p[2], const struct view_options *o, const struct heap_change *c,
	struct buf *out)
{
	enum heap_order order = o->heap_order;
	struct heap_interval i = heap_difference_interval(p, c->sum, order);

	change_cell(out, &o->term, order, heap_difference(c->sum, order));
	number_cell(out, order, heap_measure(&c->sum[0], order));
	number_cell(out, order, heap_measure(&c->sum[1], order));
	buf_str(out, c->sure || (!p[0]->heap->sampled && !p[1]->heap->sampled) ? "    " : "  ? ");
	buf_str(out, "  ");
	change_name(c, &o->term, out);
	buf_char(out, '\n');
	if (!p[0]->heap->sampled && !p[1]->heap->sampled)
		return;
	buf_str(out, "              ");
	paint_on(out, &o->term, PAINT_DIM);
	heap_range(out, i, order != HEAP_BY_COUNT);
	paint_off(out, &o->term, PAINT_DIM);
	buf_char(out, '\n');
}

static void sums_line(const struct profile *const p[2], const struct term *t, struct buf *out)
{
	const struct heap_sum *a = &p[0]->heap->sum, *b = &p[1]->heap->sum;

	paint(out, t, PAINT_TITLE, "Live  ");
	heap_bytes(out, a->live_bytes);
	buf_str(out, t->unicode ? " → " : " -> ");
	heap_bytes(out, b->live_bytes);
	buf_str(out, t->unicode ? " · " : " - ");
	buf_str(out, "peak ");
	heap_bytes(out, p[0]->heap->peak_bytes);
	buf_str(out, t->unicode ? " → " : " -> ");
	heap_bytes(out, p[1]->heap->peak_bytes);
	buf_str(out, t->unicode ? " · " : " - ");
	buf_str(out, "asked for ");
	heap_bytes(out, a->number[HEAP_ALLOCATED_BYTES]);
	buf_str(out, t->unicode ? " → " : " -> ");
	heap_bytes(out, b->number[HEAP_ALLOCATED_BYTES]);
	buf_str(out, "\n\n");
}

int view_heap_diff(const struct profile *const p[2], const struct view_options *o, struct buf *out, struct err *err)
{
	struct heap_diff d = {0};
	size_t shown = 0, more = 0, most = o->top ? o->top : MOST_CHANGES;
	int rc = heap_diff_build(p, o->heap_order, &d, err);

	if (rc)
		return rc;
	buf_str(out, "A: ");
	heap_headline(p[0], &o->term, out);
	buf_str(out, "B: ");
	heap_headline(p[1], &o->term, out);
	sums_line(p, &o->term, out);
	paint_on(out, &o->term, PAINT_TITLE);
	buf_printf(out, "%12s%12s%12s      %s by who asked for it\n", "change", "in A", "in B", heap_order_name(o->heap_order));
	paint_off(out, &o->term, PAINT_TITLE);
	vec_each(&d.changes, c) {
		if (fabs(heap_difference(c->sum, o->heap_order)) < 0.5)
			continue;
		if (shown >= most) {
			more++;
			continue;
		}
		shown++;
		change_lines(p, o, c, out);
	}
	if (!shown)
		buf_str(out, "  nothing is different\n");
	if (more)
		buf_printf(out, "  and %zu more: -n %zu\n", more, shown + more);
	if (p[0]->heap->sampled || p[1]->heap->sampled)
		buf_str(out, "?: may be chance (95 % intervals below)\n");
	heap_diff_release(&d);
	return out->failed ? err_nomem(err) : 0;
}

/* ---- JSON ---- */

static void pair(struct buf *out, const char *name, double a, double b)
{
	buf_printf(out, ",\"%s\":[%.0f,%.0f]", name, round(a) + 0.0, round(b) + 0.0);
}

static void sums(struct buf *out, const struct heap_sum sum[2])
{
	pair(out, "live_bytes", sum[0].live_bytes, sum[1].live_bytes);
	pair(out, "live_count", sum[0].live, sum[1].live);
	pair(out, "leaked_bytes", sum[0].leaked_bytes, sum[1].leaked_bytes);
	pair(out, "total_bytes", sum[0].number[HEAP_ALLOCATED_BYTES], sum[1].number[HEAP_ALLOCATED_BYTES]);
	pair(out, "total_count", sum[0].number[HEAP_ALLOCATED], sum[1].number[HEAP_ALLOCATED]);
	pair(out, "temporary_count", sum[0].number[HEAP_TEMPORARY], sum[1].number[HEAP_TEMPORARY]);
}

int view_heap_diff_json(const struct profile *const p[2], const struct view_options *o, struct buf *out, struct err *err)
{
	const struct heap_sum both[2] = {p[0]->heap->sum, p[1]->heap->sum};
	struct heap_diff d = {0};
	bool first = true;
	size_t shown = 0;
	int rc = heap_diff_build(p, o->heap_order, &d, err);

	if (rc)
		return rc;
	buf_printf(out, "{\"version\":1,\"sort\":\"%s\"", heap_order_name(o->heap_order));
	pair(out, "duration_ns", (double)(p[0]->end_ns - p[0]->start_ns), (double)(p[1]->end_ns - p[1]->start_ns));
	sums(out, both);
	pair(out, "peak_bytes", p[0]->heap->peak_bytes, p[1]->heap->peak_bytes);
	buf_str(out, ",\"changes\":[");
	vec_each(&d.changes, c) {
		struct heap_interval i = heap_difference_interval(p, c->sum, o->heap_order);

		if (o->top && shown++ >= o->top)
			break;
		buf_str(out, first ? "\n {\"name\":" : ",\n {\"name\":");
		first = false;
		buf_json(out, c->name);
		buf_str(out, ",\"module\":");
		buf_json(out, c->module);
		if (c->file) {
			buf_str(out, ",\"file\":");
			buf_json(out, c->file);
		}
		if (c->allocator) {
			buf_str(out, ",\"allocator\":");
			buf_json(out, c->allocator);
		}
		buf_printf(out, ",\"line\":%u,\"change\":%.0f,\"ci95\":[%.0f,%.0f],\"sure\":%s", c->line,
			round(heap_difference(c->sum, o->heap_order)) + 0.0, floor(i.low) + 0.0, ceil(i.high) + 0.0,
			c->sure ? "true" : "false");
		sums(out, c->sum);
		pair(out, "peak_bytes", c->sum[0].number[HEAP_PEAK_BYTES], c->sum[1].number[HEAP_PEAK_BYTES]);
		buf_char(out, '}');
	}
	buf_str(out, "]}\n");
	heap_diff_release(&d);
	return out->failed ? err_nomem(err) : 0;
}
