/* SPDX-License-Identifier: BSD-2-Clause */
/* All stacks of a process: threads with the same stack are one entry. */
#include "view/why_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* So many names are told; the others are counted. */
#define MOST_NAMES 8u

static bool same_stack(const struct snapshot_thread *a, const struct snapshot_thread *b)
{
	if (a->step_count != b->step_count || a->faith != b->faith || a->end != b->end ||
		a->look.wait.state != b->look.wait.state || a->look.killed_by || b->look.killed_by ||
		a->look.wait.syscall != b->look.wait.syscall)
		return false;
	for (size_t i = 0; i < a->step_count; i++)
		if (a->steps[i].id != b->steps[i].id)
			return false;
	return true;
}

/* By stack, so that equal ones stand together; then by thread id. */
static int compare_stacks(const void *x, const void *y)
{
	const struct snapshot_thread *a = *(struct snapshot_thread *const *)x;
	const struct snapshot_thread *b = *(struct snapshot_thread *const *)y;
	size_t common = a->step_count < b->step_count ? a->step_count : b->step_count;

	for (size_t i = 1; i <= common; i++) {
		uint32_t ida = a->steps[a->step_count - i].id, idb = b->steps[b->step_count - i].id;

		if (ida != idb)
			return (ida > idb) - (ida < idb);
	}
	if (a->step_count != b->step_count)
		return (a->step_count > b->step_count) - (a->step_count < b->step_count);
	if (a->look.wait.state != b->look.wait.state)
		return (a->look.wait.state > b->look.wait.state) - (a->look.wait.state < b->look.wait.state);
	if (a->look.wait.syscall != b->look.wait.syscall)
		return (a->look.wait.syscall > b->look.wait.syscall) -
			(a->look.wait.syscall < b->look.wait.syscall);
	if (a->faith != b->faith)
		return (a->faith > b->faith) - (a->faith < b->faith);
	return (a->look.tid > b->look.tid) - (a->look.tid < b->look.tid);
}

struct stack_group {
	size_t first, count; /* in the sorted threads */
	pid_t tid;           /* its lowest */
};
VEC_TYPE(stack_groups, struct stack_group);

static int compare_groups(const void *x, const void *y)
{
	const struct stack_group *a = x, *b = y;

	return (a->tid > b->tid) - (a->tid < b->tid);
}

/* Groups in the order of their first threads. */
static int group(const struct stack_threads *threads, struct stack_threads *sorted, struct stack_groups *ret)
{
	if (vec_reserve(sorted, threads->len + 1))
		return -ENOMEM;
	vec_each(threads, t)
		sorted->data[sorted->len++] = *t;
	qsort(sorted->data, sorted->len, sizeof(*sorted->data), compare_stacks);
	for (size_t i = 0; i < sorted->len; i++) {
		struct stack_group g = {i, 1, sorted->data[i]->look.tid};

		while (i + 1 < sorted->len && same_stack(sorted->data[g.first], sorted->data[i + 1])) {
			i++;
			g.count++;
			g.tid = sorted->data[i]->look.tid < g.tid ? sorted->data[i]->look.tid : g.tid;
		}
		if (vec_push(ret, g))
			return -ENOMEM;
	}
	if (ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), compare_groups);
	return 0;
}

static void thread_names(struct snapshot_thread *const *threads, size_t count, const struct term *t,
	struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = 4};
	size_t shown = count > MOST_NAMES + 1 ? MOST_NAMES : count;
	char words[PROC_NAME_BYTES + 64];

	if (count > 1) {
		snprintf(words, sizeof(words), "%zu threads:", count);
		paragraph_add(&p, words);
	}
	for (size_t i = 0; i < shown; i++) {
		snprintf(words, sizeof(words), "%s[%d]%s", threads[i]->look.name, (int)threads[i]->look.tid,
			i + 1 < shown ? "," : "");
		paragraph_painted(&p, t, PAINT_TITLE, words);
	}
	if (shown < count) {
		snprintf(words, sizeof(words), "and %zu more", count - shown);
		paragraph_add(&p, words);
	}
	buf_char(out, '\n');
}

static void last_ran(struct snapshot_thread *const *threads, size_t count, struct buf *out)
{
	uint64_t least = UINT64_MAX, most = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t ns = threads[i]->look.idle_ns;

		if (ns == LOOK_UNKNOWN || threads[i]->look.wait.state == 'R')
			return;
		least = ns < least ? ns : least;
		most = ns > most ? ns : most;
	}
	buf_str(out, ", last ran ");
	wait_duration_words(least, out);
	if (most / 2 > least && most > 10 * NS_PER_MS) {
		buf_str(out, " to ");
		wait_duration_words(most, out);
	}
	buf_str(out, " ago");
}

static void state_line(struct snapshot_thread *const *threads, size_t count, const struct term *t,
	struct buf *out)
{
	struct paragraph p = {.out = out, .columns = t->columns, .indent = 4, .at = 2};
	struct buf words = {0};

	thread_state_words(threads[0], &words);
	last_ran(threads, count, &words);
	buf_str(out, "  ");
	paragraph_painted(&p, t, PAINT_NOTE, words.data ? words.data : "");
	buf_char(out, '\n');
	out->failed |= words.failed;
	buf_release(&words);
}

int view_stacks(struct snapshot *s, const struct stack_threads *threads, const struct stacks_options *o,
	struct buf *out, struct err *err)
{
	const struct term *t = &o->term;
	struct stack_threads sorted = {0};
	struct stack_groups groups = {0};
	int rc = group(threads, &sorted, &groups);

	if (snapshot_core(s)) {
		core_text(snapshot_core(s), t, out);
		buf_char(out, '\n');
	}
	vec_each(&groups, g) {
		struct snapshot_thread **members = &sorted.data[g->first];
		struct wait_own_part all;

		if (rc)
			break;
		if (g != groups.data)
			buf_char(out, '\n');
		thread_names(members, g->count, t, out);
		state_line(members, g->count, t, out);
		all = stack_whole(members[0]);
		stack_text(s, members[0], &all, o->interpreter, 0, "    ", t, out);
	}
	vec_release(&sorted);
	vec_release(&groups);
	return rc || out->failed ? err_nomem(err) : 0;
}

static void thread_object(struct snapshot *s, const struct snapshot_thread *t, bool interpreter,
	struct buf *out)
{
	char state[2] = {t->look.wait.state, '\0'};
	struct buf words = {0};

	buf_printf(out, "{\"pid\":%d,\"tid\":%d,\"name\":", (int)t->look.pid, (int)t->look.tid);
	buf_json(out, t->look.name);
	buf_str(out, ",\"state\":");
	buf_json(out, state);
	thread_state_words(t, &words);
	buf_str(out, ",\"doing\":");
	buf_json(out, words.data ? words.data : "");
	buf_release(&words);
	if (t->look.killed_by)
		buf_printf(out, ",\"killed_by\":\"SIG%s\"", sigabbrev_np(t->look.killed_by));
	if (t->look.idle_ns != LOOK_UNKNOWN)
		buf_printf(out, ",\"since_ns\":%" PRIu64, t->look.idle_ns);
	buf_char(out, ',');
	stack_json(s, t, interpreter, out);
	buf_char(out, '}');
}

int view_stacks_json(struct snapshot *s, const struct stack_threads *threads,
	const struct stacks_options *o, struct buf *out, struct err *err)
{
	struct snapshot_cost cost = snapshot_cost(s);

	buf_char(out, '{');
	if (snapshot_core(s)) {
		core_json(snapshot_core(s), out);
		buf_str(out, ",\n");
	}
	buf_str(out, "\"threads\":[");
	vec_each(threads, t) {
		buf_str(out, t == threads->data ? "\n" : ",\n");
		thread_object(s, *t, o->interpreter, out);
	}
	buf_printf(out, "],\n\"pause_ns\":%" PRIu64 ",\"method\":", cost.pause_ns);
	buf_json(out, cost.method);
	buf_str(out, "}\n");
	return out->failed ? err_nomem(err) : 0;
}
