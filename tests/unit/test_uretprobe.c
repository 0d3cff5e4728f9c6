/* SPDX-License-Identifier: BSD-2-Clause */
/* The walk over return addresses that the kernel has taken away. */
#include "walk_world.h"

#define CALLER 0x1400ULL /* CFA = rsp + 32 */
#define OTHER 0x1500ULL	 /* CFA = rsp + 24 */
#define SITE (CALLER + 0x60)

/* LEAF is probed. MAIN calls CALLER, which calls LEAF. */
static struct world *probed_world(void)
{
	struct world *w = usual_world();

	FUNC(w, CALLER, 0x80, DEF_CFA(RSP, 32));
	FUNC(w, OTHER, 0x80, DEF_CFA(RSP, 24));
	direct_call(w, SITE, LEAF);
	direct_call(w, MAIN + 8, CALLER);
	direct_call(w, MAIN + 0x20, OTHER);
	STACK_WORDS(w, UPROBES, 1, 2, 3, AT(MAIN + 8), 4, AT(START + 8));
	return w;
}

TEST(the_caller_is_proved)
{
	autoworld w = probed_world();

	for (int i = 0; i < 2; i++) { /* again from the cache */
		EXPECT(w, UNWIND_ROOT, AT(LEAF), UPROBES, AT(SITE), AT(MAIN + 8), AT(START + 8));
		check_how(w, 1, UNWIND_CFI);
		check_how(w, 2, UNWIND_SCAN);
		check_u64(w->frames[1].mapping_id, 5);
		check_u64(w->frames[1].vaddr, 0);
		check_u64(w->frames[2].slot, 0);
		check_u64(w->frames[2].mapping_id, 1);
	}
}

/* What lies around in its frame names functions that were called, and proves nothing. */
TEST(old_return_addresses)
{
	autoworld w = probed_world();

	w->stack[1] = AT(MAIN + 0x20); /* OTHER does not call LEAF */
	w->stack[2] = AT(MAIN + 8);    /* the frame of CALLER does not end there */
	EXPECT(w, UNWIND_ROOT, AT(LEAF), UPROBES, AT(SITE), AT(MAIN + 8), AT(START + 8));
}

TEST(a_frame_that_does_not_fit)
{
	autoworld w = probed_world();

	direct_call(w, OTHER + 0x10, LEAF);
	w->stack[2] = AT(MAIN + 0x20); /* where OTHER would not have it */
	EXPECT(w, UNWIND_ROOT, AT(LEAF), UPROBES, AT(SITE), AT(MAIN + 8), AT(START + 8));
	w->stack[2] = 0;
	w->stack[3] = AT(MAIN + 0x20); /* where it would */
	w->stack[4] = 0;
	EXPECT(w, UNWIND_BAD_ADDRESS, AT(LEAF), UPROBES, AT(OTHER + 0x10), AT(MAIN + 0x20));
}

TEST(calls_that_name_nobody)
{
	autoworld w = probed_world();

	memset(w->text + (SITE - 5 - TEXT), 0x90, 5);
	indirect_call(w, SITE);
	EXPECT(w, UNWIND_NO_RULE, AT(LEAF), UPROBES);
	direct_call(w, SITE, LEAF);
}

TEST(a_caller_that_nobody_names)
{
	autoworld w = probed_world();

	memset(w->text + (MAIN + 3 - TEXT), 0x90, 5);
	indirect_call(w, MAIN + 8);
	EXPECT(w, UNWIND_NO_RULE, AT(LEAF), UPROBES);
}

TEST(calls_through_slots)
{
	autoworld w = probed_world();
	int32_t to_slot = (int32_t)(0x3000 - SITE);
	uint64_t leaf = AT(LEAF);

	CODE(w, SITE - 6, "\xff\x15");
	code_at(w, SITE - 4, (const char *)&to_slot, 4);
	code_at(w, 0x3000, (const char *)&leaf, 8);
	EXPECT(w, UNWIND_ROOT, AT(LEAF), UPROBES, AT(SITE), AT(MAIN + 8), AT(START + 8));
}

/* The rule counts from the frame pointer, which LEAF has left alone. */
TEST(a_caller_with_a_frame_pointer)
{
	autoworld w = probed_world();

	direct_call(w, FUN + 0x10, LEAF);
	direct_call(w, MAIN + 0x30, FUN);
	STACK_WORDS(w, UPROBES, AT(MAIN + 8), 2, 77, AT(MAIN + 0x30), 4, AT(START + 8));
	reg(w, RBP, SLOT(3));
	EXPECT(w, UNWIND_ROOT, AT(LEAF), UPROBES, AT(FUN + 0x10), AT(MAIN + 0x30), AT(START + 8));
}

TEST(a_function_that_calls_itself)
{
	autoworld w = probed_world();

	direct_call(w, CALLER + 0x20, CALLER);
	STACK_WORDS(w, 1, 2, 3, UPROBES, 4, 5, 6, UPROBES, 7, 8, 9, AT(MAIN + 8), 4, AT(START + 8));
	/* All levels are probed but the outermost. */
	EXPECT(w, UNWIND_ROOT, AT(SITE - 5), UPROBES, AT(CALLER + 0x20), UPROBES, AT(CALLER + 0x20),
		AT(MAIN + 8), AT(START + 8));
}

TEST(a_stack_that_ends)
{
	autoworld w = probed_world();

	w->dump.size = 4 * 8;
	EXPECT(w, UNWIND_TRUNCATED, AT(LEAF), UPROBES);
}

/* The address of the page is only that where a return address was. */
TEST(an_instruction_in_the_page)
{
	autoworld w = probed_world();

	STACK_WORDS(w, AT(MAIN + 8), 4, AT(START + 8));
	reg(w, UNWIND_X86_RSP, SLOT(0));
	reg(w, RBP, 1);
	reg(w, RA, UPROBES + 0x80);
	walk(w);
	check(w->count >= 1 && w->frames[0].mapping_id == 5);
	for (size_t i = 1; i < w->count; i++)
		check(w->frames[i].mapping_id != 5);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(the_caller_is_proved), T(old_return_addresses),
		T(a_frame_that_does_not_fit), T(calls_that_name_nobody), T(a_caller_that_nobody_names), T(calls_through_slots),
		T(a_caller_with_a_frame_pointer), T(a_function_that_calls_itself),
		T(a_stack_that_ends), T(an_instruction_in_the_page));
}
