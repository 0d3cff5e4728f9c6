/* SPDX-License-Identifier: BSD-2-Clause */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "view/view_priv.h"

void words_count(struct buf *out, uint64_t n)
{
	char digits[24];
	int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);

	for (int i = 0; i < len; i++) {
		if (i && (len - i) % 3 == 0)
			buf_char(out, ',');
		buf_char(out, digits[i]);
	}
}

void words_duration(struct buf *out, uint64_t ns)
{
	double s = (double)ns / NS_PER_S;

	if (ns < NS_PER_MS)
		buf_printf(out, "%.0f us", (double)ns / NS_PER_US);
	else if (ns < NS_PER_S)
		buf_printf(out, "%.0f ms", (double)ns / NS_PER_MS);
	else if (ns < 10 * NS_PER_S)
		buf_printf(out, "%.2f s", s);
	else if (ns < 120 * NS_PER_S)
		buf_printf(out, "%.1f s", s);
	else if (ns < 7200 * NS_PER_S)
		buf_printf(out, "%.0f min %.0f s", (double)(ns / (60 * NS_PER_S)),
			(double)(ns / NS_PER_S % 60));
	else
		buf_printf(out, "%.1f h", s / 3600);
}

void words_bytes(struct buf *out, uint64_t bytes)
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
	double v = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		buf_printf(out, "%" PRIu64 " bytes", bytes);
		return;
	}
	for (; v >= 1024 && unit < 3; unit++)
		v /= 1024;
	buf_printf(out, v < 10 ? "%.1f %s" : "%.0f %s", v, units[unit]);
}

void words_percent(struct buf *out, double percent)
{
	buf_printf(out, "%5.1f%%", percent);
}

void words_share(struct buf *out, double percent)
{
	if (percent <= 0)
		buf_str(out, "0%");
	else if (percent >= 100)
		buf_str(out, "100%");
	else if (percent < 0.1)
		buf_str(out, "<0.1%");
	else if (percent > 99.9)
		buf_str(out, ">99.9%");
	else
		buf_printf(out, "%.1f%%", percent);
}

/* ECMA-48 "select graphic rendition", from the 16 colours that every theme adapts. */
static const char *const paints[] = {
	[PAINT_NONE] = "",
	[PAINT_TITLE] = "\x1b[1m",
	[PAINT_DIM] = "\x1b[2m",
	[PAINT_GOOD] = "\x1b[32m",
	[PAINT_WARN] = "\x1b[33m",
	[PAINT_BAD] = "\x1b[1;31m",
	[PAINT_NOTE] = "\x1b[36m",
};

void paint_on(struct buf *out, const struct term *t, enum paint how)
{
	if (t->colour)
		buf_str(out, paints[how]);
}

void paint_off(struct buf *out, const struct term *t, enum paint how)
{
	if (t->colour && how != PAINT_NONE)
		buf_str(out, "\x1b[0m");
}

void paint(struct buf *out, const struct term *t, enum paint how, const char *text)
{
	paint_on(out, t, how);
	buf_str(out, text);
	paint_off(out, t, how);
}

void paint_percent(struct buf *out, const struct term *t, double percent)
{
	enum paint how = percent >= 20   ? PAINT_BAD
			 : percent >= 5  ? PAINT_WARN
			 : percent < 0.5 ? PAINT_DIM
					 : PAINT_NONE;

	paint_on(out, t, how);
	words_percent(out, percent);
	paint_off(out, t, how);
}

void paint_state(struct buf *out, const struct term *t, enum thread_state state, double percent)
{
	bool starved = state == STATE_RUN_QUEUE || state == STATE_THROTTLED;
	enum paint how = starved && percent >= 20  ? PAINT_BAD
			 : starved && percent >= 5 ? PAINT_WARN
			 : percent < 0.5	   ? PAINT_DIM
						   : PAINT_NONE;

	paint_on(out, t, how);
	words_percent(out, percent);
	paint_off(out, t, how);
}

void words_wake(struct buf *out, const struct profile *p, const struct profile_wake *w)
{
	const struct profile_waker *who;

	if (w->kind == WAKER_INTERRUPT) {
		buf_str(out, "woken by a timer or a device");
	} else if (w->kind == WAKER_THREAD) {
		who = &p->wakers.data[w->waker];
		buf_str(out, "woken by ");
		words_text(out, who->name);
		buf_str(out, " (");
		words_text(out, who->process);
		buf_char(out, ')');
	} else {
		buf_str(out, w->asleep ? "not woken before the recording ended"
				       : "who woke it is not known");
	}
}

/* ---- command lines ---- */

#define MAX_TAIL_COLUMNS 24

/* The words without the directory of the first one. */
static const char *without_directory(const char *words)
{
	size_t first = strcspn(words, " ");
	const char *slash = memrchr(words, '/', first);

	return slash && slash + 1 < words + first ? slash + 1 : words;
}

/* " (pid 12)" at the end, which stays when the words before it are cut. */
static const char *tail_of(const char *words)
{
	const char *end = words + strlen(words), *tail = end;

	if (end == words || end[-1] != ')')
		return end;
	while (tail > words && *tail != '(')
		tail--;
	return tail > words && tail[-1] == ' ' && end - tail < MAX_TAIL_COLUMNS ? tail - 1 : end;
}

void words_command(struct buf *out, const char *words, size_t columns, bool unicode)
{
	if (columns && term_width(words) > columns)
		words = without_directory(words);
	if (!columns || term_width(words) <= columns) {
		buf_str(out, words);
		return;
	}

	const char *dots = unicode ? "…" : "..", *tail = tail_of(words);
	size_t kept = term_width(dots) + term_width(tail);
	size_t len = term_fit(words, columns > kept ? columns - kept : 1);

	buf_add(out, words, len < (size_t)(tail - words) ? len : (size_t)(tail - words));
	buf_str(out, dots);
	buf_str(out, tail);
}
