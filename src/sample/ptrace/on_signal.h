/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Samples at the will of others: each time a traced process gets a certain signal, the stacks of all its
 * threads are taken, and the signal is swallowed.
 *
 * Threads that sleep are read as they sleep; the others are stopped for microseconds, each when it comes
 * to it, so the stacks of a sample are of nearly the same moment. The thread that the signal hit has
 * been woken by it, as by any signal: a call without a time limit is started again and does not
 * notice, one with a limit may return EINTR.
 *
 * A signal that comes while a sample is taken gets a sample right after it. The kernel keeps one
 * of each kind of signal waiting for a process, and of realtime signals all.
 */
#ifndef SONDE_SAMPLE_PTRACE_ON_SIGNAL_H
#define SONDE_SAMPLE_PTRACE_ON_SIGNAL_H

#include "sample/sampler.h"

/* Who gets the samples; called from sampler_drain(). */
struct on_signal_sink {
	void *ctx;
	/* One thread of a sample, which is the session's last stack; `stack` NULL: it could not be had,
	 * since the thread did not stop in time, or may not be read. */
	void (*thread)(void *ctx, pid_t pid, pid_t tid, const struct stored_stack *stack);
	/* All threads of the process have been told. */
	void (*whole)(void *ctx, pid_t pid);
};

/* For an open ptrace sampler (frequency 0: nothing else is sampled), before anything is watched. The
 * sink is copied. */
void on_signal_set(struct sampler *s, int signal, const struct on_signal_sink *sink);

/* Takes a sample of all that is traced, as if each process had got the signal. */
int on_signal_now(struct sampler *s, struct err *err);

#endif
