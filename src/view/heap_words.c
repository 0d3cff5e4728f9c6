/* SPDX-License-Identifier: BSD-2-Clause */
/* Numbers of allocations in words, and small pictures of them. */
#include "view/heap_priv.h"

#include <math.h>
#include <string.h>

#include "base/clock.h"

#define MOST_BYTES 9e18

void heap_bytes(struct buf *out, double bytes)
{
	if (bytes < 0)
		buf_char(out, '-');
	words_bytes(out, (uint64_t)round(fmin(fabs(bytes), MOST_BYTES)));
}

void heap_count(struct buf *out, double count)
{
	if (count < 0)
		buf_char(out, '-');
	words_count(out, (uint64_t)round(fmin(fabs(count), MOST_BYTES)));
}

/* What `say` says, to the right of so many columns. */
static void cell(struct buf *out, size_t columns, void (*say)(struct buf *out, double value), double value)
{
	struct buf words = {0};

	say(&words, value);
	out->failed |= words.failed;
	for (size_t i = words.len; i < columns; i++)
		buf_char(out, ' ');
	buf_add(out, words.data ? words.data : "", words.len);
	buf_release(&words);
}

void heap_bytes_cell(struct buf *out, size_t columns, double bytes)
{
	if (round(bytes) == 0)
		buf_printf(out, "%*s", (int)columns, "-");
	else
		cell(out, columns, heap_bytes, bytes);
}

void heap_count_cell(struct buf *out, size_t columns, double count)
{
	if (round(count) == 0)
		buf_printf(out, "%*s", (int)columns, "-");
	else
		cell(out, columns, heap_count, count);
}

void heap_range(struct buf *out, struct heap_interval i, bool bytes)
{
	if (bytes) {
		heap_bytes(out, floor(i.low));
		buf_str(out, " to ");
		heap_bytes(out, ceil(i.high));
	} else {
		heap_count(out, floor(i.low));
		buf_str(out, " to ");
		heap_count(out, ceil(i.high));
	}
}

/* By the second, the minute or the hour, so that it is a number one can think of. */
void heap_rate(struct buf *out, const struct heap_growth *g, bool brief)
{
	double per = fabs(g->rate) >= 1 << 20 ? 1 : fabs(g->rate) >= 1024 ? 60 : 3600;
	const char *unit = per == 1 ? "a second" : per == 60 ? "a minute" : "an hour";
	struct buf rate = {0}, low = {0}, high = {0};

	heap_bytes(&rate, g->rate * per);
	heap_bytes(&low, g->low * per);
	heap_bytes(&high, g->high * per);
	out->failed |= rate.failed || low.failed || high.failed;
	if (!out->failed) {
		buf_printf(out, "%s %s", rate.data, unit);
		if (!brief && (strcmp(low.data, rate.data) || strcmp(high.data, rate.data)))
			buf_printf(out, " (%s to %s)", low.data, high.data);
	}
	buf_release(&rate);
	buf_release(&low);
	buf_release(&high);
}

void heap_spark(struct buf *out, const struct term *t, const double *values, size_t count)
{
	static const char *const blocks[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
	static const char plain[] = "_.-=+*#@";
	double most = 0;

	for (size_t i = 0; i < count; i++)
		most = fmax(most, values[i]);
	for (size_t i = 0; i < count; i++) {
		int level = most > 0 ? (int)(values[i] / most * 8) : 0;

		if (values[i] <= 0)
			buf_char(out, ' ');
		else if (t->unicode)
			buf_str(out, blocks[level > 7 ? 7 : level]);
		else
			buf_char(out, plain[level > 7 ? 7 : level]);
	}
}

/* The largest of each stretch of time, or what it was at its beginning. */
static void spread(const struct profile_heap *h, const uint64_t *times, size_t stride, const double *values, size_t count,
	double *ret, size_t cells)
{
	uint64_t length = h->to_ns > h->from_ns ? h->to_ns - h->from_ns : 1;
	const char *at_time = (const char *)times, *at_value = (const char *)values;
	double last = 0;
	size_t i = 0;

	for (size_t c = 0; c < cells; c++) {
		uint64_t end = h->from_ns + (uint64_t)((double)length * (double)(c + 1) / (double)cells);

		ret[c] = last;
		for (; i < count; i++) {
			uint64_t time = *(const uint64_t *)(const void *)(at_time + i * stride);

			if (time > end)
				break;
			last = *(const double *)(const void *)(at_value + i * (stride == sizeof(uint64_t) ? sizeof(double) : stride));
			if (time >= h->from_ns)
				ret[c] = fmax(ret[c], last);
			else
				ret[c] = last;
		}
	}
}

void heap_total_cells(const struct profile_heap *h, double *ret, size_t cells)
{
	if (h->totals.len)
		spread(h, &h->totals.data->time_ns, sizeof(*h->totals.data), &h->totals.data->live_bytes, h->totals.len, ret, cells);
	else
		memset(ret, 0, cells * sizeof(*ret));
}

void heap_line_cells(const struct profile_heap *h, const double *line, double *ret, size_t cells)
{
	spread(h, h->moments.data, sizeof(uint64_t), line, h->moments.len, ret, cells);
}

/* " (server.c:70)", " in libfoo.so" */
static void spot_place(const struct profile *p, const struct heap_spot *spot, struct buf *out)
{
	const struct profile_function *f = &p->functions.data[spot->function];
	const char *file = spot->file ? strrchr(spot->file, '/') : NULL;

	if (!spot->file) {
		if (!f->unresolved && *module_name(p, f)) {
			buf_str(out, " in ");
			words_text(out, module_name(p, f));
		}
		return;
	}
	buf_str(out, " (");
	words_text(out, file ? file + 1 : spot->file);
	if (spot->line)
		buf_printf(out, ":%u", spot->line);
	buf_char(out, ')');
}

#define LEAST_NAME 16u

void heap_spot_name(const struct profile *p, const struct heap_spot *spot, size_t columns, bool unicode, struct buf *out)
{
	struct buf place = {0};
	size_t used;

	if (spot->function == PROFILE_NONE) {
		buf_str(out, "[no stack]");
		return;
	}
	spot_place(p, spot, &place);
	if (spot->pool != PROFILE_NONE && spot->pool != spot->function) {
		buf_char(&place, ' ');
		words_text(&place, p->functions.data[spot->pool].name);
	}
	out->failed |= place.failed;
	used = place.data ? term_width(place.data) : 0;
	name_fit(out, p->functions.data[spot->function].name,
		!columns ? 0 : columns > used + LEAST_NAME ? columns - used : LEAST_NAME, unicode);
	if (place.data)
		buf_add(out, place.data, place.len);
	buf_release(&place);
}

void heap_thread_name(const struct profile *p, uint32_t thread, struct buf *out)
{
	if (thread == PROFILE_NONE) {
		buf_str(out, "a thread that is left out");
		return;
	}
	words_text(out, p->threads.data[thread].name);
	if (p->threads.data[thread].tid)
		buf_printf(out, " %u", p->threads.data[thread].tid);
}

/* "64 bytes", "4.0 KiB" of bucket i, its least */
void heap_bucket_name(unsigned bucket, bool time, struct buf *out)
{
	double least = bucket ? ldexp(1, (int)bucket - 1) : 0;

	if (time)
		words_duration(out, (uint64_t)(least * NS_PER_US));
	else
		heap_bytes(out, least);
}

/* ---- what a recording is of ---- */

static void precision_words(const struct profile_heap *h, struct buf *out)
{
	double rate = 0;

	vec_each(&h->processes, process)
		if (process->precision == HEAP_CALLS)
			rate = (double)process->rate;
	if (!h->sampled) {
		buf_str(out, "every allocation");
	} else if (h->least_rate > 0) {
		buf_str(out, "sampled, one in ");
		heap_bytes(out, h->least_rate);
	} else {
		buf_str(out, "sampled, one call in ");
		heap_count(out, rate);
	}
	if (h->processes.len > 1)
		buf_printf(out, " of %zu processes", h->processes.len);
}

void heap_headline(const struct profile *p, const struct term *t, struct buf *out)
{
	const char *command = profile_meta(p, "command"), *dot = t->unicode ? " · " : " - ";
	struct buf much = {0};
	size_t columns = 0;

	buf_str(&much, dot);
	words_duration(&much, p->end_ns - p->start_ns);
	buf_str(&much, dot);
	precision_words(p->heap, &much);
	out->failed |= much.failed;
	if (t->columns && much.data)
		columns = t->columns > term_width(much.data) + 20 ? t->columns - term_width(much.data) : 20;
	paint_on(out, t, PAINT_TITLE);
	words_command(out, command ? command : p->heap->processes.len ? p->heap->processes.data[0].name : "nothing", columns,
		t->unicode);
	paint_off(out, t, PAINT_TITLE);
	buf_add(out, much.data ? much.data : "", much.len);
	buf_char(out, '\n');
	buf_release(&much);
}

/* What the weights of a picture are. */
void heap_weight_line(const struct profile *p, struct buf *out)
{
	static const char *const words[HEAP_ORDERS] = {
		[HEAP_BY_LIVE] = "live at the end",
		[HEAP_BY_LEAKED] = "leaked",
		[HEAP_BY_GROWTH] = "grown",
		[HEAP_BY_PEAK] = "live at the peak",
		[HEAP_BY_TOTAL] = "allocated in all",
		[HEAP_BY_TEMPORARY] = "allocated and freed at once",
		[HEAP_BY_CROSS] = "freed by other threads",
		[HEAP_BY_COUNT] = "blocks live at the end",
		[HEAP_BY_WASTED] = "given above what was asked for, live at the end",
	};

	if (p->heap->weighed == HEAP_BY_COUNT)
		words_count(out, p->total_weight);
	else
		words_bytes(out, p->total_weight);
	buf_printf(out, " %s, by who asked for it\n", words[p->heap->weighed]);
}
