/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The live tail: the part of a stack that the dump does not hold, read from the running target a
 * moment after the sample.
 *
 * It is believed only while the outermost frames that are known already still stand: their return
 * addresses are read again, after the tail, and must be where they were. A function cannot be
 * returned from and its caller go on without overwriting the return address sooner or later; what
 * can go unseen is a return and a call from the same place in between, which leaves the same
 * address. docs/heuristics/live-tail.md says how often that is wrong.
 */
#ifndef SONDE_SAMPLE_TAIL_H
#define SONDE_SAMPLE_TAIL_H

#include <sys/types.h>

#include "unwind/unwind.h"

#define TAIL_BYTES 32768u

struct tail {
	uint8_t bytes[TAIL_BYTES];
};

/* Whose stack. */
struct tail_stack {
	pid_t tid;
	uint64_t address_mask; /* bits of a return address that are address; 0: all */
	uint64_t end;          /* the top of the process's first stack, 0: not known */
};

/* A window of at most TAIL_BYTES at `addr`, as far as that is mapped; borrowed from `t`. `frames`
 * are those that must still stand: return addresses are compared under the mask, for frames hold
 * them without the signature. Never stops the target. */
enum unwind_tail tail_read(struct tail *t, const struct tail_stack *stack,
	const struct unwind_frame *frames, size_t count, uint64_t addr, struct unwind_dump *ret);

/* What was read already, right after the sample: memory that holds some frames of the dump, read last,
 * and what lies above it; and a piece of another stack. Either may be empty. */
struct tail_early {
	struct unwind_dump near, other;
};

/* The same from that. UNWIND_TAIL_UNREADABLE when it does not hold the bytes at `addr`, or not all that
 * there is to compare. */
enum unwind_tail tail_from_early(const struct tail_early *early, uint64_t address_mask,
	const struct unwind_frame *frames, size_t count, uint64_t addr, struct unwind_dump *ret);

#endif
