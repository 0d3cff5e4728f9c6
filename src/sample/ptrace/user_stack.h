/* SPDX-License-Identifier: BSD-2-Clause */
/* Registers and stack of a thread that stands stopped. */
#ifndef SONDE_SAMPLE_PTRACE_USER_STACK_H
#define SONDE_SAMPLE_PTRACE_USER_STACK_H

#include "os/ptrace.h"
#include "unwind/unwind.h"

/* Its registers, and up to `size` bytes from its stack pointer on, to the first page that is not there. How many; of
 * 32-bit code none of either, *ret is untouched then. */
size_t ptrace_copy_stack(
	pid_t tid, const ptrace_gregs *g, struct unwind_regs *ret, void *bytes, size_t size);

/* The thread pointer, 0: not among the registers. */
uint64_t ptrace_thread_pointer(const ptrace_gregs *g);

#endif
