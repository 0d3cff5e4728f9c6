/* SPDX-License-Identifier: BSD-2-Clause */
/* Instructions, and the frames that code has by what it does. */
#include "test.h"

#include "unwind/arch.h"
#include "unwind/flow.h"
#include "unwind/insn.h"

#define RBX 3
#define RBP UNWIND_X86_RBP
#define RSP UNWIND_X86_RSP
#define R12 12
#define NONE ARCH_NO_REG
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* ---- x86-64 ---- */

struct x86_row {
	const char *bytes;
	unsigned len;
	uint8_t op, reg, base;
	int64_t imm;
	uint64_t writes;
};

static void check_x86(const struct x86_row *rows, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		const struct x86_row *r = &rows[i];
		struct insn got = insn_x86_64((const uint8_t *)r->bytes, 16, 0x1000);
		int before = test_failures_;

		check_u64(got.len, r->len);
		check_u64(got.op, r->op);
		check_u64(got.reg, r->reg);
		check_u64(got.base, r->base);
		check_u64((uint64_t)got.imm, (uint64_t)r->imm);
		check_u64(got.writes, r->writes);
		if (test_failures_ != before)
			printf("row %zu\n", i);
	}
}

#define PAD "\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90\x90"
#define ROW(bytes, ...) {bytes PAD, sizeof(bytes) - 1, __VA_ARGS__}

TEST(x86_stack_instructions)
{
	static const struct x86_row rows[] = {
		ROW("\x55", INSN_STORE, RBP, RSP, -8, 0),
		ROW("\x41\x54", INSN_STORE, R12, RSP, -8, 0),
		ROW("\x6a\x01", INSN_STORE, NONE, RSP, -8, 0),
		ROW("\x68\x01\x02\x03\x04", INSN_STORE, NONE, RSP, -8, 0),
		ROW("\xff\x35\x01\x02\x03\x04", INSN_STORE, NONE, RSP, -8, 0), /* push x(%rip) */
		ROW("\x5d", INSN_LOAD, RBP, RSP, 8, 0),
		ROW("\x41\x5c", INSN_LOAD, R12, RSP, 8, 0),
		ROW("\x48\x83\xec\x18", INSN_ADD, RSP, RSP, -0x18, 0),
		ROW("\x48\x81\xc4\x00\x01\x00\x00", INSN_ADD, RSP, RSP, 0x100, 0),
		ROW("\x48\x83\xc4\x80", INSN_ADD, RSP, RSP, -0x80, 0),
		ROW("\x48\x83\xe4\xf0", INSN_PLAIN, NONE, NONE, 0, 1 << RSP), /* and */
		ROW("\x48\x83\xf8\x10", INSN_PLAIN, NONE, NONE, 0, 0),	      /* cmp */
		ROW("\x48\x29\xc4", INSN_PLAIN, NONE, NONE, 0, 1 << RSP),     /* sub %rax,%rsp */
		ROW("\x48\x89\xe5", INSN_ADD, RBP, RSP, 0, 0),
		ROW("\x48\x8b\xec", INSN_ADD, RBP, RSP, 0, 0),
		ROW("\x48\x89\xec", INSN_ADD, RSP, RBP, 0, 0),
		ROW("\x48\x8d\x65\xd8", INSN_ADD, RSP, RBP, -0x28, 0),
		ROW("\x48\x8d\x64\x24\x08", INSN_ADD, RSP, RSP, 8, 0),
		ROW("\x48\x8d\xa4\x24\x00\x01\x00\x00", INSN_ADD, RSP, RSP, 0x100, 0),
		ROW("\x48\x8d\x1c\xc4", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* (%rsp,%rax,8) */
		ROW("\x48\x89\x5c\x24\x10", INSN_STORE, RBX, RSP, 0x10, 0),
		ROW("\x48\x8b\x5d\xf8", INSN_LOAD, RBX, RBP, -8, 0),
		ROW("\x4c\x8b\xa4\x24\x00\x01\x00\x00", INSN_LOAD, R12, RSP, 0x100, 0),
		ROW("\x8b\x5c\x24\x10", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* 32 bits */
		ROW("\x64\x48\x8b\x1c\x25\x28\x00\x00\x00", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\xc9", INSN_LEAVE, NONE, NONE, 0, 0),
		ROW("\xc8\x10\x00\x00", INSN_PLAIN, NONE, NONE, 0, 1 << RSP | 1 << RBP),
	};

	check_x86(rows, COUNT(rows));
}

/* Lengths, and which register is written. */
TEST(x86_other_instructions)
{
	static const struct x86_row rows[] = {
		ROW("\xc3", INSN_RETURN, NONE, NONE, 0, 0),
		ROW("\xf3\xc3", INSN_RETURN, NONE, NONE, 0, 0),
		ROW("\xc2\x08\x00", INSN_RETURN, NONE, NONE, 0, 0),
		ROW("\x0f\x0b", INSN_STOP, NONE, NONE, 0, 0),
		ROW("\xf4", INSN_STOP, NONE, NONE, 0, 0),
		ROW("\xff\xd0", INSN_CALL, NONE, NONE, 0, 0),
		ROW("\xff\x54\x24\x08", INSN_CALL, NONE, NONE, 0, 0),
		ROW("\xff\xe0", INSN_JUMP_REG, NONE, NONE, 0, 0),
		ROW("\x3e\xff\xe0", INSN_JUMP_REG, NONE, NONE, 0, 0),
		ROW("\xff\x25\x00\x00\x00\x00", INSN_JUMP_SLOT, NONE, NONE, 0, 0),
		ROW("\xff\x60\x18", INSN_JUMP_SLOT, NONE, NONE, 0, 0),
		ROW("\xff\x24\xc5\x00\x10\x40\x00", INSN_JUMP_TABLE, NONE, NONE, 0, 0),
		ROW("\x41\xff\x24\xda", INSN_JUMP_TABLE, NONE, NONE, 0, 0),
		ROW("\x0f\x05", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x48\xb8\x01\x02\x03\x04\x05\x06\x07\x08", INSN_PLAIN, NONE, NONE, 0, 1),
		ROW("\x66\xbb\x01\x02", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x48\xc7\xc3\x01\x02\x03\x04", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x80\xcc\x0c", INSN_PLAIN, NONE, NONE, 0, 1),	     /* or $12,%ah */
		ROW("\xb7\x0c", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),	     /* mov $12,%bh */
		ROW("\x40\x80\xcc\x0c", INSN_PLAIN, NONE, NONE, 0, 1 << RSP), /* %spl */
		ROW("\x01\xd8", INSN_PLAIN, NONE, NONE, 0, 1),	/* add %ebx,%eax */
		ROW("\x03\xd8", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x39\xc3", INSN_PLAIN, NONE, NONE, 0, 0),	/* cmp */
		ROW("\xf6\x03\x01", INSN_PLAIN, NONE, NONE, 0, 0),	/* testb $1,(%rbx) */
		ROW("\xf7\xc3\x01\x02\x03\x04", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\xf7\xdb", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* neg */
		ROW("\x0f\xb6\xd8", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x0f\xa2", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x0f\x44\xd8", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x0f\x94\xc3", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x0f\xcb", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* bswap */
		ROW("\x0f\x28\xeb", INSN_PLAIN, NONE, NONE, 0, 0),    /* movaps %xmm3,%xmm5 */
		ROW("\x66\x0f\x7e\xeb", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\xf3\x0f\x7e\xeb", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x66\x0f\xd7\xdd", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\x66\x0f\x70\xeb\x4e", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x66\x0f\x3a\x0f\xeb\x06", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x66\x0f\x38\x00\xeb", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\xf0\x0f\xb1\x0d\x00\x00\x00\x00", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x66\x2e\x0f\x1f\x84\x00\x00\x00\x00\x00", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\xc5\xf8\x77", INSN_PLAIN, NONE, NONE, 0, 0), /* vzeroupper */
		ROW("\xc5\xfe\x6f\x5c\x24\x10", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\xc5\xfd\xd7\xdd", INSN_PLAIN, NONE, NONE, 0, 1 << RBX),
		ROW("\xc4\xe3\x7d\x0f\xeb\x06", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\xc4\xe2\xf8\xf2\xd9", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* andn */
		ROW("\xc4\xe2\xe0\xf3\xd9", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* blsi */
		ROW("\xc4\xe3\xfb\xf0\xd9\x05", INSN_PLAIN, NONE, NONE, 0, 1 << RBX), /* rorx */
		ROW("\x62\xf1\xfe\x48\x6f\x5c\x24\x01", INSN_PLAIN, NONE, NONE, 0, 0),
		ROW("\x62\xf3\x75\x40\x3f\xc2\x00", INSN_PLAIN, NONE, NONE, 0, 0),
	};

	check_x86(rows, COUNT(rows));
}

TEST(x86_targets)
{
	static const struct {
		const char *bytes;
		uint8_t op;
		uint64_t target;
	} rows[] = {
		{"\xe8\x10\x00\x00\x00" PAD, INSN_CALL, 0x1015},
		{"\xe9\xfb\xff\xff\xff" PAD, INSN_JUMP, 0x1000},
		{"\xeb\x10" PAD, INSN_JUMP, 0x1012},
		{"\x74\xf0" PAD, INSN_BRANCH, 0xff2},
		{"\x0f\x85\x00\x01\x00\x00" PAD, INSN_BRANCH, 0x1106},
		{"\xe3\x02" PAD, INSN_BRANCH, 0x1004},
		{"\xff\xd0" PAD, INSN_CALL, 0},
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		struct insn got = insn_x86_64((const uint8_t *)rows[i].bytes, 16, 0x1000);

		check_u64(got.op, rows[i].op);
		check_u64(got.target, rows[i].target);
	}
}

/* Cut off anywhere an instruction is none; nothing is read behind the end. */
TEST(x86_instructions_cut_off)
{
	static const uint8_t insn[] = {0x66, 0x2e, 0x4c, 0x8d, 0xa4, 0x24, 1, 2, 3, 4};

	for (size_t len = 0; len < sizeof(insn); len++)
		check_u64(insn_x86_64(insn, len, 0).len, 0);
	check_u64(insn_x86_64(insn, sizeof(insn), 0).len, sizeof(insn));
	check_u64(insn_x86_64((const uint8_t *)"\x06" PAD, 16, 0).len, 0);
	check_u64(insn_x86_64((const uint8_t *)"\x0f\x04" PAD, 16, 0).len, 0);
	check_u64(insn_x86_64((const uint8_t *)"fffffffffffffff\x90", 16, 0).len, 0);
}

/* ---- aarch64 ---- */

TEST(a64_instructions)
{
	static const struct {
		uint32_t word;
		uint8_t op, reg, reg2, base, index;
		int64_t imm;
		uint64_t target, writes;
	} rows[] = {
		{0xa9be7bfd, INSN_STORE, 29, 30, 31, INSN_PRE_INDEX, -32, 0, 0},
		{0xa8c27bfd, INSN_LOAD, 29, 30, 31, INSN_POST_INDEX, 32, 0, 0},
		{0xa9017bfd, INSN_STORE, 29, 30, 31, INSN_NO_INDEX, 16, 0, 0},
		{0xa94153f3, INSN_LOAD, 19, 20, 31, INSN_NO_INDEX, 16, 0, 0},
		{0x6d0127e8, INSN_STORE, NONE, NONE, 31, INSN_NO_INDEX, 16, 0, 0},
		{0xf81f0ffe, INSN_STORE, 30, NONE, 31, INSN_PRE_INDEX, -16, 0, 0},
		{0xf84107fe, INSN_LOAD, 30, NONE, 31, INSN_POST_INDEX, 16, 0, 0},
		{0xf94007fe, INSN_LOAD, 30, NONE, 31, INSN_NO_INDEX, 8, 0, 0},
		{0xd10083ff, INSN_ADD, 31, NONE, 31, INSN_NO_INDEX, -32, 0, 0},
		{0x914007ff, INSN_ADD, 31, NONE, 31, INSN_NO_INDEX, 4096, 0, 0},
		{0x910003fd, INSN_ADD, 29, NONE, 31, INSN_NO_INDEX, 0, 0, 0},
		{0x910003bf, INSN_ADD, 31, NONE, 29, INSN_NO_INDEX, 0, 0, 0},
		{0xcb2063ff, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 1ULL << 31}, /* sub sp, sp, x0 */
		{0xaa0003fd, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 1ULL << 29}, /* mov x29, x0 */
		{0xeb01001f, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 0},		 /* cmp x0, x1 */
		{0xf1001c1f, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 0},		 /* cmp x0, #7 */
		{0xd65f03c0, INSN_RETURN, NONE, NONE, NONE, 0, 0, 0, 0},
		{0xd65f0bff, INSN_RETURN, NONE, NONE, NONE, 0, 0, 0, 0}, /* retaa */
		{0x94000004, INSN_CALL, NONE, NONE, NONE, 0, 0, 0x1010, 0},
		{0xd63f0000, INSN_CALL, NONE, NONE, NONE, 0, 0, 0, 0},
		{0x17ffffff, INSN_JUMP, NONE, NONE, NONE, 0, 0, 0xffc, 0},
		{0xd61f0200, INSN_JUMP_REG, NONE, NONE, NONE, 0, 0, 0, 0},
		{0x54000081, INSN_BRANCH, NONE, NONE, NONE, 0, 0, 0x1010, 0},
		{0xb4000080, INSN_BRANCH, NONE, NONE, NONE, 0, 0, 0x1010, 0},
		{0x36000080, INSN_BRANCH, NONE, NONE, NONE, 0, 0, 0x1010, 0},
		{0xd4000001, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 0}, /* svc */
		{0xd4200000, INSN_STOP, NONE, NONE, NONE, 0, 0, 0, 0},	/* brk */
		{0x00000000, INSN_STOP, NONE, NONE, NONE, 0, 0, 0, 0},
		{0xd503233f, INSN_PLAIN, NONE, NONE, NONE, 0, 0, 0, 0}, /* paciasp */
	};

	for (size_t i = 0; i < COUNT(rows); i++) {
		uint8_t code[4];
		int before = test_failures_;

		for (unsigned b = 0; b < 4; b++)
			code[b] = (uint8_t)(rows[i].word >> 8 * b);

		struct insn got = insn_aarch64(code, 4, 0x1000);

		check_u64(got.len, 4);
		check_u64(got.op, rows[i].op);
		check_u64(got.reg, rows[i].reg);
		check_u64(got.reg2, rows[i].reg2);
		check_u64(got.base, rows[i].base);
		check_u64(got.index, rows[i].index);
		check_u64((uint64_t)got.imm, (uint64_t)rows[i].imm);
		check_u64(got.target, rows[i].target);
		check_u64(got.writes, rows[i].writes);
		if (test_failures_ != before)
			printf("row %zu\n", i);
	}
	check_u64(insn_aarch64((const uint8_t *)"\x1f\x20\x03", 3, 0).len, 0);
}

/* ---- frames ---- */

#define CODE 0x1000ULL

struct code {
	const uint8_t *bytes;
	size_t len;
	uint64_t other; /* another function begins there */
};

static const uint8_t *read_code(void *ctx, uint64_t addr, size_t *ret_len)
{
	const struct code *c = (const struct code *)ctx;

	if (addr < CODE || addr - CODE >= c->len)
		return NULL;
	*ret_len = c->len - (addr - CODE);
	return c->bytes + (addr - CODE);
}

static bool is_start(void *ctx, uint64_t addr)
{
	return addr == ((const struct code *)ctx)->other;
}

/* The shape as text: "7+24 6@-16 3?": CFA = r7 + 24, r6 saved at CFA - 16, r3 lost; registers that
 * are kept are not named. */
static const char *text_of(const struct arch *arch, bool got, const struct frame_shape *s)
{
	static char text[200];
	int n;

	if (!got)
		return "none";
	n = snprintf(text, sizeof(text), "%u%+d", s->cfa_reg, s->cfa_offset);
	for (unsigned i = 1; i < arch->followed_count; i++) {
		if (s->regs[i].place == FLOW_SAVED)
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %u@%d",
				arch->followed[i], s->regs[i].offset);
		else if (s->regs[i].place == FLOW_LOST)
			n += snprintf(text + n, sizeof(text) - (size_t)n, " %u?", arch->followed[i]);
	}
	return text;
}

/* Asks both questions about the instruction at `pc` (from CODE); NULL: do not ask. */
static void check_shape(const struct arch *arch, struct code *c, uint64_t pc,
	const char *from_start, const char *to_return)
{
	struct flow_code code = {arch, c, read_code, is_start};
	struct frame_shape shape;

	if (from_start) {
		bool got = flow_from_start(&code, CODE, CODE + pc, &shape);

		check_str(text_of(arch, got, &shape), from_start);
	}
	if (to_return) {
		bool got = flow_to_return(&code, CODE + pc, false, &shape);

		check_str(text_of(arch, got, &shape), to_return);
	}
}
#define X86(text) {(const uint8_t *)(text), sizeof(text) - 1, 0}

TEST(pushes_and_pops)
{
	/* 0 push %rbp; 1 push %rbx; 2 sub $8,%rsp; 6 mov %edi,%ebx; 8 call; d add $8,%rsp;
	 * 11 pop %rbx; 12 pop %rbp; 13 ret */
	struct code c = X86("\x55\x53\x48\x83\xec\x08\x89\xfb\xe8\x00\x10\x00\x00\x48\x83\xc4\x08"
			    "\x5b\x5d\xc3");

	check_shape(&arch_x86_64, &c, 0, "7+8", "7+8");
	check_shape(&arch_x86_64, &c, 1, "7+16 6@-16", "7+16 6@-16");
	check_shape(&arch_x86_64, &c, 2, "7+24 6@-16 3@-24", "7+24 6@-16 3@-24");
	check_shape(&arch_x86_64, &c, 13, "7+32 6@-16 3@-24", "7+32 6@-16 3@-24");
	check_shape(&arch_x86_64, &c, 0x11, "7+24 6@-16 3@-24", "7+24 6@-16 3@-24");
	/* Popped: the register is the caller's again. */
	check_shape(&arch_x86_64, &c, 0x13, "7+8", "7+8");
}

TEST(frame_pointers)
{
	/* 0 push %rbp; 1 mov %rsp,%rbp; 4 push %r12; 6 sub %rax,%rsp; 9 lea -8(%rbp),%rsp;
	 * d pop %r12; f pop %rbp; 10 ret */
	struct code c = X86("\x55\x48\x89\xe5\x41\x54\x48\x29\xc4\x48\x8d\x65\xf8\x41\x5c\x5d\xc3");

	check_shape(&arch_x86_64, &c, 1, "7+16 6@-16", NULL);
	/* On the way to the return a slot that is not written yet looks like one that is. */
	check_shape(&arch_x86_64, &c, 4, "6+16 6@-16", "6+16 6@-16 12@-24");
	check_shape(&arch_x86_64, &c, 9, "6+16 6@-16 12@-24", "6+16 6@-16 12@-24");
	check_shape(&arch_x86_64, &c, 16, "7+8", "7+8");

	/* 0 push %rbp; 1 mov %rsp,%rbp; 4 mov %rdi,%rbx (lost: not saved); 7 leave; 8 ret */
	struct code leave = X86("\x55\x48\x89\xe5\x48\x89\xfb\xc9\xc3");

	check_shape(&arch_x86_64, &leave, 7, "6+16 6@-16 3?", "6+16 6@-16");
}

/* A register saved with mov, as hand-written code and JITs do. */
TEST(saved_by_moves)
{
	/* 0 sub $0x18,%rsp; 4 mov %rbp,0x10(%rsp); 9 mov %rax,%rbp; c mov 0x10(%rsp),%rbp;
	 * 11 add $0x18,%rsp; 15 ret */
	struct code c = X86("\x48\x83\xec\x18\x48\x89\x6c\x24\x10\x48\x89\xc5\x48\x8b\x6c\x24\x10"
			    "\x48\x83\xc4\x18\xc3");

	check_shape(&arch_x86_64, &c, 4, "7+32", "7+32");
	check_shape(&arch_x86_64, &c, 0xc, "7+32 6@-16", "7+32 6@-16");
	check_shape(&arch_x86_64, &c, 0x11, "7+32 6@-16", "7+32");
}

TEST(branches)
{
	/* 0 push %rbx; 1 test; 3 je 8; 5 pop %rbx; 6 ret; 7 int3; 8 sub $16,%rsp;
	 * c jmp e; e add $16,%rsp; 12 jmp 5 */
	struct code c = X86("\x53\x85\xff\x74\x03\x5b\xc3\xcc\x48\x83\xec\x10\xeb\x00\x48\x83\xc4\x10"
			    "\xeb\xf1");

	check_shape(&arch_x86_64, &c, 6, "7+8", "7+8");
	check_shape(&arch_x86_64, &c, 8, "7+16 3@-16", "7+16 3@-16");
	check_shape(&arch_x86_64, &c, 14, "7+32 3@-16", "7+32 3@-16");
	check_shape(&arch_x86_64, &c, 7, "none", "none");
}

/* Where paths meet the stack has one depth; a loop that moves it has none. */
TEST(paths_that_do_not_agree)
{
	/* 0 sub $8,%rsp; 4 cmp %rax,%rsp; 7 jne 0; 9 ret */
	struct code c = X86("\x48\x83\xec\x08\x48\x39\xc4\x75\xf7\xc3");

	check_shape(&arch_x86_64, &c, 0, "7+8", "none");
	check_shape(&arch_x86_64, &c, 9, "none", "7+8");
	/* 0 test; 2 je 5; 4 push %rbx; 5 nop; 6 ret: the branch comes with another depth */
	struct code join = X86("\x85\xff\x74\x01\x53\x90\xc3");

	check_shape(&arch_x86_64, &join, 6, "none", "7+8");
	check_shape(&arch_x86_64, &join, 0, "7+8", "none");
}

TEST(calls_that_do_not_return)
{
	/* 0 sub $8,%rsp; 4 call; 9 nop; a: the next function: push %rbx; pop %rbx; ret */
	struct code c = X86("\x48\x83\xec\x08\xe8\x00\x10\x00\x00\x90\x53\x5b\xc3");
	struct flow_code code = {&arch_x86_64, &c, read_code, is_start};
	struct frame_shape shape;

	c.other = CODE + 10;
	check_shape(&arch_x86_64, &c, 4, "7+16", "none");
	check(flow_from_start(&code, CODE, CODE + 9, &shape) && shape.cfa_offset == 16);
	check(!flow_to_return(&code, CODE + 9, true, &shape));
	/* What opens a frame begins a function, known or not; so does what is aligned behind padding. */
	c.other = 0;
	check_shape(&arch_x86_64, &c, 4, NULL, "none");
	/* 7 sub $8,%rsp; b call; 10: mov $1,%eax; 15 ret: nothing says that the call does not return */
	struct code leaf = X86("\xcc\xcc\xcc\xcc\xcc\xcc\xcc\x48\x83\xec\x08\xe8\x00\x10\x00\x00"
			       "\xb8\x01\x00\x00\x00\xc3");

	check_shape(&arch_x86_64, &leaf, 11, NULL, "7+8");
	struct code padded = X86("\x48\x83\xec\x08\xe8\x00\x10\x00\x00\x0f\x1f\x80\x00\x00\x00\x00"
				 "\xb8\x01\x00\x00\x00\xc3");

	check_shape(&arch_x86_64, &padded, 4, NULL, "none");
}

TEST(jumps_to_places_unknown)
{
	/* 0 push %rbx; 1 jmp *(%rcx,%rax,8); 4 nop; 5 pop %rbx; 6 ret */
	struct code table = X86("\x53\xff\x24\xc1\x90\x5b\xc3");

	check_shape(&arch_x86_64, &table, 5, "7+16 3@-16", "7+16 3@-16");
	check_shape(&arch_x86_64, &table, 1, "7+16 3@-16", "none");
	/* 0 push %rbx; 1 pop %rbx; 2 jmp *%rax: pops come before a jump out, not before a switch */
	struct code tail = X86("\x53\x5b\xff\xe0");

	check_shape(&arch_x86_64, &tail, 1, "7+16 3@-16", "7+16 3@-16");
	check_shape(&arch_x86_64, &tail, 2, "7+8", "none");
	/* 0 push %rbx; 1 pop %rbx; 2 jmp *slot(%rip) */
	struct code slot = X86("\x53\x5b\xff\x25\x00\x00\x00\x00");

	check_shape(&arch_x86_64, &slot, 2, "7+8", "7+8");
}

TEST(a64_frames)
{
	/* 0 stp x29,x30,[sp,#-32]!; 4 mov x29,sp; 8 str x19,[sp,#16]; c bl; 10 ldr x19,[sp,#16];
	 * 14 ldp x29,x30,[sp],#32; 18 ret */
	struct code c = X86("\xfd\x7b\xbe\xa9\xfd\x03\x00\x91\xf3\x0b\x00\xf9\x00\x04\x00\x94"
			    "\xf3\x0b\x40\xf9\xfd\x7b\xc2\xa8\xc0\x03\x5f\xd6");

	check_shape(&arch_aarch64, &c, 0, "31+0", "31+0");
	check_shape(&arch_aarch64, &c, 4, "31+32 29@-32 30@-24", "31+32 29@-32 30@-24");
	check_shape(&arch_aarch64, &c, 16, "29+32 29@-32 30@-24", "31+32 29@-32 30@-24");
	check_shape(&arch_aarch64, &c, 24, "31+0", "31+0");
	/* 0 sub sp,sp,#16; 4 add sp,sp,#16; 8 ret: a leaf */
	struct code leaf = X86("\xff\x43\x00\xd1\xff\x43\x00\x91\xc0\x03\x5f\xd6");

	check_shape(&arch_aarch64, &leaf, 4, "31+16", "31+16");
}

/* Any bytes: it ends, and within the bytes. */
TEST(noise)
{
	static uint8_t bytes[4096];
	struct code c = {bytes, sizeof(bytes), 0};
	uint64_t x = 88172645463325252ULL;
	unsigned got = 0;

	for (unsigned round = 0; round < 200; round++) {
		for (size_t i = 0; i < sizeof(bytes); i++) {
			x ^= x << 13;
			x ^= x >> 7;
			x ^= x << 17;
			bytes[i] = (uint8_t)x;
		}
		for (unsigned a = 0; a < 2; a++) {
			struct flow_code code = {
				a ? &arch_aarch64 : &arch_x86_64, &c, read_code, is_start};
			struct frame_shape shape;

			got += flow_to_return(&code, CODE + 4 * round, false, &shape);
			got += flow_from_start(&code, CODE, CODE + 4 * round, &shape);
		}
	}
	check(got < 400);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(x86_stack_instructions), T(x86_other_instructions),
		T(x86_targets), T(x86_instructions_cut_off), T(a64_instructions),
		T(pushes_and_pops), T(frame_pointers), T(saved_by_moves), T(branches),
		T(paths_that_do_not_agree), T(calls_that_do_not_return), T(jumps_to_places_unknown),
		T(a64_frames), T(noise));
}
