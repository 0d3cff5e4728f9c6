/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One machine instruction, reduced to what it does to the stack: where it goes next, and what the
 * registers are afterwards that a function must give back to its caller.
 *
 * A decoder takes bytes and never fails: what it does not know has length 0. What an instruction
 * does to memory is told only for words at a fixed distance from the stack or frame pointer.
 */
#ifndef SONDE_UNWIND_INSN_H
#define SONDE_UNWIND_INSN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define INSN_MAX 16 /* bytes a decoder wants to see; fewer may do */

enum insn_op {
	INSN_PLAIN,	/* nothing but `writes`; goes on behind it */
	INSN_ADD,	/* reg = base + imm */
	INSN_LOAD,	/* reg (and reg2, from the next word) = the word at base + imm */
	INSN_STORE,	/* the other way round */
	INSN_LEAVE,	/* sp = fp, then fp is popped (x86-64) */
	INSN_CALL,	/* of `target`, 0: not known; comes back */
	INSN_BRANCH,	/* to `target`, or on */
	INSN_JUMP,	/* to `target` */
	INSN_JUMP_TABLE, /* to one of several places in this function, as a switch does */
	INSN_JUMP_REG,	/* to an address in a register: another function, or as above */
	INSN_JUMP_SLOT, /* to another function whose address stands in memory */
	INSN_RETURN,
	INSN_STOP, /* a trap: nothing comes behind */
};

/* How `base` changes with a load or store. */
enum insn_index {
	INSN_NO_INDEX,
	INSN_PRE_INDEX,	 /* base += imm, then the word is at base */
	INSN_POST_INDEX, /* the word is at base, then base += imm */
};

struct insn {
	uint8_t len; /* 0: no instruction, or one that cannot be told */
	uint8_t op;  /* enum insn_op */
	uint8_t reg, reg2, base; /* DWARF numbers; ARCH_NO_REG: none, or of no interest */
	uint8_t index;		 /* enum insn_index */
	bool padding;		 /* what linkers and compilers put between functions */
	bool entry;		 /* stands where functions are entered, and nowhere else */
	int64_t imm;
	uint64_t target;
	uint64_t writes; /* registers that hold something else afterwards, by bit */
};

/* The instruction that `code` begins with and that stands at `at`. */
struct insn insn_x86_64(const uint8_t *code, size_t len, uint64_t at);
struct insn insn_aarch64(const uint8_t *code, size_t len, uint64_t at);

#endif
