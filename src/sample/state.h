/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a thread off the CPU is doing: from what /proc says, or from the kernel functions it is in.
 * docs/heuristics/off-cpu-state.md.
 */
#ifndef SONDE_SAMPLE_STATE_H
#define SONDE_SAMPLE_STATE_H

#include <stddef.h>

#include "base/err.h"
#include "capture/records.h"
#include "os/thread_wait.h"
#include "unwind/unwind.h"

struct off_cpu_reason {
	enum thread_state state;
	int syscall; /* -1: none, or not known */
};

/* A thread that is blocked in call `number`; -1: STATE_BLOCKED. */
struct off_cpu_reason state_of_syscall(int number);

/* What /proc shows of a thread; STATE_RUN_QUEUE for one that is not blocked. */
struct off_cpu_reason state_of_wait(const struct thread_wait *w);

/* The kernel's functions, and what each of them means. */
struct kernel_roles;

/* -EPERM where kernel addresses are hidden (kptr_restrict): then `NULL` serves below. */
int kernel_roles_new(struct kernel_roles **ret, struct err *err);
/* The same over a text in the form of /proc/kallsyms (tests). */
int kernel_roles_new_text(const char *text, size_t len, struct kernel_roles **ret, struct err *err);
void kernel_roles_free(struct kernel_roles *r);

/*
 * A thread that has left the CPU and could not run on, by the kernel functions it left in (leaf
 * first), and by its registers in user code where those say nothing. STATE_SYSCALL with number -1: in
 * some call; STATE_BLOCKED: nothing is known. `roles` may be NULL.
 */
struct off_cpu_reason state_of_chain(struct kernel_roles *roles, const uint64_t *ips, size_t count,
	const struct unwind_regs *regs);

#endif
