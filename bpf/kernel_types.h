/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What our BPF programs know about the kernel's structures: the fields they read, and nothing else.
 *
 * Offsets here mean nothing. Each access is relocated when the program is loaded, against the type
 * information of the kernel that runs (CO-RE), so a field only has to have the same name. Names
 * ending in ___WORD are other versions of the same structure; which of them there is, is asked with
 * bpf_core_field_exists().
 */
#ifndef SONDE_BPF_KERNEL_TYPES_H
#define SONDE_BPF_KERNEL_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <linux/bpf.h>

#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * What follows is the same in all kernels, and not relocated: each structure that is takes more than a
 * millisecond to find, when a program is loaded.
 */
struct bpf_iter_meta {
	struct seq_file *seq;
	uint64_t session_id, seq_num;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

struct pid_namespace;

struct upid {
	int nr;
	struct pid_namespace *ns;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	unsigned long start_stack;
};

struct rq {
	uint64_t clock, clock_task; /* ns; the second stands still during interrupts and stolen time */
};

struct cfs_rq {
	struct rq *rq;
	int throttle_count;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
	uint64_t exec_start, sum_exec_runtime;
	unsigned char sched_delayed; /* since 6.12: asleep, and still in the run queue */
};

struct sched_info {
	unsigned long long run_delay;
};

struct pid {
	unsigned int level;
	struct upid numbers[1]; /* level + 1 */
};

/* atomic_long_t */
struct atomic_word {
	long counter;
};

struct mutex {
	struct atomic_word owner; /* a task, and flags in the three lowest bits; not with PREEMPT_RT */
};

struct rw_semaphore {
	struct atomic_word owner;
};

struct semaphore {
	unsigned long last_holder; /* since 6.16, where hung tasks are told with what blocks them */
};

#if defined(__TARGET_ARCH_x86)
struct thread_info {
	uint32_t status;
};

struct thread_struct {
	unsigned long fsbase;
};

struct pt_regs {
	unsigned long sp;
	unsigned long orig_ax;
};

#elif defined(__TARGET_ARCH_arm64)
struct thread_info {
	unsigned long flags;
};

struct thread_struct {
	struct {
		unsigned long tp_value;
	} uw;
};

struct pt_regs {
	uint64_t orig_x0; /* the first argument of a call */
	int syscallno;
};
#endif

struct task_struct {
	struct thread_info thread_info;
	struct thread_struct thread;
	struct sched_entity se;
	struct mm_struct *mm;
	void *stack;
	unsigned int flags;
	unsigned long jobctl;
	unsigned int on_cpu; /* a byte since 7.2; only unsigned numbers may differ in size */
	unsigned int on_rq;
	unsigned int exit_state;
	unsigned int pid, tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	unsigned long nvcsw, nivcsw;
	struct sched_info sched_info;
	char comm[16];
	unsigned int __state; /* since 5.14; before: */
	long state;
	bool throttled;       /* since 6.18; before, cfs_rq.throttle_count says it */
	struct mutex *blocked_on;  /* since 6.18; before, only where mutexes are debugged, and another type */
	unsigned long blocker;     /* since 6.15: a lock, and its type in the two lowest bits */
};

#pragma clang attribute pop

/* include/linux/sched.h, since 2.6.x unless said otherwise. */
#define TASK_RUNNING 0
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_WAKING 0x200
#define TASK_FROZEN 0x8000      /* since 6.1 */
#define BLOCKER_TYPE 3ul        /* include/linux/hung_task.h, since 6.15 */
#define BLOCKER_TYPE_MUTEX 0ul
#define BLOCKER_TYPE_SEM 1ul    /* others: rw_semaphore */
#define LOCK_OWNER_FLAGS 7ul    /* in the owner word of mutex and rw_semaphore */
#define RWSEM_READER_OWNED 1ul  /* the owner word names the last who came to read */
#define PF_IO_WORKER 0x10       /* since 5.12 */
#define PF_USER_WORKER 0x4000   /* since 6.4 */
#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
#define JOBCTL_TRAP_FREEZE (1ul << 23) /* include/linux/sched/jobctl.h: the freezer of cgroup v2 */
#define TS_COMPAT 0x2 /* thread_info.status: in a 32-bit system call */

#define PAGE_BYTES 4096u

#endif
