/* SPDX-License-Identifier: BSD-2-Clause */
#include "view/why_time_priv.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_CAUSES 8u
#define MOST_ROOTS 3u
#define MOST_ROWS 12u
#define MOST_LOCKS 6u

/* Shares below one part in so many are not worth a line. */
#define LEAST_PARTS 200u

static void share(struct buf *out, uint64_t part, uint64_t whole)
{
	double percent = percent_of(part, whole);

	buf_printf(out, percent > 0 && percent < 0.95 ? "%4.1f %%" : "%4.0f %%", percent);
}

/* ---- the focus ---- */

static bool is_worth(uint64_t ns, const struct over_thread *th)
{
	return ns && ns * LEAST_PARTS >= over_watched_ns(th);
}

static void in_function(const char *function, struct buf *out)
{
	if (!*function)
		return;
	buf_str(out, ", in ");
	words_text(out, function);
}

static void roots_lines(const struct over_thread *th, const struct over_cause *c, const struct term *t,
	struct buf *out)
{
	for (size_t i = 0; i < c->roots.len && i < MOST_ROOTS; i++) {
		const struct over_root *r = &c->roots.data[i];

		buf_str(out, "           ");
		share(out, (uint64_t)((double)over_cause_ns(th, c) * r->looks / c->looks),
			over_watched_ns(th));
		buf_str(out, "  ");
		paint_on(out, t, PAINT_TITLE);
		words_text(out, r->who);
		paint_off(out, t, PAINT_TITLE);
		buf_str(out, *r->who ? " " : "");
		words_text(out, r->doing);
		in_function(r->function, out);
		buf_char(out, '\n');
	}
	if (c->roots.len > MOST_ROOTS)
		buf_printf(out, "           and %zu more\n", c->roots.len - MOST_ROOTS);
}

static void cause_lines(const struct over_time *o, const struct over_thread *th,
	const struct over_cause *c, const struct term *t, struct buf *out)
{
	buf_str(out, "    ");
	share(out, over_cause_ns(th, c), over_watched_ns(th));
	buf_str(out, "  ");
	over_cause_words(o, c, out);
	if (c->lock != OVER_NO_LOCK && o->locks.data[c->lock].declared[0])
		buf_printf(out, " (%s)", o->locks.data[c->lock].declared);
	in_function(c->function, out);
	buf_char(out, '\n');
	if (c->class == OVER_BEHIND)
		roots_lines(th, c, t, out);
}

static void exact_line(uint64_t ns, const struct over_thread *th, const char *words, struct buf *out)
{
	if (!is_worth(ns, th))
		return;
	buf_str(out, "    ");
	share(out, ns, over_watched_ns(th));
	buf_printf(out, "  %s\n", words);
}

static void focus_block(const struct over_time *o, const struct term *t, struct buf *out)
{
	const struct over_thread *th = o->focus;
	size_t shown = 0;

	buf_str(out, "  ");
	paint(out, t, PAINT_TITLE, th->words);
	buf_char(out, '\n');
	exact_line(over_ran_ns(th), th, "ran", out);
	exact_line(over_ready_ns(th), th, "ready without a CPU", out);
	vec_each(&th->causes, c)
		if (is_worth(over_cause_ns(th, c), th) && shown++ < MOST_CAUSES)
			cause_lines(o, th, c, t, out);
	if (shown > MOST_CAUSES)
		buf_printf(out, "    and %zu waits more\n", shown - MOST_CAUSES);
	if (!th->blocked_looks)
		exact_line(over_blocked_ns(th), th, "off the CPU, too short for a look to see in what", out);
}

/* ---- the others ---- */

enum column {
	COLUMN_RAN,
	COLUMN_READY,
	COLUMN_CLASS, /* and those after it */
	COLUMN_COUNT = COLUMN_CLASS + OVER_CLASS_COUNT,
};

static const char *const column_names[COLUMN_COUNT] = {
	[COLUMN_RAN] = "ran",
	[COLUMN_READY] = "ready",
	[COLUMN_CLASS + OVER_BEHIND] = "behind",
	[COLUMN_CLASS + OVER_DEVICE] = "disk",
	[COLUMN_CLASS + OVER_STOPPED] = "stopped",
	[COLUMN_CLASS + OVER_IDLE] = "idle",
};

/* Threads that are alike. */
struct row {
	const struct over_thread *first;
	size_t count;
	uint64_t watched_ns, ns[COLUMN_COUNT];
};
VEC_TYPE(rows, struct row);

static struct row row_of(const struct over_thread *th)
{
	struct row r = {.first = th, .count = 1, .watched_ns = over_watched_ns(th)};

	r.ns[COLUMN_RAN] = over_ran_ns(th);
	r.ns[COLUMN_READY] = over_ready_ns(th);
	for (int i = 0; i < OVER_CLASS_COUNT; i++)
		r.ns[COLUMN_CLASS + i] = over_class_ns(th, (enum over_class)i);
	return r;
}

/* Without the number that tells the threads of a pool apart. */
static size_t stem(const char *name)
{
	size_t len = strlen(name);

	while (len && (isdigit((unsigned char)name[len - 1]) || strchr("-_:#./", name[len - 1])))
		len--;
	return len;
}

#define ALIKE_PERCENT 10.0

static bool are_alike(const struct row *a, const struct row *b)
{
	size_t len = stem(a->first->name);

	if (len != stem(b->first->name) || memcmp(a->first->name, b->first->name, len) != 0)
		return false;
	for (int i = 0; i < COLUMN_COUNT; i++) {
		double difference = percent_of(a->ns[i], a->watched_ns) - percent_of(b->ns[i], b->watched_ns);

		if (difference > ALIKE_PERCENT || difference < -ALIKE_PERCENT)
			return false;
	}
	return true;
}

static int add_row(struct rows *rows, const struct row *r, bool all)
{
	vec_each(rows, old) {
		if (all || !are_alike(old, r))
			continue;
		old->count++;
		old->watched_ns += r->watched_ns;
		for (int i = 0; i < COLUMN_COUNT; i++)
			old->ns[i] += r->ns[i];
		return 0;
	}
	return vec_push(rows, *r);
}

static void row_line(const struct row *r, const struct term *t, bool stopped, struct buf *out)
{
	size_t at;

	buf_printf(out, "  %4zu  ", r->count);
	at = out->len;
	words_text(out, r->first->words);
	buf_str(out, r->count > 1 ? " and others" : "");
	buf_printf(out, "%*s", (int)(out->len - at < 34 ? 34 - (out->len - at) : 1), "");
	for (int i = 0; i < COLUMN_COUNT; i++) {
		if (i == COLUMN_CLASS + OVER_STOPPED && !stopped)
			continue;
		buf_str(out, "  ");
		if (r->ns[i])
			share(out, r->ns[i], r->watched_ns);
		else
			buf_str(out, "     .");
	}
	if (r->first->ended) {
		paint_on(out, t, PAINT_DIM);
		buf_str(out, "  ended, after ");
		words_duration(out, r->watched_ns / r->count);
		paint_off(out, t, PAINT_DIM);
	}
	buf_char(out, '\n');
}

static void rows_block(const struct rows *rows, const struct term *t, bool all, struct buf *out)
{
	bool stopped = false;

	vec_each(rows, r)
		stopped |= r->ns[COLUMN_CLASS + OVER_STOPPED] > 0;
	if (!rows->len)
		return;
	buf_printf(out, "\nThe other threads%*s", 25, "");
	for (int i = 0; i < COLUMN_COUNT; i++)
		if (i != COLUMN_CLASS + OVER_STOPPED || stopped)
			buf_printf(out, " %7s", column_names[i]);
	buf_char(out, '\n');
	for (size_t i = 0; i < rows->len && (all || i < MOST_ROWS); i++)
		row_line(&rows->data[i], t, stopped, out);
	if (!all && rows->len > MOST_ROWS)
		buf_printf(out, "  and %zu kinds more: --all shows them\n", rows->len - MOST_ROWS);
}

static int threads_block(const struct over_time *o, const struct why_options *options, struct buf *out)
{
	struct rows rows = {0};
	int rc = 0;

	vec_each(&o->threads, it) {
		const struct over_thread *th = *it;
		struct row r = row_of(th);

		if (!rc && th->asked && th != o->focus && r.watched_ns)
			rc = add_row(&rows, &r, options->all);
	}
	if (!rc)
		rows_block(&rows, &options->term, options->all, out);
	vec_release(&rows);
	return rc;
}

/* ---- what was waited for ---- */

static void lock_lines(const struct over_time *o, const struct over_lock *l, const struct term *t,
	struct buf *out)
{
	buf_str(out, "  ");
	paint_on(out, t, PAINT_TITLE);
	over_lock_words(l, out);
	paint_off(out, t, PAINT_TITLE);
	if (l->declared[0])
		buf_printf(out, " (%s)", l->declared);
	buf_printf(out, ": %.1f threads waited on average, %" PRIu32 " at most",
		(double)l->waiters / (double)o->looks, l->most);
	if (over_handed_on(l))
		buf_printf(out, "; handed on %" PRIu64 " times a second", over_handed_on(l));
	buf_char(out, '\n');
	for (size_t i = 0; i < l->holders.len && i < MOST_ROOTS; i++) {
		const struct over_root *r = &l->holders.data[i];

		buf_str(out, "    ");
		share(out, r->looks, l->held_looks);
		buf_str(out, l->nature == WAIT_LOCK ? "  held by " : "  for ");
		words_text(out, r->who);
		buf_str(out, *r->who ? ", which " : "");
		words_text(out, r->doing);
		in_function(r->function, out);
		buf_char(out, '\n');
	}
	if (!l->held_looks)
		buf_str(out, l->nature == WAIT_LOCK ? "    nothing tells who held it\n"
						    : "    nothing tells for whom\n");
}

static void locks_block(const struct over_time *o, const struct why_options *options, struct buf *out)
{
	if (o->locks.len)
		buf_str(out, "\nWhat was waited for\n");
	for (size_t i = 0; i < o->locks.len && (options->all || i < MOST_LOCKS); i++)
		lock_lines(o, &o->locks.data[i], &options->term, out);
	if (!options->all && o->locks.len > MOST_LOCKS)
		buf_printf(out, "  and %zu more: --all shows them\n", o->locks.len - MOST_LOCKS);
}

static void facts(const struct over_time *o, const struct term *t, struct buf *out)
{
	uint64_t elapsed_ns = o->ended_ns - o->began_ns;

	paint_on(out, t, PAINT_DIM);
	buf_printf(out, "%" PRIu64 " looks by %s, one every ", o->looks, snapshot_cost(o->snapshot).method);
	words_duration(out, o->looks ? elapsed_ns / o->looks : 0);
	buf_printf(out, "; sonde used %.1f %% of a CPU, nothing was stopped",
		percent_of(o->cpu_ns, elapsed_ns));
	paint_off(out, t, PAINT_DIM);
	buf_char(out, '\n');
	if (o->target_ended)
		paint(out, t, PAINT_WARN, "The process has ended.\n");
	if (o->cut)
		paint(out, t, PAINT_WARN, "There is more to follow than was followed.\n");
}

int view_why_time(
	const struct over_time *o, const struct why_options *options, struct buf *out, struct err *err)
{
	struct buf sentence = {0};
	int rc;

	over_sentence(o, &sentence);
	why_wrapped(sentence.data ? sentence.data : "", PAINT_TITLE, &options->term, out);
	out->failed |= sentence.failed;
	buf_release(&sentence);
	facts(o, &options->term, out);
	buf_char(out, '\n');
	focus_block(o, &options->term, out);
	rc = threads_block(o, options, out);
	locks_block(o, options, out);
	return rc || out->failed ? err_nomem(err) : 0;
}
