/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How long ago it was that a thread last ran, of what /proc/PID/task/TID/sched tells.
 *
 * The times there are of the clock of the CPU that the thread ran on, which counts only what threads get:
 * interrupts and, in a virtual machine, time given to others are left out, so the clocks of two CPUs drift
 * apart by seconds. What such a clock shows now is seen by running there for an instant.
 */
#ifndef SONDE_OS_SCHED_CLOCK_H
#define SONDE_OS_SCHED_CLOCK_H

#include <stdint.h>

#include "base/vec.h"

struct sched_clock_cpu {
	int cpu;
	uint64_t asked_ns; /* when, on our clock */
	int64_t ahead_ns;  /* our clock less that of the CPU; INT64_MIN: it cannot be known */
};

/* All-zero is a clock that knows nothing yet. */
struct sched_clock {
	VEC(struct sched_clock_cpu) cpus;
	uint64_t spent_ns;
};

void sched_clock_release(struct sched_clock *c);

/* Time since `at_ns` on the clock of `cpu`. UINT64_MAX: not known, as we may not run there, or not at once. A
 * thread of ours runs on that CPU for a moment, where that was not done within the last second; where that
 * takes too long, it is left behind, and ends when it has been there. */
uint64_t sched_clock_ago(struct sched_clock *c, int cpu, uint64_t at_ns);

#endif
