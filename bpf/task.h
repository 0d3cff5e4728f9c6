/* SPDX-License-Identifier: BSD-2-Clause */
/* What our BPF programs ask of a thread, on whatever kernel. */
#ifndef SONDE_BPF_TASK_H
#define SONDE_BPF_TASK_H

#include "kernel_types.h"
#include "user_regs.h"

/* Where there is no bpf_task_pt_regs(): the size of a kernel stack (THREAD_SIZE without KASAN). */
#define KERNEL_STACK_BYTES 16384u

static __always_inline uint32_t state_of(struct task_struct *task)
{
	if (bpf_core_field_exists(task->__state))
		return task->__state;
	return (uint32_t)task->state;
}

#if defined(__TARGET_ARCH_x86)
#define PT_REGS_BYTES (USER_REGS * sizeof(uint64_t))
#else
#define PT_REGS_BYTES bpf_core_type_size(struct pt_regs)
#endif

/* Where the registers lie that user code had when it entered the kernel. */
static __always_inline uint64_t regs_address(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (uint64_t)bpf_task_pt_regs(task);
	return (uint64_t)task->stack + KERNEL_STACK_BYTES - PT_REGS_BYTES;
}

static __always_inline bool copy_regs(struct task_struct *task, uint64_t *regs)
{
	return !bpf_probe_read_kernel(
		regs, USER_REGS * sizeof(*regs), (void *)regs_address(task));
}

/* The registers, where there is a helper for them. */
static __always_inline struct pt_regs *regs_of(struct task_struct *task)
{
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (struct pt_regs *)bpf_task_pt_regs(task);
	return NULL;
}

#if defined(__TARGET_ARCH_x86)
static __always_inline bool is_compat(struct task_struct *task)
{
	return task->thread_info.status & TS_COMPAT;
}

/* The number of the system call that it is in, -1 when a fault brought it into the kernel, or when it
 * is of another table. */
static __always_inline int32_t syscall_of(struct task_struct *task)
{
	struct pt_regs *regs = regs_of(task);
	uint64_t nr = 0;

	if (is_compat(task))
		return -1;
	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return (int32_t)regs->orig_ax;
	bpf_probe_read_kernel(&nr, sizeof(nr),
		(void *)(regs_address(task) + bpf_core_field_offset(struct pt_regs, orig_ax)));
	return (int32_t)nr;
}

#elif defined(__TARGET_ARCH_arm64)
static __always_inline bool is_compat(struct task_struct *task)
{
	return task->thread_info.flags & (1ul << 22); /* TIF_32BIT */
}

static __always_inline int32_t syscall_of(struct task_struct *task)
{
	struct pt_regs *regs = regs_of(task);
	int32_t nr = 0;

	if (bpf_core_enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs))
		return regs->syscallno;
	bpf_probe_read_kernel(&nr, sizeof(nr),
		(void *)(regs_address(task) + bpf_core_field_offset(struct pt_regs, syscallno)));
	return nr;
}
#endif

static __always_inline bool is_throttled(struct task_struct *task)
{
	if (bpf_core_field_exists(task->throttled))
		return task->throttled;
	if (bpf_core_field_exists(task->se.cfs_rq) &&
		bpf_core_field_exists(struct cfs_rq, throttle_count)) {
		struct cfs_rq *rq = task->se.cfs_rq;

		return rq && rq->throttle_count > 0;
	}
	return false;
}

#endif
