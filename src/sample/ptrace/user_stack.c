/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/ptrace/user_stack.h"

#include <sys/uio.h>

#include "os/pages.h"

#if defined(__x86_64__)
static uint64_t take_regs(const ptrace_gregs *g, struct unwind_regs *ret)
{
	/* By DWARF number: System V psABI for AMD64, figure 3.36. */
	const uint64_t values[] = {g->rax, g->rdx, g->rcx, g->rbx, g->rsi, g->rdi, g->rbp, g->rsp,
		g->r8, g->r9, g->r10, g->r11, g->r12, g->r13, g->r14, g->r15, g->rip};
	size_t count = sizeof(values) / sizeof(values[0]);

	for (size_t i = 0; i < count; i++)
		ret->value[i] = values[i];
	ret->known = (1ULL << count) - 1;
	return g->rsp;
}

/* The code segment says which instruction set runs; 0x33 is that of 64-bit programs. */
static bool is_64_bit(const ptrace_gregs *g)
{
	return g->cs == 0x33;
}

uint64_t ptrace_thread_pointer(const ptrace_gregs *g)
{
	return g->fs_base;
}
#else
static uint64_t take_regs(const ptrace_gregs *g, struct unwind_regs *ret)
{
	for (size_t i = 0; i < 31; i++)
		ret->value[i] = g->regs[i];
	ret->value[UNWIND_A64_SP] = g->sp;
	ret->value[UNWIND_A64_PC] = g->pc;
	ret->known = (1ULL << UNWIND_MAX_REGS) - 1;
	return g->sp;
}

static bool is_64_bit(const ptrace_gregs *g)
{
	return !(g->pstate & 0x10); /* PSR_MODE32_BIT */
}

uint64_t ptrace_thread_pointer(const ptrace_gregs *g)
{
	return 0;
}
#endif

size_t ptrace_copy_stack(
	pid_t tid, const ptrace_gregs *g, struct unwind_regs *ret, void *bytes, size_t size)
{
	uint64_t sp;
	ssize_t got;

	if (!is_64_bit(g))
		return 0;
	sp = take_regs(g, ret);
	/* What follows a stack may be memory that a thread of the program fills when it is touched: this one, perhaps. */
	size = size ? pages_there(tid, sp, size) : 0;
	if (!size)
		return 0;

	struct iovec local = {bytes, size}, remote = {(void *)(uintptr_t)sp, size};

	got = process_vm_readv(tid, &local, 1, &remote, 1, 0);
	return got > 0 ? (size_t)got : 0;
}
