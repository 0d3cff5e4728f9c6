/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What processes and threads have used so far, cheap enough to be asked many times a second. Nothing
 * here needs rights over the process.
 */
#ifndef SONDE_OS_USAGE_H
#define SONDE_OS_USAGE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* The same at two times: the thread has not run in between. */
struct usage_marks {
	uint64_t ran, times; /* how long it ran and how often: units are the kernel's */
	bool running;        /* it runs now; only where the kernel does not count what is above */
};

/* -ESRCH: gone. */
int usage_thread(pid_t pid, pid_t tid, struct usage_marks *ret, struct err *err);

/* What the scheduler has on a thread. */
struct usage_sched {
	uint64_t ran_ns, queued_ns; /* so far: on a CPU, and ready to run without one */
	uint64_t switches;          /* how often it has left a CPU; 0: not known */
	uint64_t last_ns;           /* when it last was on a CPU, on that CPU's clock (sched_clock.h); 0: not
				     * known */
	int cpu;                    /* which one; -1: not known */
};

/* -ESRCH: gone. What the kernel does not tell is 0 (CONFIG_SCHEDSTATS, CONFIG_SCHED_DEBUG). */
int usage_sched(pid_t pid, pid_t tid, struct usage_sched *ret, struct err *err);

/* CPU time of all threads, also of those that have ended. */
int usage_cpu(pid_t pid, uint64_t *ret_ns, struct err *err);

int usage_memory(pid_t pid, uint64_t *ret_resident_bytes, struct err *err);

/* Our own memory that holds pages of files; 0: not known. */
uint64_t usage_own_files(void);

int usage_thread_count(pid_t pid, uint64_t *ret, struct err *err);

#endif
