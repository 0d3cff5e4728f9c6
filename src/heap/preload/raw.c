/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks that cannot be walked here: the registers of the hook's caller and the bytes above its stack pointer.
 *
 * The code between a hook and here is compiled so that it does not use the registers that a function has to preserve
 * (src/heap/meson.build), and what it calls puts them back: so they still are the caller's. Bytes are taken as far
 * as memory can be read, whatever stack it is.
 */
#include <errno.h>

#include "heap/preload/clock.h"
#include "heap/preload/preload.h"
#include "heap/preload/python.h"
#include "heap/preload/ring.h"
#include "heap/preload/sys.h"
#include "heap/preload/take.h"

#pragma weak walk_stack
/* Not in programs that only say things themselves. */
#pragma weak python_stack

#define RAW_BYTES 8192u

#define KEEP(number, name)                                                                         \
	do {                                                                                       \
		__asm__ volatile("mov" KEEP_MOVE(name) : "=r"(value));                             \
		raw->regs[number] = value;                                                         \
		raw->known |= 1ull << (number);                                                    \
	} while (0)

#if defined(__x86_64__)
#define KEEP_MOVE(name) "q %%" name ", %0"
#define STACK_REG 7
#define FRAME_REG 6
#define CODE_REG 16
#else
#define KEEP_MOVE(name) " %0, " name
#define STACK_REG 31
#define FRAME_REG 29
#define CODE_REG 32
#endif

static void keep_registers(struct share_raw_stack *raw, const struct walk_start *here)
{
	for (int i = 0; i < 33; i++)
		raw->regs[i] = 0;
	raw->regs[STACK_REG] = here->sp;
	raw->regs[FRAME_REG] = here->fp;
	raw->regs[CODE_REG] = here->pc;
	raw->known = 1ull << STACK_REG | 1ull << FRAME_REG | 1ull << CODE_REG;
#ifdef PRELOAD_REGISTERS_KEPT
	uint64_t value;

#if defined(__x86_64__)
	KEEP(3, "rbx");
	KEEP(12, "r12");
	KEEP(13, "r13");
	KEEP(14, "r14");
	KEEP(15, "r15");
#else
	KEEP(19, "x19");
	KEEP(20, "x20");
	KEEP(21, "x21");
	KEEP(22, "x22");
	KEEP(23, "x23");
	KEEP(24, "x24");
	KEEP(25, "x25");
	KEEP(26, "x26");
	KEEP(27, "x27");
	KEEP(28, "x28");
#endif
#endif
}

/* How many bytes from `at` can be read: whole pages are, or are not. A system call that reads eight bytes of them and then
 * does nothing, as in readable.c. */
static uint64_t readable(uint64_t at, uint64_t most)
{
	uint64_t end = at;

	while (end < at + most) {
		if (sys6(SYS_rt_sigprocmask, -1, end & ~7ull, 0, 8, 0, 0) != -EINVAL)
			break;
		end = (end | (SHARE_PAGE - 1)) + 1;
	}
	return (end < at + most ? end - at : most) & ~7ull;
}

static bool raw_take(struct thread *t, const struct walk_start *here)
{
	struct share_raw_stack *raw = (void *)ring_reserve(t, sizeof(*raw) + RAW_BYTES);
	const uint64_t *from = (const uint64_t *)(uintptr_t)here->sp;
	uint64_t *to, bytes;

	if (!raw)
		return false;
	to = (uint64_t *)(void *)(raw + 1);
	keep_registers(raw, here);
	raw->time = clock_before(preload.clock);
	raw->stack_start = here->sp;
	/* Kept here: what stands in the shared memory, others can change. */
	bytes = readable(here->sp, RAW_BYTES);
	raw->stack_bytes = bytes;
	for (uint64_t i = 0; i < bytes / 8; i++)
		to[i] = from[i];
	raw->bytes = sizeof(*raw) + bytes;
	raw->word = SHARE_WORD(SHARE_RAW, 0);
	ring_commit(t, (uint32_t)(sizeof(*raw) + bytes));
	return true;
}

uint32_t stack_take(struct thread *t, const struct walk_start *here)
{
	uint32_t node = SHARE_STACK_NONE;

	/* The ring brings what is kept of the thread's stack. */
	if (!walk_stack || (!t->chunk && !thread_claim(t)) || !t->walk)
		return SHARE_STACK_NONE;
	if (walk_stack(&preload.memory, t->walk, here, &node) == WALK_RAW)
		raw_take(t, here);
	if (unlikely(share_python_of(preload.memory.header)->state) && python_stack)
		node = python_stack(t, node);
	return node;
}
