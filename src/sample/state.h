/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread off the CPU is doing: from what /proc says, or from the kernel functions it is in.
 * docs/heuristics/off-cpu-state.md.
 */
#ifndef SONDE_SAMPLE_STATE_H
#define SONDE_SAMPLE_STATE_H

#include "capture/records.h"
#include "os/thread_wait.h"

struct off_cpu_reason {
	enum thread_state state;
	int syscall; /* -1: none, or not known */
};

/* A thread that is blocked in call `number`; -1: STATE_BLOCKED. */
struct off_cpu_reason state_of_syscall(int number);

/* What /proc shows of a thread; STATE_RUN_QUEUE for one that is not blocked. */
struct off_cpu_reason state_of_wait(const struct thread_wait *w);

#endif
