/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What to do with a thread that has stopped: as little as possible, and let it go. What can be done
 * after that is done after that.
 */
#include "sample/ptrace/ptrace_priv.h"

#include <stdio.h>

#include "base/clock.h"
#include "os/child.h"

/* ---- a sample ---- */

void tracer_copy_python(struct tracer *t, const struct traced *th, uint64_t pointer, struct note *n)
{
	n->chain_bytes = 0;
	if (t->python)
		n->chain_bytes =
			python_stopped_copy(t->python, th->pid, th->tid, pointer, note_chains(n));
}

/* Fills in registers and stack of a stopped thread. */
static void copy_stack(struct tracer *t, const struct traced *th, const ptrace_gregs *g, struct note *n)
{
	n->regs.known = 0;
	n->stack_bytes = ptrace_copy_stack(
		th->tid, g, &n->regs, n->stack, dump_size_of(&t->sizes, th->tid));
	tracer_copy_python(t, th, ptrace_thread_pointer(g), n);
}

/* Whether it had a CPU at the tick; else it waited for one since before that. (That we took its CPU
 * away to look at it does not count.) */
#define OUR_WAKING_NS (50 * NS_PER_US)
static bool ran_at_tick(const struct tracer *t, const struct run_times *then, const struct run_times *now)
{
	return now->queued_ns - then->queued_ns <=
		clock_monotonic_ns() - t->began_ns + OUR_WAKING_NS;
}

/*
 * What a sample stands for: the CPU time since the last one of its thread; 0: it is none. The first
 * sample of a thread stands for a period: then of all threads that live for less than that, so many have a
 * sample as their time is worth.
 */
static uint64_t account(struct tracer *t, struct traced *th)
{
	struct run_times then = th->seen;
	uint64_t used;

	if (!traced_times(t, th, &th->seen) || !ran_at_tick(t, &then, &th->seen))
		return 0;
	used = th->sampled ? th->seen.run_ns - th->accounted_ns : t->period_ns;
	th->sampled = true;
	th->accounted_ns = th->seen.run_ns;
	return used;
}

static void paused(struct tracer *t, uint64_t since_ns)
{
	uint64_t now = clock_monotonic_ns();

	pauses_add(&t->pauses, now > since_ns ? now - since_ns : 0);
}

static void let_go(struct tracer *t, pid_t tid, int signal, uint64_t since_ns)
{
	if (!ptrace_go(tid, signal))
		paused(t, since_ns);
}

int tracer_copy(struct tracer *t, struct traced *th, struct note *n, bool slept, uint64_t since_ns)
{
	ptrace_gregs g;
	int rc = ptrace_get_regs(th->tid, &g);

	if (!rc && n)
		copy_stack(t, th, &g, n);
	if (!rc && ptrace_restart(&g, slept)) {
		ptrace_set_regs(th->tid, &g);
		t->restarted++;
	}
	let_go(t, th->tid, 0, since_ns);
	return rc;
}

/* Of a thread that was asked to stop, and has. */
static void take_sample(struct tracer *t, struct traced *th, uint64_t since_ns)
{
	struct note *n = tracer_note(t, NOTE_SAMPLE, th, NOTE_MOST_BYTES);

	if (tracer_copy(t, th, n, false, since_ns) || !n)
		return;
	n->period_ns = t->options.on_cpu ? account(t, th) : 0;
	n->queued_ns = t->options.off_cpu ? waits_take_queued(th) : 0;
	if (n->period_ns || n->queued_ns)
		tracer_tell(t, n);
}

/* It has stopped, for whatever reason: what we asked for is done with. */
static void answered(struct tracer *t, struct traced *th)
{
	if (!th || !th->asked_ns)
		return;
	th->asked_ns = 0;
	t->asked--;
}

/* `th` is NULL for one that we do not know yet: it was just started, and its parent's note comes. */
static void on_stopped(struct tracer *t, struct traced *th, pid_t tid, uint64_t since_ns)
{
	bool asked = th && th->asked_ns;

	answered(t, th);
	if (th)
		th->in_group = false;
	if (asked && th->wanted)
		snapshot_stopped(t, th, since_ns);
	else if (asked && t->period_ns)
		take_sample(t, th, since_ns);
	else if (asked) /* too late for its sample */
		tracer_copy(t, th, NULL, false, since_ns);
	else
		let_go(t, tid, 0, since_ns);
}

static void on_signalled(struct tracer *t, struct traced *th, const struct ptrace_event *e,
	uint64_t since_ns)
{
	if (!t->on_signal || e->signal != t->on_signal)
		let_go(t, e->tid, e->signal, since_ns);
	else if (th && !th->before_exec)
		snapshot_signalled(t, th, since_ns);
	else /* not yet what is to be sampled */
		let_go(t, e->tid, 0, since_ns);
}

static void on_group_stop(struct tracer *t, struct traced *th, pid_t tid)
{
	ptrace_stay(tid);
	if (th)
		th->in_group = true;
}

/* ---- beginnings and ends ---- */

static struct traced *adopt(struct tracer *t, pid_t tid)
{
	struct traced *th = traced_find(t, tid);
	struct proc_status st;

	if (th)
		return th;
	return proc_status_read(tid, &st, NULL) ? NULL : traced_add(t, st.tgid, tid);
}

static void tell_started(struct tracer *t, const struct traced *th, const struct traced *parent)
{
	struct note *n = tracer_note(t, NOTE_STARTED, th, 0);

	if (!n)
		return;
	n->other_pid = parent->pid;
	n->other_tid = parent->tid;
	tracer_tell(t, n);
	/* It may have given itself one before we came to it. */
	tracer_tell_name(t, th);
}

static void on_started(struct tracer *t, pid_t parent_tid, uint64_t since_ns)
{
	unsigned long tid = 0;
	int rc = ptrace_message(parent_tid, &tid);
	struct traced *parent, *th;

	let_go(t, parent_tid, 0, since_ns);
	parent = rc ? NULL : adopt(t, parent_tid);
	th = parent ? adopt(t, (pid_t)tid) : NULL;
	/* The new one may have come so far before we heard of its start. */
	if (th && !th->execed)
		tell_started(t, th, parent);
}

/* Whichever thread called exec, it bears the id of the first one now. */
static void on_execed(struct tracer *t, pid_t tid, uint64_t since_ns)
{
	struct traced *th;
	struct note *n;

	let_go(t, tid, 0, since_ns);
	th = adopt(t, tid);
	if (!th)
		return;
	traced_remove_others(t, th);
	waits_end(t, th, true);
	traced_begin(t, th);
	th->execed = true;
	n = tracer_note(t, NOTE_EXECED, th, 0);
	if (!n)
		return;
	snprintf(n->name, sizeof(n->name), "%s", th->name);
	tracer_tell(t, n);
}

static void on_ended(struct tracer *t, const struct ptrace_event *e)
{
	struct traced *th = traced_find(t, e->tid);
	struct note *n;

	if (th)
		waits_end(t, th, true);
	n = th ? tracer_note(t, NOTE_ENDED, th, 0) : NULL;
	if (e->tid == t->child) /* nobody else can wait for it now */
		child_has_ended(e->tid, e->status, e->cpu_ns);
	if (n)
		tracer_tell(t, n);
	if (th)
		traced_remove(t, th);
}

/* ---- all of them ---- */

static void dispatch(struct tracer *t, struct traced *th, const struct ptrace_event *e,
	uint64_t since_ns)
{
	switch (e->what) {
	case PTRACE_NOTHING:
		break;
	case PTRACE_ENDED:
		on_ended(t, e);
		break;
	case PTRACE_SIGNALLED:
		on_signalled(t, th, e, since_ns);
		break;
	case PTRACE_STOPPED:
		on_stopped(t, th, e->tid, since_ns);
		break;
	case PTRACE_GROUP_STOP:
		on_group_stop(t, th, e->tid);
		break;
	case PTRACE_STARTED:
		on_started(t, e->tid, since_ns);
		break;
	case PTRACE_EXECED:
		on_execed(t, e->tid, since_ns);
		break;
	}
}

static void handle(struct tracer *t, const struct ptrace_event *e, uint64_t since_ns)
{
	struct traced *th = traced_find(t, e->tid);

	/* The kernel forgets that a thread was asked to stop as soon as it stops for another reason
	 * (ptrace_stop). A sample can come later; for a sample of all it is asked again. */
	if (e->what != PTRACE_STOPPED && e->what != PTRACE_ENDED)
		answered(t, th);
	dispatch(t, th, e, since_ns);
	if (!th && e->what != PTRACE_ENDED) {
		th = adopt(t, e->tid);
		if (th)
			th->in_group = e->what == PTRACE_GROUP_STOP;
		return;
	}
	th = traced_find(t, e->tid); /* it may have ended since it was let go */
	if (th && th->wanted && !th->asked_ns && !th->in_group)
		tracer_ask_to_stop(t, th);
}

pid_t tracer_next_event(struct tracer *t, pid_t tid, uint64_t since_ns)
{
	struct ptrace_event e;
	uint64_t now = clock_monotonic_ns();

	if (ptrace_next(tid, &e) || e.what == PTRACE_NOTHING) {
		t->quiet_ns = now;
		return 0;
	}
	handle(t, &e, since_ns);
	return e.tid;
}

void tracer_events(struct tracer *t, uint64_t since_ns)
{
	while (tracer_next_event(t, -1, since_ns))
		continue;
}
