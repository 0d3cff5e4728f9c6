/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What snapshot.bpf.c and sample/snapshot/bpf.c share: one record a thread, written by an iterator over
 * all tasks into the descriptor that user space reads. Ids are those of the reader's pid namespace.
 */
#ifndef SONDE_BPF_SNAPSHOT_H
#define SONDE_BPF_SNAPSHOT_H

#include <stdint.h>

#include "user_regs.h"

#define SNAPSHOT_ON_CPU 1u
#define SNAPSHOT_QUEUED 2u      /* off the CPU, and could run */
#define SNAPSHOT_THROTTLED 4u   /* as that, and its cgroup has used up its time */
#define SNAPSHOT_FROZEN 8u      /* by a cgroup v2 freezer */
#define SNAPSHOT_COMPAT 16u     /* in a 32-bit system call, or of a 32-bit program */
#define SNAPSHOT_KERNEL_ONLY 32u /* a kernel thread, an io_uring worker: registers mean nothing */
#define SNAPSHOT_HAS_REGS 64u
#define SNAPSHOT_MOVED 128u     /* it came on a CPU while it was looked at */

enum snapshot_lock {
	SNAPSHOT_NO_LOCK,
	SNAPSHOT_MUTEX,
	SNAPSHOT_SEMAPHORE,      /* holder: who took it last */
	SNAPSHOT_RWSEM,
	SNAPSHOT_RWSEM_READERS,  /* holder: who came last of those that read, or have */
};

struct snapshot_task {
	uint32_t tid, tgid;
	char comm[16];
	uint32_t flags;
	uint32_t state, exit_state; /* task_struct.__state, exit_state */
	int32_t syscall;            /* < 0: in none */
	uint64_t switches;          /* both kinds */
	uint64_t run_ns, queued_ns;
	uint64_t idle_ns;           /* UINT64_MAX: not known */
	uint64_t kernel_ip;         /* the innermost kernel function that is not the scheduler's; 0 */
	uint64_t first_arg;         /* aarch64: of the call, whose register holds its result */
	uint32_t lock, holder_tid, holder_tgid, pad;
	uint64_t regs[USER_REGS];
};
_Static_assert(sizeof(struct snapshot_task) == 104 + 8 * USER_REGS, "the same for both sides");

/* Written by user space, in the program's .bss. */
struct snapshot_wish {
	uint32_t tgid, tid; /* 0: all */
};

#endif
