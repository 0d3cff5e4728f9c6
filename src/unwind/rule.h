/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rule of one row: how to get from a frame's registers to its caller's.
 *
 * This is the seam between the front ends (CFI today) and the walk. A rule is a small value
 * without pointers; equal rules of a module are interned to one 16-bit number. Expressions are
 * kept as offset and length into the section bytes they came from.
 */
#ifndef SONDE_UNWIND_RULE_H
#define SONDE_UNWIND_RULE_H

#include <stdbool.h>
#include <stdint.h>

#include "unwind/unwind.h"

enum cfa_kind {
	CFA_REG_OFFSET, /* reg + offset */
	CFA_EXPR,       /* value of an expression */
};

/* Registers a rule does not name keep their value ("same value"), except that the stack pointer
 * becomes the CFA and the pc becomes the return address. */
enum reg_kind {
	REG_UNDEFINED,  /* lost; for the return address: this is the bottom of the stack */
	REG_SAME,       /* unchanged, said explicitly */
	REG_AT_CFA,     /* saved at CFA + offset */
	REG_CFA_OFFSET, /* value is CFA + offset */
	REG_IN_REG,     /* value stands in register `offset` */
	REG_AT_EXPR,    /* saved at the address the expression gives */
	REG_EXPR,       /* value is what the expression gives */
};

struct reg_rule {
	uint8_t reg;  /* DWARF number */
	uint8_t kind; /* enum reg_kind */
	uint16_t expr_len;
	int32_t offset; /* or register number, or start of the expression in the section */
};

#define RULE_MAX_REGS 34

struct unwind_rule {
	uint8_t cfa_kind; /* enum cfa_kind */
	uint8_t cfa_reg;
	uint8_t reg_count;
	bool signal_frame; /* the caller's pc is exact, not a return address */
	bool debug_frame;  /* expressions lie in .debug_frame, else in .eh_frame */
	bool ra_mangled;   /* aarch64: return address is signed (DW_CFA_AARCH64_negate_ra_state) */
	uint8_t ra_reg;    /* DWARF number of the return address column */
	uint8_t pad;
	uint16_t cfa_expr_len;
	uint16_t pad2;
	int32_t cfa_offset; /* or start of the expression in the section */
	struct reg_rule regs[RULE_MAX_REGS]; /* the first reg_count, ascending by reg */
};

#endif
