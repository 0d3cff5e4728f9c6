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

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct mm_struct {
	unsigned long start_stack;
};

struct cfs_rq {
	int throttle_count;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
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
	unsigned int exit_state;
	unsigned int pid, tgid;
	char comm[16];
	unsigned int __state; /* since 5.14 */
	bool throttled;       /* since 6.18; before, cfs_rq.throttle_count says it */
};

struct task_struct___long_state {
	long state;
};

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* include/linux/sched.h, since 2.6.x unless said otherwise. */
#define TASK_RUNNING 0
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define TASK_WAKING 0x200
#define TASK_FROZEN 0x8000      /* since 6.1 */
#define PF_IO_WORKER 0x10       /* since 5.12 */
#define PF_USER_WORKER 0x4000   /* since 6.4 */
#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
#define JOBCTL_TRAP_FREEZE (1ul << 23) /* include/linux/sched/jobctl.h: the freezer of cgroup v2 */
#define TS_COMPAT 0x2 /* thread_info.status: in a 32-bit system call */

#define PAGE_BYTES 4096u

#endif
