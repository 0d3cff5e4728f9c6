/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A tick: looks at each thread, and stops those that run, one at a time.
 *
 * A thread has not run since the last look when the kernel's count of its arrivals on a CPU and its
 * CPU time are the same, and it was not running then. One that sleeps is not stopped. Whether one
 * that does not sleep runs or waits for a CPU /proc does not tell; its CPU time does, but the kernel
 * brings that up to date only a few hundred times a second. So where there are CPUs enough for all
 * that do not sleep, all are taken to run; else those whose time has moved.
 */
#include "sample/ptrace/ptrace_priv.h"

#include <errno.h>
#include <stdio.h>

#include "base/clock.h"

/* More looks a tick would make us a load ourselves; with more threads the ticks take turns. */
#define MOST_LOOKS 512u

/* Reading the stack of one that has gone to sleep takes some 20 us. */
#define MOST_SLEEPS 64u

/* A running thread stops within a few microseconds, and to wait for that actively is the shortest
 * pause. One that does not has to wait for a CPU first, perhaps for ours. */
#define ACTIVE_WAIT_NS (25 * NS_PER_US)

int tracer_ask_to_stop(struct tracer *t, struct traced *th)
{
	uint64_t now = clock_monotonic_ns();

	if (ptrace_interrupt(th->tid))
		return -ESRCH;
	th->asked_ns = now;
	th->late = false;
	t->asked++;
	return 0;
}

void tracer_wait_actively(struct tracer *t, pid_t tid)
{
	uint64_t now = clock_monotonic_ns(), end = now + ACTIVE_WAIT_NS;

	do {
		/* Others that were asked before may stop just now. */
		if (tracer_next_event(t, t->asked > 1 ? -1 : tid, now) == tid)
			return;
		now = t->quiet_ns;
	} while (now < end);
}

void tracer_tell_name(struct tracer *t, const struct traced *th)
{
	struct note *n = tracer_note(t, NOTE_NAMED, th, 0);

	if (!n)
		return;
	snprintf(n->name, sizeof(n->name), "%s", th->name);
	tracer_tell(t, n);
}

/* Whether it does not sleep; *ret_moved: and has been on a CPU since the last look, as far as shows. */
static bool is_awake(struct tracer *t, struct traced *th, bool *ret_moved)
{
	struct run_times now;

	if (!traced_times(t, th, &now))
		return false;
	*ret_moved = now.arrivals != th->seen.arrivals || now.run_ns != th->seen.run_ns;
	th->seen = now;
	return (*ret_moved || th->awake) && traced_runs(t, th);
}

/*
 * Whether one that is awake is stopped now. One that waits for a CPU is where it was made to leave one, and
 * that is no fair sample: many programs leave it in their system calls. So where not all that are awake can
 * run, only those are stopped that have just been seen to move. And as samples stand for the CPU time
 * between them, only when that is worth one; or at first sight, since a thread may not live to the next.
 */
static bool is_due(const struct tracer *t, const struct traced *th, bool was_awake, bool moved, bool room)
{
	bool worth = !th->sampled || th->seen.run_ns - th->accounted_ns >= t->period_ns / 2;

	return room ? worth || was_awake : worth && moved;
}

/* A thread that was asked and has not stopped: the kernel has it, or it waits for a CPU. It stays
 * asked, and is sampled when it stops. */
static void check_late(struct tracer *t, struct traced *th, uint64_t now)
{
	if (th->late || now - th->asked_ns < TRACER_LATE_NS)
		return;
	th->late = true;
	t->late++;
}

static void look(struct tracer *t, struct traced *th, uint64_t now, bool room, size_t *sleeps)
{
	bool was_awake = th->awake, moved = false;

	if (th->name_ns <= now && traced_name(t, th))
		tracer_tell_name(t, th);
	if (!th->selected || th->before_exec)
		return;
	if (th->asked_ns) {
		check_late(t, th, now);
		return;
	}
	th->awake = is_awake(t, th, &moved);
	if (t->options.off_cpu)
		waits_look(t, th, th->awake, sleeps);
	if (!th->awake || th->in_group)
		return;
	/* Where it waited for a CPU is where it is when it got one, or nearly. */
	if (!(t->options.on_cpu && is_due(t, th, was_awake, moved, room)) &&
		th->waits.queued_ns < (int64_t)t->period_ns)
		return;
	if (!tracer_ask_to_stop(t, th))
		tracer_wait_actively(t, t->looked_at);
}

void tracer_tick(struct tracer *t)
{
	size_t looks = t->threads.len < MOST_LOOKS ? t->threads.len : MOST_LOOKS;
	size_t awake = 0, sleeps = MOST_SLEEPS;
	uint64_t now = t->began_ns = clock_monotonic_ns();
	bool room = t->awake <= t->cpus;
	struct traced *th;

	for (size_t i = 0; i < looks && (th = traced_after(t, t->looked_at)); i++) {
		t->looked_at = th->tid;
		look(t, th, now, room, &sleeps);
		th = traced_find(t, t->looked_at); /* it may have ended meanwhile */
		awake += th && th->awake;
	}
	t->awake = awake;
}
