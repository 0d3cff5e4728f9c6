/* SPDX-License-Identifier: BSD-2-Clause */
/* aarch64, and what both architectures know of code bytes. */
#include "walk_world.h"

/* ---- aarch64 ---- */

#define LR UNWIND_A64_LR
#define FP UNWIND_A64_FP
#define SP UNWIND_A64_SP
#define SIGNED(addr) ((addr) | 0x00a5000000000000ULL)

static struct world *usual_a64(void)
{
	struct world *w = world_new(UNWIND_AARCH64);

	FUNC(w, START, 0x100, UNDEFINED(LR));
	FUNC(w, MAIN, 0x100, DEF_CFA(SP, 32), SAVED(FP, 4), SAVED(LR, 3), NEGATE_RA_STATE);
	FUNC(w, FUN, 0x100, DEF_CFA(FP, 16), SAVED(FP, 2), SAVED(LR, 1));
	FUNC(w, LEAF, 0x100);
	return w;
}

TEST(a64_link_register_and_signed_addresses)
{
	autoworld w = usual_a64();

	STACK_WORDS(w, 1, SLOT(20), SIGNED(AT(MAIN + 8)), SLOT(30), SIGNED(AT(START + 8)));
	reg(w, LR, SIGNED(AT(FUN + 8)));
	reg(w, FP, SLOT(1));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(FUN + 8), AT(MAIN + 8), AT(START + 8));
	check_u64(w->frames[1].source, UNWIND_FROM_REGS);
	check_u64(w->frames[2].source, UNWIND_FROM_DUMP);
	check_u64(w->frames[0].cfa, STACK);
	check_u64(w->frames[2].cfa, SLOT(7));
}

/* Above a call the link register is not the caller's: a leaf rule there is wrong, not a loop. */
TEST(a64_link_register_is_lost_by_a_call)
{
	autoworld w = usual_a64();

	STACK_WORDS(w, SLOT(20), AT(LEAF + 8));
	reg(w, LR, AT(FUN + 8));
	reg(w, FP, SLOT(0));
	EXPECT(w, UNWIND_NO_PROGRESS, AT(FUN), AT(LEAF + 8));
}

TEST(a64_frame_records)
{
	autoworld w = usual_a64();

	direct_call(w, JIT + 0x100, JIT);
	direct_call(w, JIT + 0x200, JIT + 0xc0);
	STACK_WORDS(w, 5, SLOT(4), SIGNED(JIT + 0x100), 6, 0, JIT + 0x200);
	reg(w, FP, SLOT(1));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, JIT + 0x200);
	check_how(w, 1, UNWIND_FP);
}

TEST(a64_leaf_without_rule)
{
	autoworld w = usual_a64();

	direct_call(w, JIT + 0x100, JIT);
	direct_call(w, JIT + 0x200, JIT + 0xc0);
	STACK_WORDS(w, 0, JIT + 0x200);
	reg(w, LR, JIT + 0x100);
	reg(w, FP, SLOT(0)); /* the caller's record */
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, JIT + 0x200);
	check_how(w, 1, UNWIND_LEAF);
}

TEST(a64_signal_frame)
{
	autoworld w = usual_a64();

	CODE(w, 0x2000, "\x68\x11\x80\xd2\x01\x00\x00\xd4"); /* mov x8, #139; svc #0 */
	reg(w, LR, AT(0x2000));
	w->stack[39 + 29] = SLOT(80);	  /* x29 */
	w->stack[39 + 30] = AT(FUN + 40); /* x30: another call, long over */
	w->stack[39 + 31] = SLOT(78);
	w->stack[39 + 32] = AT(FUN);
	w->stack[80] = SLOT(90);
	w->stack[81] = AT(START + 8);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x2000), AT(FUN), AT(START + 8));
	check(!w->frames[2].is_return);
}

static void insns(struct world *w, uint64_t at, const uint32_t *words, size_t count)
{
	for (size_t i = 0; i < count; i++)
		code_at(w, at + 4 * i, (const char *)&words[i], 4);
}
#define INSNS(w, at, ...)                                                                          \
	insns(w, at, (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / 4)

/* stp x29,x30,[sp,#-48]!; str x19,[sp,#16] ... ldr x19,[sp,#16]; ldp x29,x30,[sp],#48; ret: a frame
 * record, and x29 used for something else. */
TEST(a64_prologue)
{
	static const struct {
		uint64_t pc;
		unsigned words; /* of the frame that are on the stack */
		bool in_register;
	} rows[] = {{0, 0, true}, {4, 6, false}, {0x20, 6, false}, {0x44, 6, false}, {0x48, 0, true}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		autoworld w = usual_a64();

		INSNS(w, 0x3000, 0xa9bd7bfd, 0xf9000bf3);
		INSNS(w, 0x3040, 0xf9400bf3, 0xa8c37bfd, 0xd65f03c0);
		direct_call(w, FUN + 8, 0x3000);
		if (rows[i].words) {
			w->stack[0] = SLOT(8);
			w->stack[1] = SIGNED(AT(FUN + 8));
		}
		w->stack[8] = 0xb0b; /* FUN's record, then MAIN's frame of four words */
		w->stack[9] = SIGNED(AT(MAIN + 8));
		w->stack[11] = SIGNED(AT(START + 8));
		reg(w, FP, rows[i].in_register ? SLOT(8) : 0x77);
		reg(w, LR, rows[i].in_register ? AT(FUN + 8) : 0x77);
		EXPECT(w, UNWIND_ROOT, AT(0x3000 + rows[i].pc), AT(FUN + 8), AT(MAIN + 8),
			AT(START + 8));
		check_how(w, 1, UNWIND_PROLOGUE);
		check_u64(w->frames[1].slot, rows[i].words ? SLOT(1) : 0);
	}
}

TEST(a64_root)
{
	autoworld w = usual_a64();

	reg(w, LR, 0);
	EXPECT(w, UNWIND_ROOT, AT(LEAF));
	reg(w, LR, AT(FUN + 7));
	EXPECT(w, UNWIND_BAD_ADDRESS, AT(LEAF));
}

/* ---- code bytes ---- */

TEST(x86_calls)
{
	static const struct {
		const char *name;
		uint8_t bytes[8]; /* the instruction stands at the end */
		enum call_form form;
		uint64_t target;
	} rows[] = {
		{"call rel32", {0x90, 0x90, 0x90, 0xe8, 0x10, 0, 0, 0}, CALL_DIRECT, 0x10010},
		{"call rel32 back", {0, 0, 0, 0xe8, 0xf0, 0xff, 0xff, 0xff}, CALL_DIRECT, 0xfff0},
		{"call *%rax", {0, 0, 0, 0, 0, 0, 0xff, 0xd0}, CALL_INDIRECT, 0},
		{"call *%r9", {0, 0, 0, 0, 0, 0x41, 0xff, 0xd1}, CALL_INDIRECT, 0},
		{"call *(%rax)", {0, 0, 0, 0, 0, 0, 0xff, 0x10}, CALL_INDIRECT, 0},
		{"call *(%rsp)", {0, 0, 0, 0, 0, 0xff, 0x14, 0x24}, CALL_INDIRECT, 0},
		{"call *8(%rax)", {0, 0, 0, 0, 0, 0xff, 0x50, 8}, CALL_INDIRECT, 0},
		{"call *8(%rsp)", {0, 0, 0, 0, 0xff, 0x54, 0x24, 8}, CALL_INDIRECT, 0},
		{"call *1024(%rax)", {0, 0, 0xff, 0x90, 0, 4, 0, 0}, CALL_INDIRECT, 0},
		{"call *1024(%rsp)", {0, 0xff, 0x94, 0x24, 0, 4, 0, 0}, CALL_INDIRECT, 0},
		{"call *16(,%rax,8)", {0, 0xff, 0x14, 0xc5, 16, 0, 0, 0}, CALL_INDIRECT, 0},
		{"call *16(%rip)", {0, 0, 0xff, 0x15, 16, 0, 0, 0}, CALL_SLOT, 0x10010},
		{"jmp *%rax", {0, 0, 0, 0, 0, 0, 0xff, 0xe0}, CALL_NONE, 0},
		{"call *(%rsp), cut", {0, 0, 0, 0, 0, 0, 0xff, 0x14}, CALL_NONE, 0},
		{"call *8(%rax), cut", {0, 0, 0, 0, 0, 0, 0xff, 0x50}, CALL_NONE, 0},
		{"nops", {0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90, 0x90}, CALL_NONE, 0},
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		struct call_site c = arch_x86_64.call_before(rows[i].bytes, 8, 0x10000);

		if (c.form != rows[i].form || c.target != rows[i].target)
			check_str(rows[i].name, "decoded right");
	}
	check_u64(arch_x86_64.call_before((const uint8_t *)"\xd0", 1, 0).form, CALL_NONE);
	check_u64(arch_x86_64.call_before(NULL, 0, 0).form, CALL_NONE);
}

TEST(a64_calls)
{
	static const struct {
		uint32_t insn;
		enum call_form form;
		uint64_t target;
	} rows[] = {
		{0x94000004, CALL_DIRECT, 0x1000c},	/* bl +16 */
		{0x97ffffff, CALL_DIRECT, 0x10000 - 8}, /* bl -4 */
		{0xd63f0000, CALL_INDIRECT, 0},		/* blr x0 */
		{0xd63f0aff, CALL_INDIRECT, 0},		/* blraa x23, sp: any modifier */
		{0xd73f0820, CALL_INDIRECT, 0},		/* blraa x1, x0 */
		{0xd61f0000, CALL_NONE, 0},		/* br x0 */
		{0x14000004, CALL_NONE, 0},		/* b */
		{0xd503201f, CALL_NONE, 0},		/* nop */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		uint8_t code[4];

		for (unsigned b = 0; b < 4; b++)
			code[b] = (uint8_t)(rows[i].insn >> 8 * b);

		struct call_site c = arch_aarch64.call_before(code, 4, 0x10000);

		check_u64(c.form, rows[i].form);
		check_u64(c.target, rows[i].target);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(a64_link_register_and_signed_addresses),
		T(a64_link_register_is_lost_by_a_call), T(a64_frame_records),
		T(a64_leaf_without_rule), T(a64_signal_frame), T(a64_prologue), T(a64_root), T(x86_calls),
		T(a64_calls));
}
