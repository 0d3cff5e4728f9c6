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

/* CPU time of all threads, also of those that have ended. */
int usage_cpu(pid_t pid, uint64_t *ret_ns, struct err *err);

int usage_memory(pid_t pid, uint64_t *ret_resident_bytes, struct err *err);

/* Our own memory that holds pages of files; 0: not known. */
uint64_t usage_own_files(void);

int usage_thread_count(pid_t pid, uint64_t *ret, struct err *err);

#endif
