/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What each thread did with the time it was watched, a column a state:
 *
 *	  on-cpu  run-queue   futex  syscall  thread
 *	   50.0%       2.0%   18.0%    30.0%  server 100
 *	       -          -  100.0%        -  3 x bio_* in clone › bio_wait › [futex]
 *
 * States that nobody was in have no column. Threads that only wait stand at the end, those of one
 * process that wait in the same place in one row: a server has hundreds.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "view/view_priv.h"

/* ---- rows ---- */

/* A row and what to order and to join it by. */
struct draft {
	struct thread_row row;
	const struct profile_thread *t;
	uint64_t ran_ns;
	uint64_t place; /* hash of the functions it waits in; 0: does not only wait */
};

static uint64_t place_of(const struct profile *p, uint32_t stack)
{
	uint64_t hash = 1;

	for (; stack != PROFILE_NONE; stack = p->nodes.data[stack].parent) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[stack].frame];

		/* One address may be in the kernel a little deeper than another. */
		if (f->kind == FRAME_KERNEL)
			continue;
		for (uint32_t i = 0; i < f->level_count; i++)
			hash = hash_pair(hash, p->levels.data[f->first_level + i].function);
	}
	return hash ? hash : 1;
}

#define DESCENDING(a, b) (((a) < (b)) - ((a) > (b)))

static int compare_places(const void *left, const void *right)
{
	const struct draft *a = left, *b = right;
	int order = DESCENDING(a->t->pid, b->t->pid);

	if (!order)
		order = DESCENDING(a->place, b->place);
	return order ? order : -DESCENDING(a->t->tid, b->t->tid);
}

static int compare_drafts(const void *left, const void *right)
{
	const struct draft *a = left, *b = right;
	int order = (a->place != 0) - (b->place != 0);

	if (!order && !a->place)
		order = DESCENDING(a->ran_ns, b->ran_ns);
	if (!order)
		order = DESCENDING(a->row.count, b->row.count);
	if (!order)
		order = DESCENDING(a->row.watched_ns, b->row.watched_ns);
	return order ? order : -DESCENDING(a->t->tid, b->t->tid);
}

static struct draft draft_of(const struct profile *p, uint32_t index)
{
	const struct profile_thread *t = &p->threads.data[index];
	struct draft d = {
		.row = {.first = index, .count = 1, .watched_ns = t->watched_ns},
		.t = t,
		.ran_ns = t->state_ns[STATE_ON_CPU] + t->state_ns[STATE_RUN_QUEUE] +
			  t->state_ns[STATE_THROTTLED],
		.place = t->idle ? place_of(p, t->waits_in) : 0,
	};

	for (size_t s = 0; s < STATE_COUNT; s++)
		d.row.state_ns[s] = t->state_ns[s];
	return d;
}

/* Joins what only waits in one place; returns how many rows are left. */
static size_t join_places(struct draft *drafts, size_t count)
{
	size_t kept = 0;

	if (count)
		qsort(drafts, count, sizeof(*drafts), compare_places);
	for (size_t i = 1; i < count; i++) {
		struct draft *d = &drafts[kept];

		if (!d->place || d->place != drafts[i].place || d->t->pid != drafts[i].t->pid) {
			drafts[++kept] = drafts[i];
			continue;
		}
		d->row.count++;
		d->row.watched_ns += drafts[i].row.watched_ns;
		for (size_t s = 0; s < STATE_COUNT; s++)
			d->row.state_ns[s] += drafts[i].row.state_ns[s];
	}
	return count ? kept + 1 : 0;
}

int threads_gather(const struct profile *p, struct thread_rows *ret, struct err *err)
{
	struct draft *drafts = calloc(p->threads.len + 1, sizeof(*drafts));
	struct thread_rows rows = {0};
	size_t count = 0;

	if (!drafts || vec_reserve(&rows, p->threads.len + 1)) {
		free(drafts);
		return err_nomem(err);
	}
	for (uint32_t i = 0; i < p->threads.len; i++)
		if (p->threads.data[i].watched_ns)
			drafts[count++] = draft_of(p, i);
	count = join_places(drafts, count);
	if (count)
		qsort(drafts, count, sizeof(*drafts), compare_drafts);
	for (size_t i = 0; i < count; i++)
		rows.data[rows.len++] = drafts[i].row;
	free(drafts);
	*ret = rows;
	return 0;
}

/* ---- the table ---- */

/* Columns show what somebody did for this much of its time. */
#define MIN_PERCENT 0.05

struct table {
	const struct profile *p;
	const struct term *t;
	bool states[STATE_COUNT];
	bool watched;   /* threads were watched for different times */
	bool processes; /* there are several */
	struct buf *out;
	struct chain chain;
};

static void choose_columns(struct table *table, const struct thread_rows *rows)
{
	uint64_t least = UINT64_MAX, most = 0;

	vec_each(rows, r) {
		const struct profile_thread *t = &table->p->threads.data[r->first];

		for (size_t s = 0; s < STATE_COUNT; s++)
			table->states[s] |=
				percent_of(r->state_ns[s], r->watched_ns) >= MIN_PERCENT;
		if (t->watched_ns < least)
			least = t->watched_ns;
		if (t->watched_ns > most)
			most = t->watched_ns;
		table->processes |= t->pid != table->p->threads.data[rows->data->first].pid;
	}
	/* Text without a screen's limits has room for what may be of interest. */
	table->watched = most - least > most / 20 || !table->t->columns;
}

#define LEAST_COLUMNS 6 /* "100.0%" */
#define WATCHED_COLUMNS 9

static size_t state_columns(enum thread_state s)
{
	size_t name = strlen(profile_state_name(s));

	return 2 + (name > LEAST_COLUMNS ? name : LEAST_COLUMNS);
}

static void right(struct buf *out, size_t columns, const char *text)
{
	for (size_t used = term_width(text); used < columns; used++)
		buf_char(out, ' ');
	buf_str(out, text);
}

static void title(struct table *table)
{
	paint_on(table->out, table->t, PAINT_TITLE);
	for (enum thread_state s = 0; s < STATE_COUNT; s++)
		if (table->states[s])
			right(table->out, state_columns(s), profile_state_name(s));
	if (table->watched)
		right(table->out, WATCHED_COLUMNS, "watched");
	buf_str(table->out, "  thread");
	paint_off(table->out, table->t, PAINT_TITLE);
	buf_char(table->out, '\n');
}

/* Returns the columns used. */
static size_t numbers(struct table *table, const struct thread_row *r)
{
	struct buf words = {0};
	size_t used = 0;

	for (enum thread_state s = 0; s < STATE_COUNT; s++) {
		if (!table->states[s])
			continue;
		used += state_columns(s);
		if (!r->state_ns[s]) {
			paint_on(table->out, table->t, PAINT_DIM);
			right(table->out, state_columns(s), "-");
			paint_off(table->out, table->t, PAINT_DIM);
			continue;
		}
		for (size_t i = LEAST_COLUMNS; i < state_columns(s); i++)
			buf_char(table->out, ' ');
		paint_state(table->out, table->t, s, percent_of(r->state_ns[s], r->watched_ns));
	}
	if (!table->watched)
		return used;
	words_duration(&words, r->watched_ns / r->count);
	if (words.data)
		right(table->out, WATCHED_COLUMNS, words.data);
	table->out->failed |= words.failed;
	buf_release(&words);
	return used + WATCHED_COLUMNS;
}

/* "bio_*" for what the names of the row's threads have in common at their start. The threads of a
 * row are found again by what made it one. */
static void common_name(struct table *table, const struct thread_row *r, struct buf *out)
{
	const struct profile *p = table->p;
	const struct profile_thread *first = &p->threads.data[r->first];
	uint64_t place = place_of(p, first->waits_in);
	size_t common = strlen(first->name);
	bool differ = false;

	vec_each(&p->threads, t) {
		size_t len = 0;

		if (!t->idle || t->pid != first->pid || place_of(p, t->waits_in) != place)
			continue;
		while (len < common && t->name[len] == first->name[len])
			len++;
		differ |= strcmp(t->name, first->name) != 0;
		common = len;
	}
	/* Digits at the end are numbers of threads: the 1 that pool-10 and pool-11 have in common. */
	while (differ && common && first->name[common - 1] >= '0' && first->name[common - 1] <= '9')
		common--;
	buf_add(out, first->name, common);
	if (differ)
		buf_char(out, '*');
}

static size_t label(struct table *table, const struct thread_row *r)
{
	const struct profile_thread *t = &table->p->threads.data[r->first];
	struct buf words = {0}, common = {0};
	size_t used;

	if (r->count > 1) {
		common_name(table, r, &common);
		buf_printf(&words, table->t->unicode ? "%u × " : "%u x ", r->count);
		if (common.data)
			words_text(&words, common.data);
	} else {
		words_text(&words, t->name);
		buf_printf(&words, " %u", t->tid);
	}
	if (table->processes && t->pid != t->tid) {
		buf_str(&words, " (");
		words_text(&words, t->process);
		buf_char(&words, ')');
	}
	table->out->failed |= words.failed || common.failed;
	used = words.data ? term_width(words.data) : 0;
	buf_str(table->out, words.data ? words.data : "");
	buf_release(&words);
	buf_release(&common);
	return used;
}

#define LEAST_PLACE_COLUMNS 20

/* Where threads that only wait do so, as far as the line is long enough to say it. */
static int place(struct table *table, const struct thread_row *r, size_t used)
{
	const struct profile_thread *t = &table->p->threads.data[r->first];
	size_t columns = table->t->columns;
	int rc;

	if (!t->idle || t->waits_in == PROFILE_NONE ||
		(columns && columns < used + LEAST_PLACE_COLUMNS))
		return 0;
	rc = chain_of_stack(table->p, t->waits_in, &table->chain);
	if (rc)
		return rc;
	/* The state has a column. */
	if (table->chain.len > 1 && table->chain.data[table->chain.len - 1].aside)
		table->chain.len--;
	paint(table->out, table->t, PAINT_DIM, " in ");
	chain_draw(table->out, table->t, table->chain.data, table->chain.len,
		columns ? columns - used - 4 : 0);
	return 0;
}

int threads_table(const struct profile *p, const struct term *t, const struct thread_rows *rows,
	size_t limit, struct buf *out)
{
	struct table table = {.p = p, .t = t, .out = out};
	size_t left = 0;
	int rc = 0;

	/* The last row takes no more room than the words that it is there. */
	if (limit + 1 == rows->len)
		limit = 0;
	choose_columns(&table, rows);
	title(&table);
	for (size_t i = 0; i < rows->len && !rc; i++) {
		const struct thread_row *r = &rows->data[i];
		size_t used;

		if (limit && i >= limit) {
			left += r->count;
			continue;
		}
		used = numbers(&table, r) + 2;
		buf_str(out, "  ");
		used += label(&table, r);
		rc = place(&table, r, used);
		buf_char(out, '\n');
	}
	if (left) {
		paint_on(out, t, PAINT_DIM);
		buf_str(out, "  and ");
		words_count(out, left);
		buf_str(out, left == 1 ? " more thread" : " more threads");
		paint_off(out, t, PAINT_DIM);
		buf_char(out, '\n');
	}
	vec_release(&table.chain);
	return rc;
}
