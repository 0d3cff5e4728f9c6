/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What /proc tells about one thread that is off the CPU: what it waits in, and where its stack is.
 *
 * Reading does not stop the thread, wake it or make its call return early, whatever state it is in.
 * The kernel shows call, sp and pc to those who may trace the process (PTRACE_MODE_ATTACH).
 */
#ifndef SONDE_OS_THREAD_WAIT_H
#define SONDE_OS_THREAD_WAIT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct thread_wait {
	char state;       /* R S D T t Z X I: proc_pid_stat(5), "state" */
	bool blocked;     /* off the CPU and not waiting for one; else all below is empty */
	int syscall;      /* -1: in none (a page fault, a signal stop) */
	uint64_t args[6]; /* of the call */
	uint64_t sp, pc;  /* in user code; the pc is that of the next instruction */
	char where[64];   /* the kernel function it waits in (wchan), "" when hidden */
};

/* 0, -ESRCH (gone), -EACCES or -EPERM (not ours to trace; state and where are still right). A
 * thread that wakes up while it is read gives what it was or what it is, not a mixture. */
int thread_wait_read(pid_t pid, pid_t tid, struct thread_wait *ret, struct err *err);

/* `where` alone. */
void thread_wait_where(pid_t pid, pid_t tid, char *buf, size_t size);

/* How often the thread has left a CPU so far. The same number before and after: it has not run in
 * between, as long as it was blocked at both times. 0 or -errno. */
int thread_switches(pid_t pid, pid_t tid, uint64_t *ret, struct err *err);

#endif
