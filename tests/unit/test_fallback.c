/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk where no rule covers the pc. */
#include "walk_world.h"

/* ---- frame pointers ---- */

static void jit_frames(struct world *w)
{
	indirect_call(w, JIT + 0x100);
	indirect_call(w, JIT + 0x200);
	CODE(w, AT(0) - BIAS + MAIN + 6, "\xff\xd0"); /* MAIN calls into it */
}

TEST(jit_frame_pointers)
{
	autoworld w = usual_world();

	jit_frames(w);
	STACK_WORDS(w, 1, 2, SLOT(5), JIT + 0x100, 3, SLOT(8), JIT + 0x200, 4, 77, AT(MAIN + 8), 0,
		AT(START + 8));
	reg(w, RBP, SLOT(2));
	/* The last saved rbp (77) is MAIN's, which has CFI and may keep anything in it. */
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, JIT + 0x200, AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_FP);
	check_how(w, 3, UNWIND_FP);
	check_how(w, 4, UNWIND_CFI);
	check_u64(w->frames[1].vaddr, JIT + 0x100);
	check_u64(w->frames[1].mapping_id, 2);
}

TEST(frame_pointer_zero_ends_the_chain)
{
	autoworld w = usual_world();

	jit_frames(w);
	STACK_WORDS(w, 0, JIT + 0x100);
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100);
}

/* A goroutine's bottom is put on its stack by hand: no call stands before it. */
TEST(frame_pointer_to_a_planted_root)
{
	static const struct unwind_range roots[] = {{0x3000, 0x3010}};
	autoworld w = usual_world();

	w->input.roots = roots;
	w->input.root_count = 1;
	STACK_WORDS(w, 0, AT(0x3001));
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, AT(0x3001));
}

/* Interpreters in JIT memory push return addresses and jump: two links of the chain must hold. */
TEST(frame_pointer_to_a_pushed_address)
{
	autoworld w = usual_world();

	jit_frames(w);
	STACK_WORDS(w, SLOT(2), JIT + 0x151, SLOT(4), JIT + 0x161, 0, JIT + 0x100);
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x151, JIT + 0x161, JIT + 0x100);
	w->stack[5] = 0x1234; /* the next link leads nowhere */
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10, JIT + 0x151);
}

TEST(frame_pointer_must_hold)
{
	autoworld w = usual_world();

	jit_frames(w);
	memset(w->stack, 0, sizeof(w->stack));
	STACK_WORDS(w, SLOT(2), JIT + 0x101); /* no call before it */
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10);
	STACK_WORDS(w, SLOT(0), JIT + 0x100); /* a frame that is its own caller */
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10);
	STACK_WORDS(w, SLOT(4), JIT + 0x100, 0, 0, SLOT(2), JIT + 0x200); /* downwards */
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10, JIT + 0x100);
	reg(w, RBP, SLOT(0) + 4); /* not aligned */
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10);
	reg(w, RBP, STACK - 64); /* below sp */
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x10);
	reg(w, RBP, SLOT(WORDS + 10)); /* above the dump */
	EXPECT(w, UNWIND_TRUNCATED, JIT + 0x10);
}

/* Kernels that do not save rbp report -1. */
TEST(frame_pointer_minus_one_is_unknown)
{
	autoworld w = usual_world();

	STACK_WORDS(w, 0, AT(START + 8));
	reg(w, RBP, ~0ULL);
	EXPECT(w, UNWIND_BAD_RULE, AT(FUN + 8));
}

/* The interrupted instruction tells where the return address is in a function with a frame. */
TEST(frame_pointer_prologue_and_epilogue)
{
	static const struct {
		const char *code;
		unsigned slot; /* of the return address */
		enum unwind_how how;
	} rows[] = {
		{"\x55", 0, UNWIND_LEAF},	      /* push %rbp */
		{"\xf3\x0f\x1e\xfa", 0, UNWIND_LEAF}, /* endbr64 */
		{"\x48\x89\xe5", 1, UNWIND_FP},	      /* mov %rsp,%rbp */
		{"\xc3", 0, UNWIND_PROLOGUE},      /* ret */
	};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		autoworld w = usual_world();

		jit_frames(w);
		code_at(w, JIT + 0x10, rows[i].code, strlen(rows[i].code));
		w->stack[0] = SLOT(4);
		w->stack[rows[i].slot] = JIT + 0x100;
		w->stack[4] = 77;
		w->stack[5] = AT(MAIN + 8);
		w->stack[7] = AT(START + 8);
		reg(w, RBP, SLOT(4)); /* the caller's */
		EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, AT(MAIN + 8), AT(START + 8));
		check_how(w, 1, rows[i].how);
	}
}

/* A leaf without frame in JIT code: rbp is the caller's, the direct call on top names us. */
TEST(leaf_by_direct_call)
{
	autoworld w = usual_world();

	jit_frames(w);
	direct_call(w, JIT + 0x300, JIT + 0x10);
	STACK_WORDS(w, JIT + 0x300, SLOT(4), JIT + 0x100, 0, 0, JIT + 0x200);
	reg(w, RBP, SLOT(4));
	EXPECT(w, UNWIND_ROOT, JIT + 0x18, JIT + 0x300, JIT + 0x200);
	check_how(w, 1, UNWIND_LEAF);
}

TEST(call_of_nothing)
{
	autoworld w = usual_world();

	indirect_call(w, MAIN + 8);
	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, 0x10, AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_LEAF);
	check_u64(w->frames[0].mapping_id, UINT32_MAX);
}

/* The kernel's uretprobe trampoline: the real return address is gone; rbp would skip a caller. */
TEST(uretprobe_trampoline)
{
	autoworld w = usual_world();

	STACK_WORDS(w, JIT, SLOT(4), AT(MAIN + 8), 0, 0, AT(MAIN + 8));
	reg(w, RBP, SLOT(4));
	EXPECT(w, UNWIND_NO_RULE, AT(LEAF), JIT);
}

/* Tables that hold only at calls: the rule leads nowhere, the frame pointer is right. */
TEST(frame_pointer_when_the_rule_fails)
{
	autoworld w = usual_world();

	direct_call(w, MAIN + 8, LEAF);
	STACK_WORDS(w, 0x1234, 0x5678, 77, AT(MAIN + 8), 0, AT(START + 8));
	reg(w, RBP, SLOT(2));
	EXPECT(w, UNWIND_ROOT, AT(LEAF + 4), AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_FP);
}

/* ---- what the code does to the stack ---- */

#define BARE 0x3000ULL /* no CFI, and no frame pointers around */

/* push %rbp; push %rbx; sub $8,%rsp; nop...; at + 0x20: add $8,%rsp; pop %rbx; pop %rbp; ret */
static void plain_function(struct world *w, uint64_t at)
{
	CODE(w, at, "\x55\x53\x48\x83\xec\x08");
	CODE(w, at + 0x20, "\x48\x83\xc4\x08\x5b\x5d\xc3");
}

TEST(prologue_of_a_file)
{
	autoworld w = usual_world();

	plain_function(w, BARE);
	direct_call(w, FUN + 8, BARE);
	/* A local, then rbx, rbp (which FUN's rule asks for) and the return address. */
	STACK_WORDS(w, 0x11, 0xb, SLOT(6), AT(FUN + 8), 0x22, 0x33, 0xb0b, AT(MAIN + 8), 0,
		AT(START + 8));
	reg(w, RBP, 0x1234); /* the function uses it for something else */
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x10), AT(FUN + 8), AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_PROLOGUE);
	check_u64(w->frames[0].cfa, SLOT(4));
	check_u64(w->frames[1].slot, SLOT(3));
	/* Asked once: the second walk finds it in the cache. */
	walk(w);
	check_u64(w->count, 4);
	check_how(w, 1, UNWIND_PROLOGUE);
}

TEST(prologue_half_way)
{
	static const struct {
		uint64_t pc;
		unsigned slot;
	} rows[] = {{0, 0}, {1, 1}, {2, 2}, {6, 3}, {0x24, 2}, {0x25, 1}, {0x26, 0}};

	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		autoworld w = usual_world();

		plain_function(w, BARE);
		direct_call(w, MAIN + 8, BARE);
		w->stack[rows[i].slot] = AT(MAIN + 8);
		w->stack[rows[i].slot + 2] = AT(START + 8);
		EXPECT(w, UNWIND_ROOT, AT(BARE + rows[i].pc), AT(MAIN + 8), AT(START + 8));
		check_how(w, 1, UNWIND_PROLOGUE);
	}
}

/* What is pushed later still is in the register, whatever lies below the stack pointer. */
TEST(prologue_saves_that_are_not_done)
{
	autoworld w = usual_world();

	CODE(w, BARE, "\x48\x83\xec\x18\x48\x89\x6c\x24\x08"); /* mov %rbp,8(%rsp) at 4 */
	CODE(w, BARE + 0x20, "\x48\x8b\x6c\x24\x08\x48\x83\xc4\x18\xc3");
	direct_call(w, FUN + 8, BARE);
	STACK_WORDS(w, 1, 2, 3, AT(FUN + 8), 0, 0, 0, AT(MAIN + 8), 0, AT(START + 8));
	reg(w, RBP, SLOT(6));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 4), AT(FUN + 8), AT(MAIN + 8), AT(START + 8));
}

/* The stack decides: what the code says is not taken where no call stands before the address. */
TEST(prologue_must_hold)
{
	autoworld w = usual_world();

	plain_function(w, BARE);
	direct_call(w, MAIN + 8, BARE);
	STACK_WORDS(w, 0, 0, 0, 0x77, AT(MAIN + 8), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x10), AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_SCAN);
}

/* Behind the last call of a function that never returns: only its start tells. */
static void name_bare(void *functions, void (*take)(void *ctx, uint64_t vaddr), void *ctx)
{
	++*(unsigned *)functions;
	take(ctx, BARE);
	take(ctx, BARE + 0x10);
}

TEST(prologue_of_a_function_without_return)
{
	autoworld w = usual_world();
	unsigned asked = 0;

	w->input.each_function = name_bare;
	w->input.functions = &asked;
	CODE(w, BARE, "\x53\x48\x83\xec\x10"); /* push %rbx; sub $16,%rsp */
	direct_call(w, BARE + 0x10, BARE + 0x100);
	CODE(w, BARE + 0x10, "\xc3"); /* another function */
	plain_function(w, BARE + 0x100);
	indirect_call(w, MAIN + 8);
	STACK_WORDS(w, 0, 0, 0, AT(BARE + 0x10), 0, 0, 0, AT(MAIN + 8), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x110), AT(BARE + 0x10), AT(MAIN + 8), AT(START + 8));
	check_how(w, 2, UNWIND_PROLOGUE);
	walk(w);
	check_u64(asked, 1);
}

/* Code of a JIT that uses rbp for anything, called by code that needs no rbp either. */
TEST(prologue_of_jit_code)
{
	autoworld w = usual_world();

	jit_frames(w);
	CODE(w, JIT + 0x40, "\x48\x83\xc4\x10\x5d\xc3");  /* add $16,%rsp; pop %rbp; ret */
	CODE(w, JIT + 0x120, "\x48\x83\xc4\x08\x5d\xc3"); /* add $8,%rsp; pop %rbp; ret */
	STACK_WORDS(w, 1, 2, 0x77, JIT + 0x100, 3, SLOT(1), AT(MAIN + 8), 0, AT(START + 8));
	reg(w, RBP, SLOT(2)); /* looks like a frame pointer, and is none */
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_PROLOGUE);
	check_how(w, 2, UNWIND_PROLOGUE);

	/* The same address, other code: nothing old is believed. */
	CODE(w, JIT + 0x18, "\x48\x83\xc4\x18\x5d\xc3");
	STACK_WORDS(w, 1, 2, 3, 4, JIT + 0x100, 3, SLOT(1), AT(MAIN + 8), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, AT(MAIN + 8), AT(START + 8));
}

/* The compiled caller of a frame with a frame pointer uses the register for a number. */
TEST(frame_pointer_below_code_without)
{
	autoworld w = usual_world();

	jit_frames(w);
	CODE(w, JIT + 0x10, "\xff\x24\xc1"); /* jmp *(%rcx,%rax,8): no way to a return */
	CODE(w, JIT + 0x120, "\x48\x83\xc4\x08\x5d\xc3");
	STACK_WORDS(w, 1, 2, 0x77, JIT + 0x100, 3, SLOT(1), AT(MAIN + 8), 0, AT(START + 8));
	reg(w, RBP, SLOT(2));
	EXPECT(w, UNWIND_ROOT, JIT + 0x10, JIT + 0x100, AT(MAIN + 8), AT(START + 8));
	check_how(w, 1, UNWIND_FP);
	check_how(w, 2, UNWIND_PROLOGUE);
}

/* ---- scans ---- */

/* Locals with old return addresses lie below the real one; the direct call of us is the witness. */
TEST(scan_finds_the_direct_call)
{
	autoworld w = usual_world();

	indirect_call(w, MAIN + 0x40);
	direct_call(w, BARE + 0x30, BARE - 0x80); /* an earlier function, called from ours */
	direct_call(w, FUN + 0x20, BARE);
	direct_call(w, MAIN + 0x20, FUN);
	STACK_WORDS(w, 5, AT(MAIN + 0x40), AT(BARE + 0x30), 6, AT(FUN + 0x20), 7, 0,
		AT(MAIN + 0x20), 0, AT(START + 8));
	reg(w, RBP, SLOT(6));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(FUN + 0x20), AT(MAIN + 0x20), AT(START + 8));
	check_how(w, 1, UNWIND_SCAN);
	check_how(w, 2, UNWIND_CFI); /* rbp was untouched, and is a frame pointer */
}

TEST(scan_recovers_a_saved_frame_pointer)
{
	autoworld w = usual_world();

	direct_call(w, FUN + 0x20, BARE);
	direct_call(w, MAIN + 0x20, FUN);
	STACK_WORDS(w, 5, SLOT(4), AT(FUN + 0x20), 7, 0, AT(MAIN + 0x20), 0, AT(START + 8));
	reg(w, RBP, 12345);
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(FUN + 0x20), AT(MAIN + 0x20), AT(START + 8));
}

/* Through a PLT: the stub's slot says who was called. */
TEST(scan_through_plt)
{
	autoworld w = usual_world();
	uint64_t us = AT(BARE);
	uint64_t other = AT(LEAF);
	int32_t to_slot = (int32_t)(TEXT + 0x3f00 - (0x3806));

	CODE(w, 0x3800, "\xff\x25");
	code_at(w, 0x3802, (const char *)&to_slot, 4);
	code_at(w, TEXT + 0x3f00, (const char *)&us, 8);
	direct_call(w, MAIN + 0x20, 0x3800);
	indirect_call(w, MAIN + 0x40); /* an older one, below */
	STACK_WORDS(w, 5, AT(MAIN + 0x20), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(MAIN + 0x20), AT(START + 8));

	/* A stub of another function is a left-over: the indirect call above it is believed. */
	indirect_call(w, START + 8);
	code_at(w, TEXT + 0x3f00, (const char *)&other, 8);
	STACK_WORDS(w, 5, AT(MAIN + 0x20), AT(MAIN + 0x40), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(MAIN + 0x40), AT(START + 8));
}

/* A candidate whose caller's own return address is none cannot be right. */
/* The called function is a wrapper that jumps on to ours; lower and higher ones are left-overs. */
TEST(scan_follows_a_wrapper)
{
	autoworld w = usual_world();

	CODE(w, 0x3810, "\xe9\xeb\xf7\xff\xff"); /* jmp 0x3000 */
	CODE(w, BARE - 0x10, "\x0f\x0b");	    /* no way from BARE - 0x40 to us */
	direct_call(w, FUN + 0x20, BARE - 0x40);
	direct_call(w, FUN + 0x40, BARE + 0x400);
	direct_call(w, MAIN + 0x20, 0x3808);
	STACK_WORDS(w, AT(FUN + 0x20), AT(FUN + 0x40), AT(MAIN + 0x20), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(MAIN + 0x20), AT(START + 8));
}

TEST(scan_looks_one_step_ahead)
{
	autoworld w = usual_world();

	indirect_call(w, MAIN + 0x40);
	indirect_call(w, START + 8);
	STACK_WORDS(w, AT(MAIN + 0x40), 5, 6, AT(MAIN + 0x40), 8, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(MAIN + 0x40), AT(START + 8));
	check_u64(w->frames[0].cfa, SLOT(4));
}

TEST(scan_gives_up)
{
	autoworld w = usual_world();

	EXPECT(w, UNWIND_NO_RULE, AT(BARE + 0x40));
	w->stack[300] = AT(MAIN + 8); /* too far */
	indirect_call(w, MAIN + 8);
	EXPECT(w, UNWIND_NO_RULE, AT(BARE + 0x40));
	w->dump.size = 64;
	EXPECT(w, UNWIND_TRUNCATED, AT(BARE + 0x40));
}

/* musl: main's caller has no CFI, was reached by a jump, and _start is the entry. */
TEST(scan_ends_at_the_entry)
{
	autoworld w = usual_world();

	w->input.entry = 0x3100;
	direct_call(w, 0x3116, 0x3140);
	STACK_WORDS(w, AT(BARE + 0x10), 1, 2, 3, AT(0x3116));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(BARE + 0x10), AT(0x3116));
	check_how(w, 2, UNWIND_SCAN);
}

/* The bottom is believed from far away only when nothing else was called between. */
TEST(scan_prefers_a_call_to_a_far_bottom)
{
	autoworld w = usual_world();

	w->input.entry = 0x3100;
	FUNC(w, 0x1400, 0x100, DEF_CFA(RSP, 0x90), 0x03); /* 400 */
	direct_call(w, 0x3116, 0x3140);
	direct_call(w, MAIN + 0x20, LEAF); /* of another function */
	w->stack[60] = AT(0x3116);
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(0x3116));
	w->stack[3] = AT(MAIN + 0x20);
	w->stack[5] = AT(0x1408);
	w->stack[55] = AT(START + 8);
	direct_call(w, 0x1408, LEAF);
	indirect_call(w, START + 8);
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(MAIN + 0x20), AT(0x1408), AT(START + 8));
	w->stack[20] = AT(0x3116);
	EXPECT(w, UNWIND_ROOT, AT(BARE + 0x40), AT(0x3116));
}

/* JIT memory is scanned for direct calls of the function alone, and not far. */
TEST(scan_of_jit_memory)
{
	autoworld w = usual_world();

	indirect_call(w, JIT + 0x100);
	direct_call(w, JIT + 0x200, JIT + 0x8);
	direct_call(w, JIT + 0x300, JIT + 0x180);
	w->stack[1] = JIT + 0x100;
	w->stack[7] = JIT + 0x200;
	w->stack[80] = JIT + 0x300;
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x18, JIT + 0x200);
	check_how(w, 1, UNWIND_SCAN);
	w->stack[80] = 0;
	w->stack[60] = JIT + 0x300;
	EXPECT(w, UNWIND_NO_RULE, JIT + 0x18, JIT + 0x200, JIT + 0x300);
}

/* Go: never scanned; frame pointers that leave the copied bytes are another stack. */
/* Of a sleeping thread only sp and pc are known. The code of FUN says where its frame pointer is, though
 * a direct call of FUN that is over stands nearer. */
TEST(lost_frame_pointer_by_code)
{
	for (unsigned unknown = 0; unknown < 2; unknown++) {
		autoworld w = usual_world();

		/* push %rbp; mov %rsp,%rbp; push %rbx; sub $0x18,%rsp (or %rax) */
		CODE(w, FUN, "\x55\x48\x89\xe5\x53\x48\x83\xec\x18");
		if (unknown)
			CODE(w, FUN + 5, "\x48\x29\xc4\x90");
		direct_call(w, MAIN + 8, FUN);
		direct_call(w, MAIN + 0x20, FUN);
		STACK_WORDS(w, 0xb0b, AT(MAIN + 0x20), 0, 0xb, 0xb0b, AT(MAIN + 8), 0,
			AT(START + 8));
		if (unknown)
			w->stack[3] = AT(START + 8);
		EXPECT(w, UNWIND_ROOT, AT(FUN + 0x40), AT(MAIN + (unknown ? 0x20 : 8)),
			AT(START + 8));
		check_how(w, 1, unknown ? UNWIND_SCAN : UNWIND_PROLOGUE);
	}
}

TEST(go_stacks)
{
	autoworld w = world_new(UNWIND_X86_64);

	w->input.go = true;
	indirect_call(w, MAIN + 8);
	STACK_WORDS(w, 0, AT(MAIN + 8), AT(MAIN + 8));
	EXPECT(w, UNWIND_NO_RULE, AT(BARE));
	reg(w, RBP, 0xc000012340);
	EXPECT(w, UNWIND_TRUNCATED, AT(BARE));
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_ROOT, AT(BARE), AT(MAIN + 8));
}

/* systemstack() has a rule that is right until it loads sp: what that finds on the other stack may look
 * like a return address, or be the 0 that ends it. */
TEST(go_stack_changed_in_the_middle)
{
	for (unsigned stale = 0; stale < 2; stale++) {
		autoworld w = usual_world();

		w->input.go = true;
		FUNC(w, 0x2800, 0x100, DEF_CFA(RSP, 16));
		indirect_call(w, MAIN + 8);
		CODE(w, 0x2820, "\x48\x8b\x62\x38\x48\x89\xfa\x48\x8b\x3f\xff\xd7");
		STACK_WORDS(w, AT(0x282c), 0x1, stale ? AT(FUN + 8) : 0, 0x2, 0x3, 0x4, 0xb0b,
			AT(MAIN + 8), 0, AT(START + 8));
		reg(w, RBP, SLOT(6));
		EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x282c), AT(MAIN + 8), AT(START + 8));
		check_how(w, 2, UNWIND_FP);
	}
}

/* A stripped Go program: goexit has no name, and no call stands before it. */
TEST(goroutine_start_without_symbols)
{
	autoworld w = world_new(UNWIND_X86_64);

	w->input.go = true;
	indirect_call(w, MAIN + 8);
	STACK_WORDS(w, SLOT(2), AT(MAIN + 8), 0, AT(BARE + 0x21));
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_ROOT, AT(BARE), AT(MAIN + 8), AT(BARE + 0x21));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(jit_frame_pointers), T(frame_pointer_zero_ends_the_chain),
		T(frame_pointer_to_a_planted_root), T(frame_pointer_to_a_pushed_address),
		T(frame_pointer_must_hold), T(frame_pointer_minus_one_is_unknown),
		T(frame_pointer_prologue_and_epilogue), T(leaf_by_direct_call),
		T(call_of_nothing), T(uretprobe_trampoline),
		T(frame_pointer_when_the_rule_fails), T(prologue_of_a_file), T(prologue_half_way),
		T(prologue_saves_that_are_not_done), T(prologue_must_hold),
		T(prologue_of_a_function_without_return), T(prologue_of_jit_code),
		T(frame_pointer_below_code_without), T(scan_finds_the_direct_call),
		T(scan_recovers_a_saved_frame_pointer), T(scan_through_plt),
		T(scan_follows_a_wrapper), T(scan_looks_one_step_ahead), T(scan_gives_up),
		T(scan_ends_at_the_entry), T(scan_prefers_a_call_to_a_far_bottom),
		T(scan_of_jit_memory), T(lost_frame_pointer_by_code), T(go_stacks), T(go_stack_changed_in_the_middle),
		T(goroutine_start_without_symbols));
}
