/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A64 instructions as far as they move the stack pointer, the frame record (x29, x30) or the flow
 * of control (Arm ARM, C4.1 for the classes, C6.2 for the encodings).
 */
#include "unwind/insn.h"

#include "unwind/arch.h"

#define SP 31
#define ZR 31

static int64_t sign_extend(uint64_t v, unsigned bits)
{
	return (int64_t)(v << (64 - bits)) >> (64 - bits);
}

static uint32_t field(uint32_t word, unsigned low, unsigned bits)
{
	return word >> low & ((1u << bits) - 1);
}

static uint64_t branch_target(uint64_t at, uint32_t imm, unsigned bits)
{
	return at + (uint64_t)sign_extend(imm, bits) * 4;
}

/* Branches, exceptions, system: bits 28-26 are 101. */
static void control(uint32_t word, uint64_t at, struct insn *i)
{
	uint32_t opc = field(word, 21, 4);

	if ((word & 0x7c000000) == 0x14000000) { /* b, bl */
		i->op = word >> 31 ? INSN_CALL : INSN_JUMP;
		i->target = branch_target(at, field(word, 0, 26), 26);
	} else if ((word & 0xff000000) == 0x54000000 || (word & 0x7e000000) == 0x34000000) {
		i->op = INSN_BRANCH; /* b.cond, cbz, cbnz */
		i->target = branch_target(at, field(word, 5, 19), 19);
	} else if ((word & 0x7e000000) == 0x36000000) { /* tbz, tbnz */
		i->op = INSN_BRANCH;
		i->target = branch_target(at, field(word, 5, 14), 14);
	} else if ((word & 0xfe000000) == 0xd6000000) { /* to registers, also signed ones */
		opc &= 7;
		i->op = opc == 0   ? INSN_JUMP_REG
			: opc == 1 ? INSN_CALL
			: opc == 2 ? INSN_RETURN
				   : INSN_STOP;
	} else if ((word & 0xff000000) == 0xd4000000 && (word & 0x1f) != 1) {
		i->op = INSN_STOP; /* brk, hlt; svc is none */
	}
}

/* What a load or store of registers does; `i` has base, index and imm. */
static void transfer(struct insn *i, bool load, unsigned reg, unsigned reg2)
{
	i->op = load ? INSN_LOAD : INSN_STORE;
	i->reg = reg == ZR ? ARCH_NO_REG : (uint8_t)reg;
	i->reg2 = reg2 == ZR ? ARCH_NO_REG : (uint8_t)reg2;
}

/* stp, ldp: bits 29-27 are 101. */
static void pair(uint32_t word, struct insn *i)
{
	static const uint8_t forms[] = {
		INSN_NO_INDEX, INSN_POST_INDEX, INSN_NO_INDEX, INSN_PRE_INDEX};
	bool load = word >> 22 & 1, vector = word >> 26 & 1;
	unsigned size = field(word, 30, 2), base = field(word, 5, 5);
	/* bytes of one register: 4, 8 of x; 4, 8, 16 of v */
	unsigned shift = vector ? 2 + size : size == 2 ? 3 : 2;
	uint64_t both = 1ULL << field(word, 0, 5) | 1ULL << field(word, 10, 5);

	i->index = forms[field(word, 23, 2)];
	i->base = (uint8_t)base;
	i->imm = sign_extend(field(word, 15, 7), 7) * (1 << shift);
	if (!vector && size == 2) {
		transfer(i, load, field(word, 0, 5), field(word, 10, 5));
		return;
	}
	transfer(i, load, ZR, ZR);
	if (load && !vector)
		i->writes = both & ~(1ULL << ZR);
}

/* str, ldr of one register: bits 29-27 are 111. */
static void single(uint32_t word, struct insn *i)
{
	unsigned size = field(word, 30, 2), opc = field(word, 22, 2), reg = field(word, 0, 5);
	bool vector = word >> 26 & 1, load = opc != 0, whole = !vector && size == 3 && opc < 2;
	unsigned form = field(word, 10, 2);

	if (vector)
		load = opc & 1;
	i->base = (uint8_t)field(word, 5, 5);
	if (word >> 24 & 1) { /* unsigned offset, counted in registers */
		i->imm = (int64_t)field(word, 10, 12) << (vector && opc > 1 ? 4 : size);
	} else if ((word >> 21 & 1) || form == 2) { /* register offset, atomics, unprivileged */
		whole = false;
		i->base = ARCH_NO_REG;
	} else {
		i->imm = sign_extend(field(word, 12, 9), 9);
		i->index = form == 1   ? INSN_POST_INDEX
			   : form == 3 ? INSN_PRE_INDEX
				       : INSN_NO_INDEX;
	}
	if (whole)
		transfer(i, load, reg, ZR);
	else if (i->base != ARCH_NO_REG && i->index != INSN_NO_INDEX)
		transfer(i, load, ZR, ZR);
	if (!whole && !vector && load && reg != ZR)
		i->writes = 1ULL << reg;
}

/* Loads and stores: bit 27 is 1, bit 25 is 0. */
static void memory(uint32_t word, struct insn *i)
{
	unsigned class = field(word, 27, 3);

	if (class == 5)
		pair(word, i);
	else if (class == 7)
		single(word, i);
	else if (!(word >> 26 & 1) && field(word, 0, 5) != ZR)
		i->writes = 1ULL << field(word, 0, 5) | /* literals, exclusives */
			    (field(word, 16, 5) == ZR ? 0 : 1ULL << field(word, 16, 5));
}

/* Data processing: add and sub of constants (100010 in bits 28-23) may be of sp. */
static void arithmetic(uint32_t word, struct insn *i)
{
	unsigned to = field(word, 0, 5), from = field(word, 5, 5);
	bool immediate = field(word, 23, 6) == 0x22, sets_flags = word >> 29 & 1;
	int64_t imm = (int64_t)field(word, 10, 12) << (word >> 22 & 1 ? 12 : 0);

	if (immediate && word >> 31 && !sets_flags) {
		i->op = INSN_ADD;
		i->reg = (uint8_t)to;
		i->base = (uint8_t)from;
		i->imm = word >> 30 & 1 ? -imm : imm;
		return;
	}
	/* mov x29, x0 and the like: zr is no register, but and, orr and eor of a constant, and add
	 * with an extended register, write sp by that number. */
	if (to != ZR || (immediate && !sets_flags) ||
		(field(word, 23, 6) == 0x24 && field(word, 29, 2) != 3) ||
		((word & 0x3fe00000) == 0x0b200000))
		i->writes = 1ULL << to;
}

struct insn insn_aarch64(const uint8_t *code, size_t len, uint64_t at)
{
	struct insn i = {
		.op = INSN_PLAIN, .reg = ARCH_NO_REG, .reg2 = ARCH_NO_REG, .base = ARCH_NO_REG};

	if (len < 4)
		return i;

	uint32_t word = (uint32_t)code[0] | (uint32_t)code[1] << 8 | (uint32_t)code[2] << 16 |
			(uint32_t)code[3] << 24;

	i.len = 4;
	i.padding = word == 0xd503201f || !word; /* nop, udf #0 */
	i.entry = word == 0xd503233f || word == 0xd503237f || word == 0xd503245f; /* pac, bti c */
	if (!(word >> 16)) /* udf */
		i.op = INSN_STOP;
	else if ((word & 0x1c000000) == 0x14000000)
		control(word, at, &i);
	else if ((word & 0x0a000000) == 0x08000000)
		memory(word, &i);
	else if ((word & 0x1c000000) == 0x10000000 || (word & 0x0e000000) == 0x0a000000)
		arithmetic(word, &i);
	return i;
}
