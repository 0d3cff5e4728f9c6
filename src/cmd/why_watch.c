/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Checking reads one small file a thread, a few times a second: whether it has run. Only when one has not run for long
 * enough are waits followed, which costs some milliseconds; a pool that is found idle is not asked about again
 * before one of it has run, or a good while has gone by.
 */
#include "cmd/why_watch.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/table.h"
#include "cmd/cmd.h"
#include "cmd/until.h"
#include "os/usage.h"
#include "wait/held_up.h"

/* Checks cost one part in so many of a CPU at most, and so do questions why. */
#define CHECK_PARTS 100u
#define JUDGE_PARTS 50u

/* Who was idle may be held up by now, without having run: others may have ended or stopped. */
#define AGAIN_NS (10 * NS_PER_S)

struct sleeper {
	struct table_node node; /* by tid */
	pid_t tid;
	struct usage_marks marks;
	uint64_t since_ns;      /* it has not run since */
	uint64_t seen_ns;
};

struct why_watch {
	const struct snapshot_options *options;
	pid_t pid;
	struct watch_for *condition;
	struct table sleepers;
	struct pid_vec overdue;        /* longest first; found by the last check */
	uint64_t overdue_since_ns;     /* of the first of them */
	uint64_t overdue_hash;         /* who, since when */
	uint64_t judged_hash, judged_ns;
	uint64_t judge_next_ns;
};

/* ---- who has not run ---- */

static struct sleeper *sleeper_of(struct why_watch *w, pid_t tid)
{
	struct sleeper *s = (struct sleeper *)table_find(&w->sleepers, (uint64_t)tid);

	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (!s || table_add(&w->sleepers, &s->node, (uint64_t)tid)) {
		free(s);
		return NULL;
	}
	s->tid = tid;
	return s;
}

static void forget(struct why_watch *w, uint64_t seen_before_ns)
{
	struct table_node *next;

	for (struct table_node *at = table_next(&w->sleepers, NULL); at; at = next) {
		next = table_next(&w->sleepers, at);
		if (((struct sleeper *)at)->seen_ns >= seen_before_ns)
			continue;
		table_remove(&w->sleepers, at);
		free(at);
	}
}

static bool is_about(const struct why_watch *w, pid_t tid)
{
	char name[PROC_NAME_BYTES] = "";

	if (w->condition->when.who == WHEN_NAME)
		proc_thread_name(w->pid, tid, name, sizeof(name), NULL);
	return when_is_about(&w->condition->when,
		&(struct when_thread){.pid = w->pid, .tid = tid, .is_main = tid == w->pid, .name = name});
}

/* A thread that is idle when the watch begins has been so for a while: the kernel tells for how long. */
static void begin(struct why_watch *w)
{
	struct thread_looks looks = {0};
	struct look *look;
	uint64_t now_ns = clock_monotonic_ns();

	if (look_proc.open(&look, NULL))
		return;
	look->ops->read(look, w->pid, 0, &looks, NULL);
	vec_each(&looks, l) {
		struct sleeper *s = sleeper_of(w, l->tid);

		if (!s || usage_thread(w->pid, l->tid, &s->marks, NULL))
			continue;
		s->seen_ns = now_ns;
		s->since_ns = l->idle_ns == LOOK_UNKNOWN || l->idle_ns > now_ns ? now_ns
										: now_ns - l->idle_ns;
	}
	vec_release(&looks);
	look->ops->free(look);
}

static void check_thread(struct why_watch *w, pid_t tid, uint64_t now_ns)
{
	struct sleeper *s = sleeper_of(w, tid);
	struct usage_marks marks;

	if (!s || usage_thread(w->pid, tid, &marks, NULL))
		return;
	if (!s->seen_ns || marks.running || marks.ran != s->marks.ran || marks.times != s->marks.times)
		s->since_ns = now_ns;
	s->marks = marks;
	s->seen_ns = now_ns;
	if (now_ns - s->since_ns <= w->condition->when.duration_ns || !is_about(w, tid))
		return;
	w->overdue_hash = hash_u64(w->overdue_hash ^ hash_u64((uint64_t)tid ^ s->since_ns));
	if (vec_push(&w->overdue, tid))
		return;
	if (w->overdue.len > 1 && s->since_ns < w->overdue_since_ns) {
		w->overdue.data[w->overdue.len - 1] = w->overdue.data[0];
		w->overdue.data[0] = tid;
	}
	if (w->overdue.len == 1 || s->since_ns < w->overdue_since_ns)
		w->overdue_since_ns = s->since_ns;
}

/* -ESRCH: the process is gone. */
static int check(struct why_watch *w, uint64_t now_ns, struct err *err)
{
	const struct when *when = &w->condition->when;
	struct pid_vec tids = {0};
	int rc = 0;

	w->overdue.len = 0;
	w->overdue_hash = 0;
	if (when->who == WHEN_MAIN || when->who == WHEN_TID) {
		check_thread(w, when->who == WHEN_MAIN ? w->pid : when->tid, now_ns);
		return 0;
	}
	rc = proc_threads(w->pid, &tids, err);
	vec_each(&tids, tid)
		check_thread(w, *tid, now_ns);
	vec_release(&tids);
	forget(w, now_ns);
	return rc;
}

/* ---- whether it matters ---- */

static enum held_up how_held_up(const struct why_watch *w)
{
	return w->condition->kind == WATCH_DEADLOCK ? HELD_UP_DEADLOCK : HELD_UP_BLOCKED;
}

/* 1: *ret is the answer; 0: it was nothing. */
static int answer(struct why_watch *w, pid_t tid, struct wait_answer *ret, struct err *err)
{
	int rc = wait_answer_new(w->options, w->pid, tid, ret, err);

	if (rc)
		return rc;
	if (w->condition->kind == WATCH_NOT_RUN || verdict_is_held_up(&ret->verdict, how_held_up(w)))
		return 1;
	wait_answer_release(ret);
	return 0;
}

static bool is_worth_asking(const struct why_watch *w, uint64_t now_ns)
{
	return w->overdue.len && now_ns >= w->judge_next_ns &&
		(w->overdue_hash != w->judged_hash || now_ns - w->judged_ns > AGAIN_NS);
}

static int judge(struct why_watch *w, uint64_t now_ns, struct wait_answer *ret, struct err *err)
{
	uint64_t cpu_ns = clock_own_cpu_ns();
	pid_t tid = w->overdue.len ? w->overdue.data[0] : 0;
	int rc = 0;

	if (!is_worth_asking(w, now_ns))
		return 0;
	if (w->condition->kind != WATCH_NOT_RUN)
		rc = wait_held_up(w->options, w->pid, w->overdue.data, w->overdue.len, how_held_up(w), &tid,
			err);
	if (!rc && tid)
		rc = answer(w, tid, ret, err);
	w->judged_hash = w->overdue_hash;
	w->judged_ns = now_ns;
	w->judge_next_ns = now_ns + JUDGE_PARTS * (clock_own_cpu_ns() - cpu_ns);
	return rc;
}

/* ---- the watch ---- */

static int did_not_happen(const char *why)
{
	cmd_note("why", "%s; it did not happen", why);
	return 0;
}

static int look_until(struct why_watch *w, const struct until *until, struct wait_answer *ret, struct err *err)
{
	uint64_t next_ns = 0;

	for (;;) {
		enum until_end end = until_ns(until, next_ns);
		uint64_t cpu_ns = clock_own_cpu_ns(), now_ns = clock_monotonic_ns(), cost_ns;
		int rc;

		if (end == UNTIL_SIGNAL)
			return did_not_happen("interrupted");
		rc = end == UNTIL_ENDED ? -ESRCH : check(w, now_ns, err);
		cost_ns = CHECK_PARTS * (clock_own_cpu_ns() - cpu_ns);
		if (!rc)
			rc = judge(w, now_ns, ret, err);
		if (rc == -ESRCH)
			return did_not_happen("the process has ended");
		if (rc)
			return rc;
		next_ns = when_interval_ns(&w->condition->when);
		next_ns = now_ns + (next_ns > cost_ns ? next_ns : cost_ns);
	}
}

static int watch(struct why_watch *w, const struct until *until, const char *text, struct wait_answer *ret,
	struct err *err)
{
	int rc;

	cmd_note("why", "watching process %d: %s", (int)w->pid, text);
	rc = look_until(w, until, ret, err);
	if (rc == 1)
		cmd_note("why", "it has happened: %s", text);
	return rc;
}

int why_watch(const struct snapshot_options *options, pid_t pid, struct watch_for *condition,
	const char *text, struct wait_answer *ret, struct err *err)
{
	struct why_watch w = {.options = options, .pid = pid, .condition = condition};
	struct until until;
	int rc = until_new(pid, &until, err);

	if (rc)
		return rc;
	begin(&w);
	if (condition->when.who == WHEN_TID && !table_find(&w.sleepers, (uint64_t)condition->when.tid))
		rc = err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)condition->when.tid);
	else
		rc = watch(&w, &until, text, ret, err);
	forget(&w, UINT64_MAX);
	table_release(&w.sleepers);
	vec_release(&w.overdue);
	until_release(&until);
	return rc;
}
