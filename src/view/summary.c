/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * "Where is the time", in one screen: what ran, how far the stacks may be believed, the functions,
 * the paths, the threads. The facts have fixed lines; functions and paths share the rest.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/heap_priv.h"
#include "view/view_priv.h"

#define MAX_HINTS 2
#define MIN_LINES 3
#define MIN_THREADS 2
#define MODULE_COLUMNS 22
#define MAX_NAME_COLUMNS 72

/* How many lines the lists get on this screen. One row stays for the shell's prompt. */
struct plan {
	size_t threads, functions, paths;
};

/* Beside threads and waits, functions that ran for less are not worth a line. */
#define MIN_HOT_PERCENT 0.5

/* Drops what only calls others and is in the paths, where it would be a row of zeros here; and the
 * states, which have columns of their own. */
static void keep_hot(const struct profile *p, struct ranking *ranking)
{
	double least = p->mode == PROFILE_CPU ? 0 : MIN_HOT_PERCENT;
	size_t n = 0;

	vec_each(ranking, r)
		if (r->count.self && p->functions.data[r->function].state == STATE_ON_CPU &&
			share_of(p, r->count.self, r->count.self_weight) >= least)
			ranking->data[n++] = *r;
	ranking->len = n;
}

static struct plan plan_screen(const struct view_options *o, size_t hot, size_t fixed)
{
	size_t rows = o->term.rows ? o->term.rows - 1 : 60;
	size_t left = rows > fixed + 2 * MIN_LINES ? rows - fixed : 2 * MIN_LINES;
	struct plan plan = {.functions = o->top ? o->top : (left + 1) / 2};

	if (plan.functions > hot)
		plan.functions = hot;
	plan.paths = left > plan.functions + MIN_LINES ? left - plan.functions : MIN_LINES;
	return plan;
}

/* The same with a table of threads. Paths say most about waiting and get the most. */
static struct plan plan_waits(
	const struct view_options *o, size_t hot, size_t threads, size_t fixed)
{
	size_t rows = o->term.rows ? o->term.rows - 1 : 60;
	size_t left = rows > fixed + 3 * MIN_LINES ? rows - fixed : 3 * MIN_LINES;
	struct plan plan = {
		.threads = left / 4 > MIN_THREADS ? left / 4 : MIN_THREADS,
		.functions = o->top ? o->top : left / 4,
	};

	if (plan.threads > threads)
		plan.threads = threads;
	if (plan.functions > hot)
		plan.functions = hot;
	if (left > plan.threads + plan.functions + MIN_LINES)
		plan.paths = left - plan.threads - plan.functions;
	else
		plan.paths = MIN_LINES;
	return plan;
}

/* ---- functions ---- */

static void pad(struct buf *out, size_t used, size_t columns)
{
	while (used++ < columns)
		buf_char(out, ' ');
}

/* As wide as the longest of the names, where the terminal has that much. */
static size_t name_columns(const struct profile *p, const struct term *t,
	const struct ranking *ranking, size_t limit)
{
	size_t fixed = 16 + 2 + MODULE_COLUMNS, longest = strlen("function");
	size_t most = t->columns > fixed + 20 ? t->columns - fixed : 20;

	if (!t->columns || most > MAX_NAME_COLUMNS)
		most = MAX_NAME_COLUMNS;
	for (size_t i = 0; i < limit && longest < most; i++) {
		size_t width = term_width(p->functions.data[ranking->data[i].function].name);

		if (width > longest)
			longest = width < most ? width : most;
	}
	return longest;
}

static void function_line(const struct profile *p, const struct term *t, const struct ranked *r,
	size_t columns, struct buf *out)
{
	const struct profile_function *f = &p->functions.data[r->function];

	paint_percent(out, t, share_of(p, r->count.self, r->count.self_weight));
	buf_str(out, "  ");
	words_percent(out, share_of(p, r->count.total, r->count.total_weight));
	buf_str(out, "  ");
	paint_on(out, t, f->unresolved ? PAINT_DIM : PAINT_NONE);
	pad(out, name_fit(out, f->name, columns, t->unicode), columns);
	paint_off(out, t, f->unresolved ? PAINT_DIM : PAINT_NONE);
	buf_str(out, "  ");
	paint_on(out, t, PAINT_DIM);
	name_fit(out, module_name(p, f), t->columns ? MODULE_COLUMNS : 0, t->unicode);
	paint_off(out, t, PAINT_DIM);
	buf_char(out, '\n');
}

static void functions_table(const struct profile *p, const struct view_options *o,
	const struct ranking *ranking, size_t limit, struct buf *out)
{
	size_t columns = name_columns(p, &o->term, ranking, limit);

	paint_on(out, &o->term, PAINT_TITLE);
	buf_str(out, p->mode == PROFILE_CPU ? "  self   total  function"
					    : "on-cpu   total  function");
	pad(out, strlen("function"), columns);
	buf_str(out, "  in");
	paint_off(out, &o->term, PAINT_TITLE);
	buf_char(out, '\n');
	for (size_t i = 0; i < limit; i++)
		function_line(p, &o->term, &ranking->data[i], columns, out);
}

/* ---- threads ---- */

static void thread_words(const struct profile *p, const struct term *t,
	const struct profile_thread *thread, struct buf *out)
{
	words_share(out, share_of(p, thread->samples, thread->weight));
	buf_char(out, ' ');
	name_fit(out, thread->name, 0, t->unicode);
	buf_printf(out, " %u", thread->tid);
}

/* As many threads as fit one line, the busiest first, then how many more there are. */
static int threads_line(
	const struct profile *p, const struct term *t, struct buf *out, struct err *err)
{
	uint32_t *order;
	struct buf one = {0};
	size_t used = strlen("Threads: "), shown = 0, busy = 0;

	vec_each(&p->threads, thread)
		busy += thread->samples > 0;
	if (rank_threads(p, &order, err))
		return -ENOMEM;
	paint(out, t, PAINT_TITLE, "Threads:");
	for (; shown < busy; shown++) {
		buf_clear(&one);
		buf_str(&one, shown ? ", " : " ");
		thread_words(p, t, &p->threads.data[order[shown]], &one);
		if (one.failed)
			break;
		used += term_width(one.data);
		if (shown && t->columns && used + strlen(", 1234 more") > t->columns)
			break;
		buf_add(out, one.data, one.len);
	}
	if (shown < busy)
		buf_printf(out, ", %zu more", busy - shown);
	buf_char(out, '\n');
	out->failed |= one.failed;
	buf_release(&one);
	free(order);
	return 0;
}

/* ---- all of it ---- */

static void hint_lines(
	const struct hints *hints, const struct term *t, size_t limit, struct buf *out)
{
	for (size_t i = 0; i < hints->len && i < limit; i++) {
		const char *text = hints->data[i];
		size_t len = t->columns ? term_fit(text, t->columns - 6) : strlen(text);

		paint_on(out, t, PAINT_WARN);
		buf_str(out, t->unicode ? "  → " : "  -> ");
		buf_add(out, text, len);
		if (text[len])
			buf_str(out, t->unicode ? "…" : "..");
		paint_off(out, t, PAINT_WARN);
		buf_char(out, '\n');
	}
}

static const char *paths_title(const struct profile *p, const struct view_options *o)
{
	if (p->mode == PROFILE_CPU)
		return o->inverted ? " total  hottest functions, and who calls them"
				   : " total  hottest paths";
	if (o->inverted)
		return " total  where the time goes, from the leaves up";
	if (!p->quality.intervals)
		return " total  paths on the CPU";
	return p->quality.intervals < p->quality.samples ? " total  paths on and off the CPU"
							 : " total  paths off the CPU";
}

static int paths(const struct profile *p, const struct view_options *o, size_t limit,
	struct buf *out, struct err *err)
{
	paint(out, &o->term, PAINT_TITLE, paths_title(p, o));
	buf_char(out, '\n');
	return branches_hottest(p, o, limit, out, err);
}

static int body(const struct profile *p, const struct view_options *o, size_t fixed_lines,
	const struct ranking *ranking, struct buf *out, struct err *err)
{
	/* 2 blank lines, 2 titles, threads */
	struct plan plan = plan_screen(o, ranking->len, fixed_lines + 5);

	functions_table(p, o, ranking, plan.functions, out);
	buf_char(out, '\n');
	if (paths(p, o, plan.paths, out, err))
		return -ENOMEM;
	buf_char(out, '\n');
	return threads_line(p, &o->term, out, err);
}

/* With time off the CPU: who waits comes first, then where, then what runs. */
static int body_of_waits(const struct profile *p, const struct view_options *o,
	size_t fixed_lines, const struct ranking *ranking, struct buf *out, struct err *err)
{
	struct thread_rows rows = {0};
	struct plan plan;
	int rc = threads_gather(p, &rows, err);

	if (rc)
		return rc;
	/* title, "and N more", blank; title; and for functions a blank line and a title */
	plan = plan_waits(o, ranking->len, rows.len, fixed_lines + 4 + (ranking->len ? 2 : 0));
	rc = threads_table(p, &o->term, &rows, plan.threads, out);
	vec_release(&rows);
	buf_char(out, '\n');
	if (!rc)
		rc = paths(p, o, plan.paths, out, err);
	if (rc || !plan.functions)
		return rc;
	buf_char(out, '\n');
	functions_table(p, o, ranking, plan.functions, out);
	return 0;
}

static int ranked_body(const struct profile *p, const struct view_options *o,
	size_t fixed_lines, struct buf *out, struct err *err)
{
	struct ranking ranking = {0};
	int rc = rank_functions(p, RANK_BY_TIME, &ranking, err);

	if (rc)
		return rc;
	keep_hot(p, &ranking);
	rc = p->mode == PROFILE_CPU ? body(p, o, fixed_lines, &ranking, out, err)
				    : body_of_waits(p, o, fixed_lines, &ranking, out, err);
	vec_release(&ranking);
	return rc ? err_nomem(err) : 0;
}

static void tell_nothing(const struct profile *p, struct buf *out)
{
	buf_str(out, p->mode == PROFILE_CPU ? "No samples: nothing ran on a CPU while recording"
		     : p->mode == PROFILE_WALL
			     ? "No samples: no thread was seen on a CPU or off it"
			     : "No samples: no thread left the CPU for long enough");
	buf_str(out, ", or the filter left nothing.\n");
}

int view_summary(const struct profile *p, const struct view_options *o, struct buf *out,
	struct err *err)
{
	struct hints hints = {0};
	int rc;

	if (p->heap && !p->samples.len)
		return o->heap_site ? heap_details(p, o, out, err) : heap_summary(p, o, out, err);
	rc = facts_hints(p, &hints, err);
	if (rc)
		return rc;

	size_t hint_count = hints.len < MAX_HINTS ? hints.len : MAX_HINTS, trigger;

	facts_headline(p, &o->term, out);
	trigger = facts_trigger(p, &o->term, out);
	if (!p->samples.len) {
		tell_nothing(p, out);
		hint_lines(&hints, &o->term, MAX_HINTS, out);
	} else {
		facts_states(p, &o->term, out);
		facts_quality(p, &o->term, out);
		hint_lines(&hints, &o->term, MAX_HINTS, out);
		buf_char(out, '\n');
		/* headline, quality, a blank line; two lines of states */
		rc = ranked_body(
			p, o, 3 + (p->mode == PROFILE_CPU ? 0 : 2) + trigger + hint_count, out, err);
	}
	hints_release(&hints);
	if (!rc && out->failed)
		rc = err_nomem(err);
	return rc;
}
