/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack of a thread that sleeps, without stopping it: /proc says where its stack is, and while
 * it sleeps nothing moves there.
 *
 * The kernel's count of its switches is taken before and after: when it is the same, and the thread
 * was asleep both times, what was read is of one moment. Nothing here waits, whatever the thread is
 * in (an uninterruptible sleep, a stop, a freezer). Of its registers only sp and pc are known; where
 * a rule needs the frame pointer the unwinder looks for it (docs/heuristics/lost-frame-pointer.md).
 */
#ifndef SONDE_SAMPLE_BLOCKED_H
#define SONDE_SAMPLE_BLOCKED_H

#include "sample/session.h"
#include "sample/state.h"

#define BLOCKED_STACK_BYTES 16384u

struct blocked_thread {
	struct thread_wait wait;
	struct off_cpu_reason reason;
	uint64_t switches;      /* as of the reading */
	struct raw_stack stack; /* its bytes are in `bytes` below; has_regs false: there is none */
	uint8_t bytes[BLOCKED_STACK_BYTES];
};

/* The registers of which /proc tells: sp and pc. */
static inline void blocked_regs(const struct thread_wait *w, struct unwind_regs *ret)
{
#if defined(__aarch64__)
	enum { SP = UNWIND_A64_SP, PC = UNWIND_A64_PC };
#else
	enum { SP = UNWIND_X86_RSP, PC = UNWIND_X86_PC };
#endif
	ret->value[SP] = w->sp;
	ret->value[PC] = w->pc;
	ret->known = 1ULL << SP | 1ULL << PC;
}

/*
 * 0: it was asleep all the while, and all of *ret is true. -EAGAIN: it runs, or waits for a CPU, or
 * did meanwhile; `reason` is what it was first seen in. -ESRCH: gone, or a zombie. -EACCES, -EPERM: not ours to
 * read. *ret is large: keep one for all threads.
 */
int blocked_read(pid_t pid, pid_t tid, struct blocked_thread *ret, struct err *err);

/* Whether it has slept ever since it was read: what was made of *b since (an unwound stack whose
 * upper part came from its memory) is true as well. */
bool blocked_still(pid_t pid, pid_t tid, const struct blocked_thread *b);

#endif
