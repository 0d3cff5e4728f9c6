/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Time off the CPU, from look to look.
 *
 * The kernel counts what a thread has run and what it has waited for a CPU; the rest of the time it was
 * blocked. So the sums are exact, whatever happens between two looks. Where it was blocked is what a
 * look sees: a thread that sleeps at two looks and has not come on a CPU in between slept all the
 * time, in one wait. Time blocked that belongs to no wait seen (it slept and woke between two looks) goes to the
 * next one that is; a place where it waits twice as long is seen twice as often.
 */
#include "sample/ptrace/ptrace_priv.h"

#include <string.h>

#include "base/clock.h"

void waits_begin(struct tracer *t, struct traced *th)
{
	struct traced_waits *w = &th->waits;

	*w = (struct traced_waits){.first = th->seen, .last = th->seen,
		.since_ns = clock_monotonic_ns()};
	w->last_ns = w->since_ns;
}

/* The stack of a thread that sleeps; false when it turns out that it does not. */
static bool tell_asleep(struct tracer *t, const struct traced *th, bool open)
{
	struct blocked_thread *b = &t->blocked;
	size_t bytes;
	struct note *n;

	if (blocked_read(th->pid, th->tid, b, NULL))
		return false;
	bytes = b->stack.has_regs ? b->stack.dump.size : 0;
	if (bytes > dump_size_of(&t->sizes, th->tid))
		bytes = dump_size_of(&t->sizes, th->tid);
	n = tracer_note(t, NOTE_ASLEEP, th, NOTE_MOST_BYTES);
	if (!n)
		return false;
	n->wait = (struct note_wait){.reason = b->reason, .open = open};
	n->regs = b->stack.regs;
	n->stack_bytes = bytes;
	if (bytes)
		memcpy(n->stack, b->stack.dump.bytes, bytes);
	tracer_copy_python(t, th, 0, n);
	if (n->chain_bytes && !blocked_still(th->pid, th->tid, b))
		n->chain_bytes = 0;
	tracer_tell(t, n);
	return true;
}

static uint64_t positive(int64_t *ns)
{
	int64_t value = *ns;

	if (value <= 0)
		return 0;
	*ns = 0;
	return (uint64_t)value;
}

uint64_t waits_take_queued(struct traced *th)
{
	return positive(&th->waits.queued_ns);
}

static void tell_awoke(struct tracer *t, struct traced *th, bool still)
{
	struct traced_waits *w = &th->waits;
	struct note *n = tracer_note(t, NOTE_AWOKE, th, 0);

	w->asleep = false;
	if (n) {
		n->wait = (struct note_wait){.open = still, .blocked_ns = w->blocked_ns,
			.queued_ns = positive(&w->queued_ns)};
		n->time_ns = w->last_ns;
		tracer_tell(t, n);
	}
	w->blocked_ns = 0;
}

/* Adds what has passed since the last look. */
static void advance(struct traced_waits *w, const struct run_times *now, uint64_t now_ns)
{
	int64_t queued = (int64_t)(now->queued_ns - w->last.queued_ns);

	/* CPU time is brought up to date now and then, so a part of it may belong to before. */
	w->unseen_ns += (int64_t)(now_ns - w->last_ns) - (int64_t)(now->run_ns - w->last.run_ns) -
		queued;
	w->queued_ns += queued;
	w->last = *now;
	w->last_ns = now_ns;
}

/* Gives the sleep that is told what was blocked until now. */
static void credit_sleep(struct traced_waits *w)
{
	int64_t ns = w->unseen_ns;

	if (ns < 0 && (uint64_t)-ns > w->blocked_ns)
		ns = -(int64_t)w->blocked_ns;
	w->blocked_ns += (uint64_t)ns;
	w->unseen_ns -= ns;
}

void waits_look(struct tracer *t, struct traced *th, bool awake, size_t *budget)
{
	struct traced_waits *w = &th->waits;
	bool open = w->last_ns == w->since_ns; /* the first look */
	bool same = !awake && th->seen.arrivals == w->last.arrivals &&
		th->seen.run_ns == w->last.run_ns;
	/* It woke, and was not blocked again: all that it was blocked was this sleep. */
	bool once = awake && th->seen.arrivals - w->last.arrivals <= 1;

	advance(w, &th->seen, clock_monotonic_ns());
	if (w->asleep && (same || once))
		credit_sleep(w);
	if (w->asleep && !same)
		tell_awoke(t, th, false);
	if (awake || w->asleep || !*budget)
		return;
	--*budget;
	w->asleep = tell_asleep(t, th, open);
	if (w->asleep)
		credit_sleep(w);
}

void waits_end(struct tracer *t, struct traced *th, bool gone)
{
	struct traced_waits *w = &th->waits;
	struct run_times now;
	struct note *n;

	if (!t->options.off_cpu || th->before_exec || !th->selected)
		return;
	if (!gone && traced_times(t, th, &now)) /* else it ended some time after the last look */
		advance(w, &now, clock_monotonic_ns());
	if (w->asleep) {
		credit_sleep(w);
		tell_awoke(t, th, !gone);
	}
	n = tracer_note(t, NOTE_TIMES, th, 0);
	if (!n)
		return;
	n->time_ns = w->last_ns;
	n->wait = (struct note_wait){.since_ns = w->since_ns,
		.run_ns = w->last.run_ns - w->first.run_ns,
		.queued_ns = w->last.queued_ns - w->first.queued_ns};
	tracer_tell(t, n);
}
