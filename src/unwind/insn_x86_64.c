/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * x86-64 instructions in 64-bit mode: lengths of all of them up to AVX-512, and of those that
 * programs use what they do to the stack and to preserved registers (Intel SDM volume 2, chapter 2
 * for the encoding, appendix A for the opcode maps).
 */
#include "unwind/insn.h"

#include <stdbool.h>

#include "unwind/arch.h"

#define BIT(n) (1ULL << (n))
#define MAX_LENGTH 15

/* What follows each opcode of a map:
 *	.  nothing         m  ModRM                    p  it is a prefix
 *	b  8 bits          B  ModRM, 8 bits            E  another map begins
 *	w  16 bits         z  32 bits, 16 after 66     x  no instruction
 *	e  16 and 8 bits   Z  ModRM, as z              j  32 bits in any case
 *	a  an address      v  as z, 64 after REX.W     g, G  ModRM, and as b, z for test */
static const char one_byte[] =
	"mmmmbzxxmmmmbzxE" "mmmmbzxxmmmmbzxx" "mmmmbzpxmmmmbzpx" "mmmmbzpxmmmmbzpx"
	"pppppppppppppppp" "................" "xxEmppppzZbB...." "bbbbbbbbbbbbbbbb"
	"BZxBmmmmmmmmmmmm" "..........x....." "aaaa....bz......" "bbbbbbbbvvvvvvvv"
	"BBw.EEBZe.w..bx." "mmmmxxx.mmmmmmmm" "bbbbbbbbjjxb...." "p.pp..gG......mm";
static const char map_0f[] =
	"mmmmx.....x.xm.B" "mmmmmmmmmmmmmmmm" "mmmmxxxxmmmmmmmm" "........ExExxxxx"
	"mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "BBBBmmm.mmmmmmmm"
	"jjjjjjjjjjjjjjjj" "mmmmmmmmmmmmmmmm" "...mBmxx...mBmmm" "mmmmmmmmmmBmmmmm"
	"mmBmBBBm........" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm" "mmmmmmmmmmmmmmmm";

enum map { MAP_ONE_BYTE, MAP_0F, MAP_0F38, MAP_0F3A };

struct decoder {
	const uint8_t *code;
	size_t len, used;
	bool bad;
	bool rex, w, r, x, b;	/* REX or what VEX says in its place */
	bool vex, evex;
	bool size16, addr32, f2, f3, segment;
	uint8_t vvvv;
	uint8_t map, opcode;
	bool has_modrm, has_index, rip_relative;
	uint8_t mod, reg, rm; /* with the extensions of REX */
	uint8_t base;	      /* hardware number; ARCH_NO_REG: none */
	int64_t disp, imm;
};

static uint8_t take(struct decoder *d)
{
	if (d->used >= d->len || d->used >= MAX_LENGTH) {
		d->bad = true;
		return 0;
	}
	return d->code[d->used++];
}

/* A signed number of `bytes` bytes, little-endian. */
static int64_t take_signed(struct decoder *d, unsigned bytes)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < bytes; i++)
		v |= (uint64_t)take(d) << (8 * i);
	return bytes < 8 ? (int64_t)(v << (64 - 8 * bytes)) >> (64 - 8 * bytes) : (int64_t)v;
}

/* Legacy prefixes and REX; returns the byte behind them. */
static uint8_t take_prefixes(struct decoder *d)
{
	for (;;) {
		uint8_t byte = take(d);

		switch (byte) {
		case 0x66:
			d->size16 = true;
			break;
		case 0x67:
			d->addr32 = true;
			break;
		case 0xf2:
			d->f2 = true;
			break;
		case 0xf3:
			d->f3 = true;
			break;
		case 0x64:
		case 0x65:
			d->segment = true;
			break;
		case 0xf0:
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x3e:
			break;
		default:
			if ((byte & 0xf0) != 0x40)
				return byte;
			d->rex = true;
			d->w = byte & 8;
			d->r = byte & 4;
			d->x = byte & 2;
			d->b = byte & 1;
			return take(d);
		}
		if (d->bad)
			return 0;
	}
}

static void set_pp(struct decoder *d, unsigned pp)
{
	d->size16 = pp == 1;
	d->f3 = pp == 2;
	d->f2 = pp == 3;
}

/* VEX (2.3.5) and EVEX (2.7.1): prefixes, REX and the map in 2 to 4 bytes. */
static void take_vex(struct decoder *d, uint8_t first)
{
	uint8_t p0 = take(d), p1 = first == 0xc5 ? p0 : take(d);

	d->vex = true;
	d->evex = first == 0x62;
	d->r = !(p0 & 0x80);
	d->map = MAP_0F;
	if (first != 0xc5) {
		d->x = !(p0 & 0x40);
		d->b = !(p0 & 0x20);
		d->w = p1 & 0x80;
		d->map = p0 & (d->evex ? 7 : 31);
		/* 5 and 6: half-precision numbers; built like the two maps below. */
		if (d->evex && (d->map == 5 || d->map == 6))
			d->map -= 4;
		if (d->map < MAP_0F || d->map > MAP_0F3A)
			d->bad = true;
	}
	d->vvvv = (uint8_t)(~p1 >> 3 & 15);
	set_pp(d, p1 & 3);
	if (d->evex)
		take(d);
	d->opcode = take(d);
}

static void take_opcode(struct decoder *d)
{
	uint8_t byte = take_prefixes(d);

	d->opcode = byte;
	if (byte == 0xc4 || byte == 0xc5 || byte == 0x62) {
		d->bad |= d->rex;
		take_vex(d, byte);
		return;
	}
	if (byte != 0x0f)
		return;
	d->map = MAP_0F;
	d->opcode = take(d);
	if (d->opcode == 0x38 || d->opcode == 0x3a) {
		d->map = d->opcode == 0x38 ? MAP_0F38 : MAP_0F3A;
		d->opcode = take(d);
	}
}

static char operands(const struct decoder *d)
{
	char form;

	if (d->map == MAP_0F38)
		return 'm';
	if (d->map == MAP_0F3A)
		return 'B';
	form = d->map == MAP_0F ? map_0f[d->opcode] : one_byte[d->opcode];
	/* 80-8f and a few others mean something else there, always with ModRM. */
	return d->vex && d->map == MAP_0F && (form == 'j' || form == 'x') ? 'm' : form;
}

static void take_modrm(struct decoder *d)
{
	uint8_t modrm = take(d), sib = 0;

	d->has_modrm = true;
	d->mod = modrm >> 6;
	d->reg = (uint8_t)((modrm >> 3 & 7) | d->r << 3);
	d->rm = (uint8_t)((modrm & 7) | d->b << 3);
	d->base = ARCH_NO_REG;
	if (d->mod == 3)
		return;
	d->base = d->rm;
	if ((modrm & 7) == 4) {
		sib = take(d);
		d->base = (uint8_t)((sib & 7) | d->b << 3);
		d->has_index = (sib >> 3 & 7) != 4 || d->x;
		if (d->mod == 0 && (sib & 7) == 5) {
			d->base = ARCH_NO_REG;
			d->disp = take_signed(d, 4);
		}
	} else if (d->mod == 0 && (modrm & 7) == 5) {
		d->base = ARCH_NO_REG;
		d->rip_relative = true;
		d->disp = take_signed(d, 4);
	}
	if (d->mod == 1)
		d->disp = take_signed(d, 1);
	else if (d->mod == 2)
		d->disp = take_signed(d, 4);
}

static void take_operands(struct decoder *d)
{
	const unsigned z = d->size16 && !d->w ? 2 : 4;
	const char form = operands(d);

	switch (form) {
	case '.':
		break;
	case 'm':
		take_modrm(d);
		break;
	case 'B':
		take_modrm(d);
		d->imm = take_signed(d, 1);
		break;
	case 'b':
		d->imm = take_signed(d, 1);
		break;
	case 'w':
		d->imm = take_signed(d, 2);
		break;
	case 'e':
		d->imm = take_signed(d, 2);
		take(d);
		break;
	case 'Z':
		take_modrm(d);
		d->imm = take_signed(d, z);
		break;
	case 'z':
		d->imm = take_signed(d, z);
		break;
	case 'j':
		d->imm = take_signed(d, 4);
		break;
	case 'v':
		d->imm = take_signed(d, d->w ? 8 : z);
		break;
	case 'a':
		d->imm = take_signed(d, d->addr32 ? 4 : 8);
		break;
	case 'g':
	case 'G':
		take_modrm(d);
		if ((d->reg & 7) < 2)
			d->imm = take_signed(d, form == 'g' ? 1 : z);
		break;
	default:
		d->bad = true;
		break;
	}
}

/* ---- what it does ---- */

/* The number DWARF gives a register (psABI, figure 3.36). */
static uint8_t dwarf(unsigned hardware)
{
	static const uint8_t low[] = {0, 2, 1, 3, 7, 6, 4, 5};

	return hardware < 8 ? low[hardware] : (uint8_t)hardware;
}

/* Does the instruction write registers of one byte? Without REX 4 to 7 are ah, ch, dh and bh then. */
static bool writes_bytes(const struct decoder *d)
{
	if (d->vex || d->rex)
		return false;
	if (d->map == MAP_0F)
		return d->opcode >> 4 == 9 || d->opcode == 0xb0 || d->opcode == 0xc0;
	if (d->map != MAP_ONE_BYTE)
		return false;
	switch (d->opcode) {
	case 0x00 ... 0x3f:
	case 0x80 ... 0x8a:
	case 0xc0 ... 0xc6:
	case 0xd0 ... 0xd3:
	case 0xf6:
	case 0xfe:
		return !(d->opcode & 1);
	case 0xb0 ... 0xb7:
		return true;
	default:
		return false;
	}
}

static uint64_t written(const struct decoder *d, unsigned hardware)
{
	return BIT(dwarf(hardware >= 4 && writes_bytes(d) ? hardware - 4 : hardware));
}

static uint64_t reg_bit(const struct decoder *d)
{
	return written(d, d->reg);
}

static uint64_t rm_bit(const struct decoder *d)
{
	return d->mod == 3 ? written(d, d->rm) : 0;
}

/* Memory at a fixed distance from rsp or rbp. */
static bool is_stack_word(const struct decoder *d)
{
	return d->mod != 3 && !d->has_index && !d->segment && !d->addr32 &&
	       (d->base == 4 || d->base == 5);
}

static void add(struct insn *i, unsigned to, unsigned from, int64_t imm)
{
	i->op = INSN_ADD;
	i->reg = dwarf(to);
	i->base = dwarf(from);
	i->imm = imm;
}

static void push(struct insn *i, uint8_t reg)
{
	i->op = INSN_STORE;
	i->reg = reg;
	i->base = UNWIND_X86_RSP;
	i->index = INSN_PRE_INDEX;
	i->imm = -8;
}

static void pop(struct insn *i, uint8_t reg)
{
	i->op = INSN_LOAD;
	i->reg = reg;
	i->base = UNWIND_X86_RSP;
	i->index = INSN_POST_INDEX;
	i->imm = 8;
}

static void move_word(const struct decoder *d, struct insn *i, enum insn_op op)
{
	if (d->mod == 3) {
		add(i, op == INSN_LOAD ? d->reg : d->rm, op == INSN_LOAD ? d->rm : d->reg, 0);
	} else if (is_stack_word(d)) {
		i->op = op;
		i->reg = dwarf(d->reg);
		i->base = dwarf(d->base);
		i->imm = d->disp;
	} else if (op == INSN_LOAD) {
		i->writes = reg_bit(d);
	}
}

/* 89, 8b: mov; 8d: lea; 81, 83: arithmetic with a constant. */
static void wide_effects(const struct decoder *d, struct insn *i)
{
	unsigned group = d->reg & 7;

	switch (d->opcode) {
	case 0x89:
		move_word(d, i, INSN_STORE);
		break;
	case 0x8b:
		move_word(d, i, INSN_LOAD);
		break;
	case 0x8d:
		if (d->mod != 3 && d->base != ARCH_NO_REG && !d->has_index && !d->addr32)
			add(i, d->reg, d->base, d->disp);
		else
			i->writes = reg_bit(d);
		break;
	default:
		if (d->mod == 3 && (group == 0 || group == 5))
			add(i, d->rm, d->rm, group ? -d->imm : d->imm);
		else if (group != 7)
			i->writes = rm_bit(d);
		break;
	}
}

/* ff: inc, dec, call, call far, jmp, jmp far, push */
static void group_ff(const struct decoder *d, struct insn *i)
{
	switch (d->reg & 7) {
	case 0:
	case 1:
		i->writes = rm_bit(d);
		break;
	case 2:
	case 3:
		i->op = INSN_CALL;
		break;
	case 4:
	case 5:
		if (d->mod == 3)
			i->op = INSN_JUMP_REG;
		else
			i->op = d->has_index || (d->base == ARCH_NO_REG && !d->rip_relative)
				? INSN_JUMP_TABLE
				: INSN_JUMP_SLOT;
		break;
	case 6:
		push(i, ARCH_NO_REG);
		break;
	default:
		i->len = 0;
		break;
	}
}

static bool control_effects(const struct decoder *d, struct insn *i)
{
	switch (d->opcode) {
	case 0x70 ... 0x7f:
	case 0xe0 ... 0xe3:
		i->op = INSN_BRANCH;
		break;
	case 0xe8:
		i->op = INSN_CALL;
		break;
	case 0xe9:
	case 0xeb:
		i->op = INSN_JUMP;
		break;
	case 0xc2:
	case 0xc3:
	case 0xca:
	case 0xcb:
		i->op = INSN_RETURN;
		return true;
	case 0xcc: /* int3 */
		i->padding = true;
		i->op = INSN_STOP;
		return true;
	case 0xf1: /* int1 */
	case 0xf4: /* hlt */
	case 0xcf: /* iret */
		i->op = INSN_STOP;
		return true;
	case 0xff:
		group_ff(d, i);
		return true;
	default:
		return false;
	}
	i->target += (uint64_t)d->imm;
	return true;
}

static bool stack_effects(const struct decoder *d, struct insn *i)
{
	unsigned low = (d->opcode & 7u) | (unsigned)d->b << 3;

	switch (d->opcode) {
	case 0x50 ... 0x57:
		push(i, dwarf(low));
		break;
	case 0x58 ... 0x5f:
		pop(i, dwarf(low));
		break;
	case 0x68: /* push of a constant */
	case 0x6a:
	case 0x9c: /* pushf */
		push(i, ARCH_NO_REG);
		break;
	case 0x8f: /* pop to memory */
		pop(i, d->mod == 3 ? dwarf(d->rm) : ARCH_NO_REG);
		break;
	case 0x9d: /* popf */
		pop(i, ARCH_NO_REG);
		break;
	case 0xc9:
		i->op = INSN_LEAVE;
		return true;
	case 0xc8: /* enter */
		i->writes = BIT(UNWIND_X86_RSP) | BIT(UNWIND_X86_RBP);
		return true;
	default:
		return false;
	}
	if (d->size16) { /* two bytes instead of eight: nothing that compilers do */
		i->op = INSN_PLAIN;
		i->writes = BIT(UNWIND_X86_RSP);
	}
	return true;
}

static void one_byte_effects(const struct decoder *d, struct insn *i)
{
	unsigned low = (d->opcode & 7u) | (unsigned)d->b << 3;

	if (control_effects(d, i) || stack_effects(d, i))
		return;
	switch (d->opcode) {
	case 0x00 ... 0x37: /* arithmetic; the last eight, 38 to 3f, compare only */
		if ((d->opcode & 7) < 4)
			i->writes = d->opcode & 2 ? reg_bit(d) : rm_bit(d);
		break;
	case 0x80:
	case 0x81:
	case 0x83:
	case 0x89:
	case 0x8b:
	case 0x8d:
		if (d->w)
			wide_effects(d, i);
		else if (d->opcode == 0x8b || d->opcode == 0x8d)
			i->writes = reg_bit(d);
		else if (d->opcode == 0x89 || (d->reg & 7) != 7)
			i->writes = rm_bit(d);
		break;
	case 0x63:
	case 0x69:
	case 0x6b:
	case 0x8a:
		i->writes = reg_bit(d);
		break;
	case 0x86:
	case 0x87:
		i->writes = reg_bit(d) | rm_bit(d);
		break;
	case 0x90:
		i->padding = !d->b && !d->f3;
		break;
	case 0x91 ... 0x97:
	case 0xb0 ... 0xbf:
		i->writes = written(d, low);
		break;
	case 0x88:
	case 0x8c:
	case 0xc0:
	case 0xc1:
	case 0xc6:
	case 0xc7:
	case 0xd0 ... 0xd3:
	case 0xfe:
		i->writes = rm_bit(d);
		break;
	case 0xf6:
	case 0xf7:
		if ((d->reg & 7) == 2 || (d->reg & 7) == 3) /* not, neg */
			i->writes = rm_bit(d);
		break;
	default:
		break;
	}
}

static void map_0f_effects(const struct decoder *d, struct insn *i)
{
	switch (d->opcode) {
	case 0x0b: /* ud2 */
	case 0xb9:
	case 0xff:
		i->op = INSN_STOP;
		break;
	case 0x18 ... 0x1f:
		i->padding = d->opcode == 0x1f;
		i->entry = d->opcode == 0x1e && d->f3 && d->mod == 3 && d->reg == 7 && d->rm == 2;
		break;
	case 0x80 ... 0x8f:
		i->op = INSN_BRANCH;
		i->target += (uint64_t)d->imm;
		break;
	case 0xa0: /* push and pop of segment registers */
	case 0xa8:
		push(i, ARCH_NO_REG);
		break;
	case 0xa1:
	case 0xa9:
		pop(i, ARCH_NO_REG);
		break;
	case 0xa2: /* cpuid */
		i->writes = BIT(3);
		break;
	case 0x02:
	case 0x03:
	case 0x2c:
	case 0x2d:
	case 0x40 ... 0x50: /* cmov; movmskps */
	case 0xaf:
	case 0xb2:
	case 0xb4 ... 0xb8:
	case 0xbc ... 0xbf:
	case 0xc5:
	case 0xd7:
		i->writes = reg_bit(d);
		break;
	case 0x7e: /* movd; with f3 to a vector register */
		i->writes = d->f3 ? 0 : rm_bit(d);
		break;
	case 0xba:
		i->writes = (d->reg & 7) == 4 ? 0 : rm_bit(d);
		break;
	case 0x90 ... 0x9f:
	case 0xa4:
	case 0xa5:
	case 0xab ... 0xad:
	case 0xb0:
	case 0xb1:
	case 0xb3:
	case 0xbb:
	case 0xc7:
		i->writes = rm_bit(d);
		break;
	case 0xc0:
	case 0xc1:
		i->writes = reg_bit(d) | rm_bit(d);
		break;
	case 0xc8 ... 0xcf: /* bswap */
		i->writes = BIT(dwarf((d->opcode & 7u) | (unsigned)d->b << 3));
		break;
	default:
		break;
	}
}

/* Of vector instructions those that give a number to a general register. */
static void vector_effects(const struct decoder *d, struct insn *i)
{
	if (d->map == MAP_0F) {
		switch (d->opcode) {
		case 0x2c:
		case 0x2d:
		case 0x50:
		case 0x93: /* kmov */
		case 0xc5:
		case 0xd7:
			i->writes = reg_bit(d);
			break;
		case 0x78:
		case 0x79:
			i->writes = d->evex ? reg_bit(d) : 0;
			break;
		case 0x7e:
			i->writes = d->f3 ? 0 : rm_bit(d);
			break;
		default:
			break;
		}
	} else if (d->map == MAP_0F38 && d->opcode >= 0xf2 && d->opcode <= 0xf7) {
		i->writes = d->opcode == 0xf3 ? 0 : reg_bit(d); /* BMI1, BMI2 */
		if (d->opcode == 0xf3 || d->opcode == 0xf6)
			i->writes |= BIT(dwarf(d->vvvv));
	} else if (d->map == MAP_0F3A && d->opcode == 0xf0) {
		i->writes = reg_bit(d); /* rorx */
	}
}

struct insn insn_x86_64(const uint8_t *code, size_t len, uint64_t at)
{
	struct decoder d = {.code = code, .len = len, .map = MAP_ONE_BYTE};
	struct insn i = {
		.op = INSN_PLAIN, .reg = ARCH_NO_REG, .reg2 = ARCH_NO_REG, .base = ARCH_NO_REG};

	take_opcode(&d);
	if (!d.bad)
		take_operands(&d);
	if (d.bad)
		return i;
	i.len = (uint8_t)d.used;
	i.target = d.map == MAP_ONE_BYTE || d.map == MAP_0F ? at + d.used : 0;
	if (d.vex)
		vector_effects(&d, &i);
	else if (d.map == MAP_0F)
		map_0f_effects(&d, &i);
	else if (d.map == MAP_ONE_BYTE)
		one_byte_effects(&d, &i);
	else if (d.map == MAP_0F38 && (d.opcode == 0xf0 || d.opcode == 0xf1 || d.opcode == 0xf6))
		i.writes = reg_bit(&d); /* movbe, crc32, adcx */
	if (d.map == MAP_0F3A && d.opcode >= 0x14 && d.opcode <= 0x17)
		i.writes = rm_bit(&d); /* pextr */
	if (i.op != INSN_CALL && i.op != INSN_JUMP && i.op != INSN_BRANCH)
		i.target = 0;
	else if (d.map == MAP_ONE_BYTE && d.opcode == 0xff)
		i.target = 0;
	return i;
}
