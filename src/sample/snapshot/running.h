/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks of threads that run: several of each, so that one that spins in a few functions can be told from one
 * that gets on.
 *
 *	perf    the kernel interrupts the thread some thousand times a second of its CPU time, for 20 ms
 *	ptrace  where perf is refused, or that is asked for: the thread is stopped for some
 *	        microseconds, three times. A stop that comes as it goes to sleep may cost it an EINTR
 *	        (ptrace_restart() in os/ptrace.h says when not), and while it is traced nobody else can trace it.
 *
 * Only threads in state R are stopped: never one that sleeps, that another one traces, or that was made to
 * stop. Nothing takes longer than RUNNING_DEADLINE_NS: by perf for all threads, by stops for each. However it ends,
 * all of them go on.
 */
#ifndef SONDE_SAMPLE_SNAPSHOT_RUNNING_H
#define SONDE_SAMPLE_SNAPSHOT_RUNNING_H

#include "base/clock.h"
#include "sample/python/stopped.h"
#include "sample/session.h"

#define RUNNING_MOST_THREADS 16u /* at once; the others are left out */
#define RUNNING_SAMPLES 8u       /* of a thread at most, by perf */
#define RUNNING_STOPS 3u         /* the same by ptrace */
#define RUNNING_STACK_BYTES 32768u
#define RUNNING_WINDOW_NS (20 * NS_PER_MS)
#define RUNNING_DEADLINE_NS (50 * NS_PER_MS)

struct running_thread {
	pid_t pid, tid;
};

/* Its stack is best walked soon: what lies above the copied part is read while the thread runs on. */
struct running_sample {
	pid_t pid, tid;
	uint64_t time_ns;
	struct raw_stack stack; /* points into `held` and `chains` */
	struct raw_chain *chains; /* NULL, or belongs to it */
	void *held;
};
VEC_TYPE(running_samples, struct running_sample);
void running_release(struct running_samples *samples);

struct running_options {
	bool stop;       /* at once, without trying perf */
	bool never_stop; /* not even where perf is refused */
	/* That is told by the session of their stacks: Python's frames are copied while a thread stands stopped. NULL:
	 * they are not. */
	struct python_stopped *python;
};

/* What it cost the threads; added up over calls. */
struct running_cost {
	uint64_t pause_ns, longest_ns; /* of stops, all together and the longest */
	uint32_t stops, restarted_calls;
	bool perf, stop;               /* what has given samples */
};

/*
 * Adds samples of these threads to *ret, those of one thread in the order of their times. Threads that
 * have ended, or did not run on a CPU in user code (or anywhere, where we may see the kernel) meanwhile, have none,
 * and that is no error. -EPERM, -EACCES and the like, with words: there is no way to any of them.
 */
int running_sample(const struct running_thread *threads, size_t count,
	const struct running_options *options, struct running_samples *ret,
	struct running_cost *cost, struct err *err);

#endif
