/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk where rules cover it: what they lead to, signals, and how walks end. */
#include "walk_world.h"

/* ---- rules ---- */

TEST(common_rules)
{
	autoworld w = usual_world();

	STACK_WORDS(w, AT(FUN + 8),	/* LEAF's return address */
		0x1111, 0x2222,		/* FUN's locals */
		0xb0b, AT(MAIN + 8),	/* saved rbp, return address */
		0x3333, AT(START + 8)); /* MAIN's */
	reg(w, RBP, SLOT(3));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(FUN + 8), AT(MAIN + 8), AT(START + 8));

	check_how(w, 0, UNWIND_SAMPLED);
	check(!w->frames[0].is_return && w->frames[1].is_return);
	check_how(w, 3, UNWIND_CFI);
	check_u64(w->frames[0].cfa, SLOT(1));
	check_u64(w->frames[1].cfa, SLOT(5));
	check_u64(w->frames[2].cfa, SLOT(7));
	check_u64(w->frames[3].cfa, 0);
	check_u64(w->frames[1].vaddr, FUN + 8);
	check_u64(w->frames[1].mapping_id, 1);
	check_u64(w->frames[1].source, UNWIND_FROM_DUMP);
	check_u64(w->frames[0].source, UNWIND_FROM_REGS);
}

/* Each register a rule saves comes back: the outer CFA counts from rbx, which the inner saved. */
TEST(all_saved_registers_return)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, DEF_CFA(RSP, 32), SAVED(RBX, 2), SAVED(12, 3), SAVED(15, 4));
	FUNC(w, 0x1500, 0x100, DEF_CFA(RBX, 8));
	FUNC(w, 0x1600, 0x100, DEF_CFA(15, 16), SAVED(RA, 2));
	STACK_WORDS(w, SLOT(8), 0, SLOT(5), AT(0x1508), 0, AT(0x1608), 0, 0, AT(START + 8));
	reg(w, RBX, 0x666);
	EXPECT(w, UNWIND_ROOT, AT(0x1400), AT(0x1508), AT(0x1608), AT(START + 8));
}

/* A call that never returns is the last instruction: the byte after it belongs to who comes next.
 */
TEST(return_address_minus_one)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x20, DEF_CFA(RSP, 24));
	FUNC(w, 0x1420, 0x20, DEF_CFA(RSP, 8));
	indirect_call(w, 0x1420);
	STACK_WORDS(w, AT(0x1420), 0, 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x1420), AT(START + 8));

	/* The same address as the interrupted pc is the first byte of the next function. */
	w->stack[0] = AT(START + 8);
	EXPECT(w, UNWIND_ROOT, AT(0x1420), AT(START + 8));
}

TEST(rows_within_a_function)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x40, ADVANCE(1), DEF_CFA(RSP, 16), ADVANCE(4), DEF_CFA(RSP, 32));
	STACK_WORDS(w, AT(START + 8), AT(START + 9), 0, AT(START + 10));
	EXPECT(w, UNWIND_ROOT, AT(0x1400), AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(0x1401), AT(START + 9));
	EXPECT(w, UNWIND_ROOT, AT(0x1405), AT(START + 10));
}

/* CFA = rsp + 8 + ((rip & 15) >= 11) * 8, as linkers write it for .plt */
TEST(plt_expression)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, CFA_EXPR(11), 0x77, 0x08, 0x80, 0x00, 0x3f, 0x1a, 0x3b, 0x2a, 0x33,
		0x24, 0x22);
	STACK_WORDS(w, AT(START + 8), AT(START + 9));
	EXPECT(w, UNWIND_ROOT, AT(0x1410), AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(0x141b), AT(START + 9));
}

/* A realigned stack: CFA = *(rbp - 8), the caller's rbp saved at rbp + 0. */
TEST(realigned_stack_expression)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, CFA_EXPR(3), 0x76, 0x78, 0x06, AT_EXPR(RBP, 2), 0x76, 0x00);
	STACK_WORDS(w, 0, SLOT(6), SLOT(8), 0, 0, AT(FUN + 8), 0, 0, 0, AT(START + 8));
	reg(w, RBP, SLOT(2));
	EXPECT(w, UNWIND_ROOT, AT(0x1410), AT(FUN + 8), AT(START + 8));
	check_u64(w->frames[1].cfa, SLOT(10));
}

TEST(value_expression_and_data_memory)
{
	autoworld w = usual_world();
	uint64_t fp = SLOT(4);

	/* rbp = *(u64 *)DATA */
	memcpy(w->data, &fp, 8);
	FUNC(w, 0x1400, 0x100, VAL_EXPR(RBP, 10), 0x0e, 0, 0, 0, 0, 0, 0x7d, 0, 0, 0x06);
	STACK_WORDS(w, AT(FUN + 8), 0, 0, 0, 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(0x1400), AT(FUN + 8), AT(START + 8));
}

/* vfork keeps its return address in rdi while parent and child share the stack. */
TEST(return_address_in_a_register)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, DEF_CFA(RSP, 0), IN_REG(RA, 5));
	STACK_WORDS(w, 0, AT(START + 8));
	reg(w, 5, AT(MAIN + 8));
	EXPECT(w, UNWIND_ROOT, AT(0x1401), AT(MAIN + 8), AT(START + 8));
	check_u64(w->frames[1].source, UNWIND_FROM_REGS);
}

/* rcx holds the CFA only while nothing has been called. */
TEST(caller_saved_base_register)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, DEF_CFA(2, 8));
	STACK_WORDS(w, 0, AT(START + 8));
	reg(w, 2, SLOT(1));
	EXPECT(w, UNWIND_ROOT, AT(0x1401), AT(START + 8));

	STACK_WORDS(w, AT(0x1401), AT(START + 8));
	EXPECT(w, UNWIND_BAD_RULE, AT(LEAF), AT(0x1401));
}

/* After `pop %rbp` the rule still says that rbp is saved: in a slot that is no longer there. */
TEST(popped_register_is_the_callers)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, DEF_CFA(RSP, 8), SAVED(RBP, 2));
	STACK_WORDS(w, AT(FUN + 8), 0, 0, AT(START + 8));
	reg(w, RBP, SLOT(2));
	EXPECT(w, UNWIND_ROOT, AT(0x1401), AT(FUN + 8), AT(START + 8));
}

/* A CFA that counts from rbp without saying where the caller's went: rbp is not the caller's. */
TEST(stale_frame_pointer_is_forgotten)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, DEF_CFA(RBP, 16));
	STACK_WORDS(w, 0, AT(FUN + 8), 0, AT(START + 8));
	reg(w, RBP, SLOT(0));
	EXPECT(w, UNWIND_BAD_RULE, AT(0x1401), AT(FUN + 8));
}

/* ---- signals ---- */

/* The kernel's frame from `slot` on; the handler returns to `restorer`. */
static void x86_signal_frame(
	struct world *w, unsigned slot, uint64_t rip, uint64_t rsp, uint64_t rbp)
{
	w->stack[slot + 5 + 10] = rbp; /* gregs: r8-r15 rdi rsi rbp rbx rdx rax rcx rsp rip */
	w->stack[slot + 5 + 15] = rsp;
	w->stack[slot + 5 + 16] = rip;
}

TEST(signal_frame_by_code)
{
	autoworld w = usual_world();

	CODE(w, 0x2000, "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05");
	w->stack[0] = AT(0x2000);
	x86_signal_frame(w, 1, AT(FUN), SLOT(60), SLOT(62));
	w->stack[63] = AT(START + 8);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x2000), AT(FUN), AT(START + 8));
	check(w->frames[1].is_return && !w->frames[2].is_return);
	check_u64(w->frames[1].cfa, SLOT(60));
}

/* The interrupted pc is the first byte of FUN: minus one would be MAIN's rule. */
TEST(signal_frame_by_cfi)
{
	autoworld w = usual_world();

	/* cfa = *(rsp + 160); rip at rsp + 168; rbp at rsp + 120 */
	SIGNAL_FUNC(w, 0x1fff, 0x20, CFA_EXPR(4), 0x77, 0xa0, 0x01, 0x06, AT_EXPR(RA, 3), 0x77,
		0xa8, 0x01, AT_EXPR(RBP, 3), 0x77, 0xf8, 0x00);
	w->stack[0] = AT(0x2000);
	x86_signal_frame(w, 1, AT(FUN), SLOT(60), SLOT(62));
	w->stack[63] = AT(START + 8);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x2000), AT(FUN), AT(START + 8));
	check(!w->frames[2].is_return);
}

/* The same from a library that is mapped but whose file is gone. */
TEST(signal_frame_without_a_file)
{
	autoworld w = usual_world();

	CODE(w, JIT + 0x40, "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05");
	w->stack[0] = JIT + 0x40;
	x86_signal_frame(w, 1, AT(FUN), SLOT(60), SLOT(62));
	w->stack[63] = AT(START + 8);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), JIT + 0x40, AT(FUN), AT(START + 8));
}

/* On a signal stack: the interrupted frame is known, what called it lies outside the dump. */
TEST(signal_stack)
{
	autoworld w = usual_world();

	CODE(w, 0x2000, "\x48\xc7\xc0\x0f\x00\x00\x00\x0f\x05");
	w->stack[0] = AT(0x2000);
	x86_signal_frame(w, 1, AT(LEAF + 1), 0x7ff000000000, 0);
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF), AT(0x2000), AT(LEAF + 1));
}

/* ---- ends ---- */

TEST(zero_return_address_is_the_root)
{
	autoworld w = usual_world();

	STACK_WORDS(w, AT(MAIN + 8), 0, 0);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8));
}

TEST(root_ranges_and_entry)
{
	static const struct unwind_range roots[] = {{0x3000, 0x3010}};
	autoworld w = usual_world();

	w->input.roots = roots;
	w->input.root_count = 1;
	w->input.entry = 0x3100;
	STACK_WORDS(w, AT(0x3010));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x3010)); /* minus one is inside */
	STACK_WORDS(w, AT(0x3112));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x3112));
	STACK_WORDS(w, AT(0x3180));
	EXPECT(w, UNWIND_NO_RULE, AT(LEAF), AT(0x3180));
}

TEST(thread_exit_after_the_call_is_the_root)
{
	autoworld w = usual_world();

	CODE(w, 0x3000, "\xff\xd1\x89\xc7\x31\xc0\xb0\x3c\x0f\x05");
	STACK_WORDS(w, AT(0x3002));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(0x3002));
}

TEST(truncated_at_the_end_of_the_dump)
{
	autoworld w = usual_world();

	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	w->dump.size = 16; /* MAIN's return address is the third word */
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF), AT(MAIN + 8));
	w->dump.size = 23;
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF), AT(MAIN + 8));
	w->dump.size = 24;
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(START + 8));
	w->dump.size = 0;
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF));
}

/* Beyond the dump the stack goes on as it stands now, and each frame says where it was read. */
TEST(live_tail)
{
	autoworld w = usual_world();

	w->target.read_tail = read_tail;
	STACK_WORDS(w, AT(MAIN + 8), 0, 0xdead); /* not in the dump, and not what stands there now */
	memcpy(w->now, (const uint64_t[]){0, 0, AT(MAIN + 8), 0, AT(MAIN + 8), 0, AT(MAIN + 8), 0,
			       AT(START + 8)}, 72);
	w->dump.size = 16;
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(MAIN + 8), AT(MAIN + 8), AT(MAIN + 8),
		AT(START + 8));
	check_u64(w->tails, 2);
	check_u64(w->frames[1].source, UNWIND_FROM_DUMP);
	check_u64(w->frames[2].source, UNWIND_FROM_LIVE);
	check_u64(w->frames[5].source, UNWIND_FROM_LIVE);
	check_u64(w->frames[1].slot, SLOT(0));
	check_u64(w->frames[2].slot, SLOT(2));
	check_u64(w->frames[5].slot, SLOT(8));
}

TEST(live_tail_refused)
{
	autoworld w = usual_world();

	w->target.read_tail = read_tail;
	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	w->dump.size = 16;
	w->tail = UNWIND_TAIL_CHANGED;
	EXPECT(w, UNWIND_CHANGED, AT(LEAF), AT(MAIN + 8));
	check_u64(w->tails, 1); /* once changed, never asked again */
	w->tail = UNWIND_TAIL_UNREADABLE;
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF), AT(MAIN + 8));
	w->dump.size = 24; /* all there: nothing is asked */
	w->tails = 0;
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(START + 8));
	check_u64(w->tails, 0);
}

/* A wrong rule must not make us read anywhere. */
TEST(live_tail_is_this_stack_only)
{
	autoworld w = usual_world();

	w->target.read_tail = read_tail;
	STACK_WORDS(w, 1, 2, 3);
	reg(w, RBP, 0x7000); /* below the stack */
	EXPECT(w, UNWIND_NO_PROGRESS, AT(FUN + 8));
	reg(w, RBP, STACK + (1ULL << 40)); /* far above it */
	EXPECT(w, UNWIND_BAD_RULE, AT(FUN + 8));
	check_u64(w->tails, 0);
}

/* An expression must not read the live stack where the dump ends, either. */
TEST(expression_beyond_the_dump)
{
	autoworld w = usual_world();

	FUNC(w, 0x1400, 0x100, CFA_EXPR(3), 0x76, 0x78, 0x06);
	STACK_WORDS(w, 0, 0, SLOT(5), 0, AT(START + 8));
	reg(w, RBP, SLOT(3));
	EXPECT(w, UNWIND_ROOT, AT(0x1410), AT(START + 8));
	w->dump.size = 16;
	EXPECT(w, UNWIND_TRUNCATED, AT(0x1410));
}

TEST(without_a_dump_everything_is_read_live)
{
	autoworld w = usual_world();

	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	w->live = true;
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(START + 8));
	check_u64(w->frames[2].source, UNWIND_FROM_LIVE);
}

TEST(bad_address)
{
	autoworld w = usual_world();

	STACK_WORDS(w, 0x1234567);
	EXPECT(w, UNWIND_BAD_ADDRESS, AT(LEAF));
	STACK_WORDS(w, DATA + 8); /* mapped, not executable */
	EXPECT(w, UNWIND_BAD_ADDRESS, AT(LEAF));
}

TEST(no_progress)
{
	autoworld w = usual_world();

	STACK_WORDS(w, 0, AT(FUN + 8), AT(FUN + 8), 0);
	FUNC(w, 0x1400, 0x100, DEF_CFA(RSP, 24), SAVED(RBP, 3));
	w->stack[0] = STACK - 64; /* FUN's rbp */
	EXPECT(w, UNWIND_NO_PROGRESS, AT(0x1410), AT(FUN + 8));
}

TEST(no_registers)
{
	autoworld w = usual_world();

	walk(w);
	check(w->count == 0 && w->end == UNWIND_NO_REGS);
	reg(w, RA, AT(LEAF));
	walk(w);
	check(w->count == 0 && w->end == UNWIND_NO_REGS);
	reg(w, RSP, STACK);
	walk(w);
	check(w->count == 1 && w->end == UNWIND_ROOT);
}

TEST(frame_limit)
{
	autoworld w = usual_world();

	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	w->limit = 2;
	EXPECT(w, UNWIND_FRAME_LIMIT, AT(LEAF), AT(MAIN + 8));
	w->limit = 3; /* just enough is enough */
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(START + 8));
}

TEST(recursion_300_deep)
{
	autoworld w = usual_world();

	w->stack[0] = AT(MAIN + 8);
	for (unsigned i = 1; i < 300; i++)
		w->stack[2 * i] = AT(MAIN + 8);
	w->stack[600] = AT(START + 8);
	reg(w, RA, AT(LEAF));
	reg(w, RSP, STACK);
	walk(w);
	check_u64(w->count, 302);
	check_str(unwind_end_name(w->end), "root");
}

/* ---- the cache ---- */

TEST(cache_is_shared_and_forgets)
{
	autoworld w = usual_world();
	struct unwinder_stats first, second, third;

	STACK_WORDS(w, AT(MAIN + 8), 0, AT(START + 8));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), AT(MAIN + 8), AT(START + 8));
	unwinder_stats(w->unwinder, &first);
	check_u64(first.cache_misses, 3);
	check_u64(first.frames, 3);
	walk(w);
	unwinder_stats(w->unwinder, &second);
	check_u64(second.cache_misses, 3);
	check_u64(second.cache_hits, 3);
	check_u64(second.walks, 2);
	unwinder_forget(w->unwinder, w->module);
	walk(w);
	unwinder_stats(w->unwinder, &third);
	check_u64(third.cache_misses, 6);
}

TEST(names)
{
	check_str(unwind_end_name(UNWIND_ROOT), "root");
	check_str(unwind_end_name(UNWIND_NO_REGS), "no-regs");
	check_str(unwind_end_name((enum unwind_end)99), "unknown");
	check_str(unwind_how_name(UNWIND_SCAN), "scan");
	check_str(unwind_how_name((enum unwind_how)99), "unknown");
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(common_rules), T(all_saved_registers_return),
		T(return_address_minus_one), T(rows_within_a_function), T(plt_expression),
		T(realigned_stack_expression), T(value_expression_and_data_memory),
		T(return_address_in_a_register), T(caller_saved_base_register),
		T(popped_register_is_the_callers), T(stale_frame_pointer_is_forgotten),
		T(signal_frame_by_code), T(signal_frame_by_cfi), T(signal_frame_without_a_file),
		T(signal_stack), T(zero_return_address_is_the_root), T(root_ranges_and_entry),
		T(thread_exit_after_the_call_is_the_root), T(truncated_at_the_end_of_the_dump),
		T(live_tail), T(live_tail_refused), T(live_tail_is_this_stack_only),
		T(expression_beyond_the_dump), T(without_a_dump_everything_is_read_live),
		T(bad_address), T(no_progress), T(no_registers), T(frame_limit),
		T(recursion_300_deep), T(cache_is_shared_and_forgets), T(names));
}
