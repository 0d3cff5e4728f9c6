/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * DWARF expressions (DWARF 5, 2.5) as call frame information uses them: a value from registers
 * and memory.
 *
 * The evaluator holds no state and allocates nothing. Whatever the bytes are, it ends: at most
 * EXPR_MAX_STEPS operations, a stack of EXPR_MAX_STACK values. All values are 64 bits wide. It
 * knows every operation that needs nothing but registers, memory and the initial value; those
 * that name other parts of the debug information (typed operations, calls, TLS) fail.
 */
#ifndef SONDE_UNWIND_EXPR_H
#define SONDE_UNWIND_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/unwind.h"

#define EXPR_MAX_STEPS 1000
#define EXPR_MAX_STACK 64

struct expr_input {
	const struct unwind_regs *regs;
	/* Copies `len` (1 to 8) bytes of the target at `addr`; false when it cannot. NULL: never.
	 */
	bool (*read)(void *ctx, uint64_t addr, void *buf, size_t len);
	void *ctx;
	bool has_initial; /* register rules start with the CFA on the stack, CFA rules with nothing
			   */
	uint64_t initial;
	uint64_t bias; /* added to DW_OP_addr operands, which are module addresses */
};

/* The value on top of the stack when the `len` bytes are done. False, with *ret untouched, when
 * the bytes are malformed, a register is not known, memory cannot be read or a limit is hit. */
bool expr_evaluate(const uint8_t *bytes, size_t len, const struct expr_input *in, uint64_t *ret);

#endif
