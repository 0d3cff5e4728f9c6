/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A look at the threads of a process, at one moment and without stopping them: states, system calls,
 * registers, counters. Ways to look are an ops table each, one file an implementation; snapshot.c
 * chooses.
 *
 *	proc.c  /proc, for whoever may read it: of the registers only sp and pc
 *	bpf.c   a BPF task iterator: all registers, all threads within a millisecond
 *	core.c  a core file: all registers, and little else (core.h)
 *
 * What a thread had in its registers and on its stack when it went to sleep stays there until it
 * runs again. So whoever reads its stack after the look, looks again, and finds the same `switches`
 * and the same pc and sp, has read all of it as of one moment.
 */
#ifndef SONDE_SAMPLE_SNAPSHOT_LOOK_H
#define SONDE_SAMPLE_SNAPSHOT_LOOK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"
#include "os/proc.h"
#include "os/thread_wait.h"
#include "unwind/unwind.h"

#define LOOK_UNKNOWN UINT64_MAX

/* Kernel locks that somebody may sleep on in state D. */
enum kernel_lock {
	KERNEL_LOCK_NONE,
	KERNEL_LOCK_MUTEX,
	KERNEL_LOCK_SEMAPHORE,
	KERNEL_LOCK_RT_MUTEX,
	KERNEL_LOCK_RWSEM,
};

struct thread_look {
	pid_t pid, tid;
	char name[PROC_NAME_BYTES];
	uint64_t at_ns;          /* when it was looked at; the caller of read() fills that in */
	struct thread_wait wait;
	struct unwind_regs regs; /* in user code; known for a thread that is blocked, or `queued`, or in a core */
	bool queued;             /* off the CPU, and could run; false: it is not, or that is not known */
	bool throttled;          /* as that, for its cgroup has used up its time */
	bool frozen;             /* by a cgroup's freezer; false: it is not, or that is not known */
	bool compat;             /* 32-bit code: no stack of it can be walked */
	int killed_by;           /* in a core: the signal that ended the process came to this thread; else 0 */
	uint64_t switches;       /* how often it has left a CPU */
	uint64_t ran_ns;         /* CPU time so far; LOOK_UNKNOWN */
	uint64_t queued_ns;      /* time so far in which it waited for a CPU; LOOK_UNKNOWN */
	uint64_t idle_ns;        /* since it last was on a CPU; LOOK_UNKNOWN */
	enum kernel_lock kernel_lock;
	pid_t kernel_holder;     /* the thread that holds it (in our pid namespace), 0: not known */
	pid_t kernel_holder_pid; /* its process */
	bool kernel_holder_sure; /* false: one that took it, and may have let go: the last of several readers,
				    or of a semaphore */
};

VEC_TYPE(thread_looks, struct thread_look);

struct look {
	const struct look_ops *ops;
};

struct look_ops {
	const char *name; /* "proc": a word for users and for JSON */
	/* -EPERM, -ENOSYS and the like, with what it would take. */
	int (*open)(struct look **ret, struct err *err);
	void (*free)(struct look *l);
	/*
	 * Thread `tid` of process `pid`, or all of its threads (0) ascending by tid; what was in
	 * *ret is replaced. Threads that end meanwhile are left out. -ESRCH: gone. -EACCES, -EPERM: not
	 * ours to read; names, states and kernel functions are there all the same. look_bpf also takes
	 * pid 0: the threads of all processes.
	 */
	int (*read)(struct look *l, pid_t pid, pid_t tid, struct thread_looks *ret, struct err *err);
};

extern const struct look_ops look_proc, look_bpf;

/* Whether the thread has slept from the one look to the other. */
static inline bool look_same(const struct thread_look *a, const struct thread_look *b)
{
	return a->wait.blocked && b->wait.blocked && a->switches == b->switches &&
		a->wait.sp == b->wait.sp && a->wait.pc == b->wait.pc;
}

#endif
