/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A chain in one sentence:
 *
 *	main has waited 41 s for std::mutex Cache::rw (cache.cc:118), held by worker-7[812], which waits to
 *	receive from a unix socket, for postgres[4411], which is stopped (SIGSTOP)
 */
#include "wait/verdict.h"

#include <inttypes.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* More links than this are counted instead of told. */
#define MOST_LINKS 8u

void wait_duration_words(uint64_t ns, struct buf *out)
{
	uint64_t s = ns / NS_PER_S;

	if (ns < 10 * NS_PER_MS)
		buf_printf(out, "%.1f ms", (double)ns / 1e6);
	else if (ns < NS_PER_S)
		buf_printf(out, "%" PRIu64 " ms", (uint64_t)(ns / NS_PER_MS));
	else if (ns < 10 * NS_PER_S)
		buf_printf(out, "%.1f s", (double)ns / 1e9);
	else if (s < 120)
		buf_printf(out, "%" PRIu64 " s", s);
	else if (s < 7200)
		buf_printf(out, "%" PRIu64 " min", s / 60);
	else
		buf_printf(out, "%" PRIu64 " h %" PRIu64 " min", s / 3600, s / 60 % 60);
}

void wait_thread_words(const struct wait_node *n, const struct wait_node *about, struct buf *out)
{
	const struct snapshot_process *p = n->thread->process;
	const struct thread_look *look = &n->thread->look;
	bool first = look->tid == p->pid, named = strcmp(look->name, p->status.name) != 0;

	if (p != about->thread->process) {
		buf_printf(out, "%s[%d]", p->status.name, (int)p->pid);
		if (first)
			return;
		buf_printf(out, named ? " thread %s[%d]" : " thread %s%d", named ? look->name : "",
			(int)look->tid);
	} else if (first) {
		buf_str(out, p->threads.len > 1 ? "main" : look->name);
		buf_printf(out, "[%d]", (int)look->tid);
	} else if (named) {
		buf_printf(out, "%s[%d]", look->name, (int)look->tid);
	} else {
		buf_printf(out, "thread %d", (int)look->tid);
	}
}

/* "for std::mutex Cache::rw (cache.cc:118)", or as the kind says it. */
static void add_object(const struct wait *w, struct buf *out)
{
	if (!w->name[0]) {
		buf_str(out, w->what);
		if (w->nature == WAIT_LOCK && w->address)
			buf_printf(out, " at 0x%" PRIx64, w->address);
	} else {
		buf_printf(out, "for %s", w->name);
		if (w->declared[0])
			buf_printf(out, " (%s)", w->declared);
	}
	if (w->detail[0])
		buf_printf(out, " (%s)", w->detail);
}

void wait_trouble_words(const struct wait *w, struct buf *out)
{
	switch (w->trouble) {
	case WAIT_DEAD_OWNER:
		if (w->trouble_tid)
			buf_printf(out, ", held by thread %d, which ended without unlocking it",
				(int)w->trouble_tid);
		else
			buf_str(out, ", held by a thread that ended without unlocking it");
		break;
	case WAIT_FORK_INHERITED:
		buf_str(out, ", which was locked when the process was forked: nobody here can unlock it");
		break;
	case WAIT_OWN_PIPE:
		buf_str(out, ", whose other end only the process itself holds: it waits for itself");
		break;
	case WAIT_NOBODY:
		buf_str(out, ", whose other end nobody holds");
		break;
	case WAIT_REMOTE:
		buf_str(out, ", on another machine");
		break;
	case WAIT_TASK_CIRCLE: /* the detail tells */
	case WAIT_TRACED:
	case WAIT_FROZEN:
	case WAIT_NO_TROUBLE:
		break;
	}
}

/* Whoever may hold it. */
static void add_candidates(const struct wait_verdict *v, const struct wait_node *n, struct buf *out)
{
	size_t shown = 0;

	bool lock = n->wait.nature == WAIT_LOCK;

	if ((!lock && (n->wait.nature != WAIT_PEER || !n->edges.len)) || n->wait.trouble || wait_next(n))
		return;
	if (!n->edges.len) {
		buf_str(out, ", and nothing tells who holds it");
		return;
	}
	buf_str(out, lock ? ", held perhaps by " : ", for ");
	buf_str(out, n->edges.len > 1 ? "one of " : "");
	vec_each(&n->edges, e) {
		if (shown == 3)
			break;
		buf_str(out, shown++ ? ", " : "");
		wait_thread_words(e->to, v->focus, out);
	}
	if (n->edges.len > shown)
		buf_printf(out, " and %zu more", n->edges.len - shown);
}

static void add_time_left(const struct wait *w, struct buf *out)
{
	if (w->timeout_ns == LOOK_UNKNOWN)
		return;
	buf_str(out, w->nature == WAIT_TIME ? ", for " : ", for at most ");
	wait_duration_words(w->timeout_ns, out);
	buf_str(out, " more");
}

/* What a thread that is in nobody's queue does: "is stopped (SIGSTOP)", "runs". */
static void add_doing(const struct wait_verdict *v, const struct wait_node *n, struct buf *out)
{
	const struct thread_look *look = &n->thread->look;

	if (n == v->root && v->kind == VERDICT_STARVED)
		buf_str(out, "is ready to run and gets next to no CPU time");
	else if (n == v->root && v->kind == VERDICT_THROTTLED)
		buf_str(out, "is held back by its cgroup, whose CPU time is used up");
	else if (n == v->root && v->kind == VERDICT_SPINNING)
		buf_str(out, "runs in circles in one place");
	else if (look->killed_by)
		buf_printf(out, "was killed by SIG%s", sigabbrev_np(look->killed_by));
	else if (look->wait.state == 'R' && n->thread->process->source->still)
		buf_str(out, "was running");
	else if (n->progresses || look->wait.state == 'R')
		buf_str(out, "runs");
	else if (look->wait.state == 'Z' || look->wait.state == 'X')
		buf_str(out, "has ended");
	else if (n->waits && n->wait.nature == WAIT_STOPPED)
		buf_str(out, n->wait.what);
	else if (n->thread->process->refused)
		buf_str(out, "is not ours to look into");
	else
		buf_str(out, n->waits ? "waits" : "is asleep");
}

static void add_function(const struct wait_node *n, struct buf *out)
{
	if (n->doing[0])
		buf_printf(out, ", in %s", n->doing);
}

/* The end of a chain: what it does, where, and if it waits, for what. */
static void add_end(const struct wait_verdict *v, const struct wait_node *n, struct buf *out)
{
	/* An event loop wakes up now and then. */
	bool idles = n == v->root && v->kind == VERDICT_IDLE;
	bool waits = n->waits && (idles || !n->progresses) && n->wait.nature != WAIT_STOPPED;

	if (n == v->focus && waits && !n->progresses && v->since_ns != LOOK_UNKNOWN) {
		buf_str(out, "has waited ");
		wait_duration_words(v->since_ns, out);
	} else if (idles && waits) {
		buf_str(out, "waits");
	} else {
		add_doing(v, n, out);
	}
	if (waits) {
		buf_char(out, ' ');
		add_object(&n->wait, out);
		wait_trouble_words(&n->wait, out);
		add_candidates(v, n, out);
		add_time_left(&n->wait, out);
		if (n->thread->process->refused)
			buf_str(out, ", and is not ours to look into");
	}
	add_function(n, out);
}

static const char *link_words(const struct wait *w)
{
	return w->nature == WAIT_LOCK ? ", held by " : ", for ";
}

static void add_taken(const struct wait_node *n, const struct wait_node *holder, struct buf *out)
{
	vec_each(&n->edges, e) {
		if (e->to != holder || !e->taken[0])
			continue;
		buf_printf(out, " (taken at %s)", e->taken);
		return;
	}
}

static void add_link(const struct wait_verdict *v, size_t at, struct buf *out)
{
	const struct wait_node *n = v->chain.data[at];

	add_object(&n->wait, out);
	buf_str(out, link_words(&n->wait));
	if (at + 1 < v->chain.len) {
		wait_thread_words(v->chain.data[at + 1], v->focus, out);
		add_taken(n, v->chain.data[at + 1], out);
		return;
	}
	/* The last member of a cycle waits for its first. */
	if (v->chain.len - v->cycle_at == 1)
		buf_str(out, "itself");
	else
		wait_thread_words(v->chain.data[v->cycle_at], v->focus, out);
	add_taken(n, v->chain.data[v->cycle_at], out);
}

static bool is_link(const struct wait_verdict *v, size_t at)
{
	return at + 1 < v->chain.len || v->cycle_at < v->chain.len;
}

static void add_focus(const struct wait_verdict *v, struct buf *out)
{
	wait_thread_words(v->focus, v->focus, out);
	buf_char(out, ' ');
	if (!is_link(v, 0)) {
		add_end(v, v->focus, out);
		return;
	}
	if (v->since_ns == LOOK_UNKNOWN) {
		buf_str(out, "waits ");
	} else {
		buf_str(out, "has waited ");
		wait_duration_words(v->since_ns, out);
		buf_char(out, ' ');
	}
	add_link(v, 0, out);
}

void wait_sentence(const struct wait_verdict *v, struct buf *out)
{
	if (v->kind == VERDICT_DEADLOCK)
		buf_printf(out, "deadlock of %zu threads: ", v->chain.len - v->cycle_at);
	else if (v->kind == VERDICT_SELF_DEADLOCK)
		buf_str(out, "deadlock of a thread with itself: ");
	else if (v->kind == VERDICT_TASK_DEADLOCK)
		buf_str(out, "deadlock of asyncio tasks: ");
	add_focus(v, out);
	for (size_t i = 1; i < v->chain.len; i++) {
		if (i == MOST_LINKS && v->chain.len > MOST_LINKS + 1) {
			buf_printf(out, ", and so on for %zu threads more",
				v->chain.len - MOST_LINKS);
			i = v->chain.len - 1;
			if (is_link(v, i))
				return;
			buf_str(out, ", to ");
			wait_thread_words(v->chain.data[i], v->focus, out);
		}
		buf_str(out, ", which ");
		if (is_link(v, i)) {
			buf_str(out, "waits ");
			add_link(v, i, out);
		} else {
			add_end(v, v->chain.data[i], out);
		}
	}
}
