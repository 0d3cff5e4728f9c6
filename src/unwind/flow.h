/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a function's caller is, by what its code does: for code without call frame information.
 *
 * Two questions to the same instructions. What happens to the stack from here until the function
 * returns (flow_to_return: works in the middle of anything that returns); and what has happened
 * to it since the function began (flow_from_start: needs to know where that is). Either answers
 * with the shape of the frame. All paths through a function have to agree on the depth of the stack
 * where they meet; code where they do not has no shape.
 *
 * Nothing here looks at a stack: what comes out is as good as the code is sane, and the caller
 * checks it against the stack. Time is bounded (FLOW_MAX_INSNS); nothing is allocated.
 */
#ifndef SONDE_UNWIND_FLOW_H
#define SONDE_UNWIND_FLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/arch.h"

#define FLOW_MAX_INSNS 3000
#define FLOW_FUNCTION_ALIGN 16 /* what compilers align functions to */
#define FLOW_REGS 7 /* at most so many are followed: arch.followed */

struct flow_code {
	const struct arch *arch;
	void *ctx;
	/* Up to *ret_len bytes at `addr`, NULL when there are none; valid until the next call. */
	const uint8_t *(*read)(void *ctx, uint64_t addr, size_t *ret_len);
	/* Is another function known to begin here? NULL: nothing is known of where functions lie, and
	 * nothing is concluded from it. */
	bool (*is_start)(void *ctx, uint64_t addr);
};

enum flow_place {
	FLOW_KEPT,   /* in the register itself */
	FLOW_SAVED,  /* at CFA + offset */
	FLOW_LOST,
};

struct frame_shape {
	uint8_t cfa_reg; /* sp or fp */
	int32_t cfa_offset;
	struct {
		uint8_t place; /* enum flow_place */
		int32_t offset;
	} regs[FLOW_REGS]; /* as arch.followed; the stack pointer's own says nothing */
	int32_t depth; /* from sp to the CFA; only since the start, and where has_depth */
	bool has_depth;
	bool tail; /* it ends in a jump to an address in a register, if it is an end */
};

/* Does the code lead straight to a call and a trap behind it? Then it ends the process or the thread. */
bool flow_only_ends(const struct arch *arch, const uint8_t *code, size_t len, uint64_t at);

/* Does the instruction that `code` begins with, at `at`, open a frame, as functions begin? */
bool flow_opens_frame(const struct arch *arch, const uint8_t *code, size_t len, uint64_t at);

/* The frame of the function that goes on at `pc`, by the way it returns. is_return: a call stands
 * before pc. */
bool flow_to_return(
	const struct flow_code *code, uint64_t pc, bool is_return, struct frame_shape *ret);

/* The same by the way it came from its first instruction at `start`. */
bool flow_from_start(
	const struct flow_code *code, uint64_t start, uint64_t pc, struct frame_shape *ret);

/* Both, and what is to be made of it. start: NULL where it is not known. */
bool flow_frame(const struct flow_code *code, const uint64_t *start, uint64_t pc, bool is_return,
	struct frame_shape *ret);

#endif
