/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks over stacks that are made up, by tables that are written by hand: each kind of frame, what ends a walk, and what
 * the next one may take over. Of both architectures: also run for aarch64 on an emulated processor.
 */
#include <stdlib.h>
#include <sys/mman.h>

#include "test.h"

#include "heap/tables_layout.h"
#include "own_paths.h"

#define CODE 0x10000000ull
#define STEP 0x100ull /* bytes of code of a rule */
#define STACK_WORDS 1024

#if defined(__aarch64__)
#define ADDRESS_MASK 0x0000ffffffffffffull
#define SIGNED (0x55aaull << 48)
static const unsigned signal_fp = (312 + 8 * 29) / 8, signal_lr = (312 + 8 * 30) / 8, signal_sp = (312 + 8 * 31) / 8,
		      signal_pc = (312 + 8 * 32) / 8;
#else
#define ADDRESS_MASK UINT64_MAX
#define SIGNED 0
static const unsigned signal_fp = 15, signal_sp = 20, signal_pc = 21;
#endif

static struct walk_memory memory;
static uint8_t *area;
static struct walk_state *state, *without; /* the second is never walked by paths */
static uint64_t *stack, *other; /* STACK_WORDS each; what lies above and below cannot be read */
static uint64_t pcs[64];
static size_t count;
static uint32_t node;

/* What the rules below are for, in order; the code of rule i is CODE + STEP * i. */
enum code {
	IN_SP16,   /* CFA = sp + 16, return address in its last word */
	IN_SP32_FP, /* CFA = sp + 32, the caller's frame pointer below the return address */
	IN_FP,     /* CFA = fp + 16, as compilers write it */
	IN_BOTTOM,
	IN_SIGNAL,
	IN_REALIGNED, /* CFA = *(fp - 8), the caller's frame pointer at *fp */
	IN_FP_LOST,   /* as IN_SP16, but what becomes of the frame pointer is not known */
	IN_NOTHING,
	IN_LEAF,   /* nothing on the stack yet: return address in the link register */
	CODE_KINDS,
};

static const uint64_t rules[CODE_KINDS] = {
	[IN_SP16] = TABLES_RULE(TABLES_SP, 16, -1, 0),
	[IN_SP32_FP] = TABLES_RULE(TABLES_SP, 32, -1, -2),
	[IN_FP] = TABLES_RULE(TABLES_FP, 16, -1, -2),
	[IN_BOTTOM] = TABLES_RULE(TABLES_BOTTOM, 0, 0, 0),
	[IN_SIGNAL] = TABLES_RULE(TABLES_SIGNAL, 0, 0, 0),
	[IN_REALIGNED] = TABLES_RULE(TABLES_FP_AT, -8, -1, 0),
	[IN_FP_LOST] = TABLES_RULE(TABLES_SP, 16, -1, TABLES_FP_LOST),
	[IN_NOTHING] = TABLES_NONE,
	[IN_LEAF] = TABLES_RULE(TABLES_SP, 0, 0, 0),
};

static uint64_t pc_in(enum code code, unsigned offset)
{
	return CODE + STEP * code + offset;
}

static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static uint64_t *map_stack(void)
{
	uint8_t *p = (uint8_t *)map(STACK_WORDS * 8 + 8192);

	if (mprotect(p, 4096, PROT_NONE) || mprotect(p + 4096 + STACK_WORDS * 8, 4096, PROT_NONE))
		abort();
	return (uint64_t *)(void *)(p + 4096);
}

static void write_tables(uint32_t gone)
{
	struct tables_directory d = {TABLES_MAGIC, 1, gone, 0, ADDRESS_MASK};
	struct tables_module m = {CODE, CODE + STEP * CODE_KINDS, CODE, 8192};
	struct tables_blob b = {0, CODE_KINDS, CODE_KINDS};

	memcpy(area + 4096, &d, sizeof(d));
	memcpy(area + 4096 + sizeof(d), &m, sizeof(m));
	memcpy(area + 8192, &b, sizeof(b));
	for (uint32_t i = 0; i < CODE_KINDS; i++) {
		memcpy(area + 8192 + sizeof(b) + 4 * i, &(uint32_t){(uint32_t)STEP * i}, 4);
		memcpy(area + 8192 + TABLES_RULE_OF_AT(CODE_KINDS) + 2 * i, &(uint16_t){(uint16_t)i}, 2);
	}
	memcpy(area + 8192 + TABLES_RULES_AT(CODE_KINDS), rules, sizeof(rules));
	memory.header->directory += 1ull << 40;
	memory.header->directory = TABLES_WORD(4096, memory.header->directory >> 40);
}

static void begin(void)
{
	if (!area) {
		memory.header = (struct share_header *)map(4096);
		memory.index = (uint32_t *)map(SHARE_INDEX_SLOTS * 4);
		memory.nodes = (struct share_node *)map(SHARE_NODES * sizeof(struct share_node));
		area = (uint8_t *)map(SHARE_TABLES_BYTES);
		memory.tables = area;
		stack = map_stack();
		other = map_stack();
		state = (struct walk_state *)map(walk_state_bytes());
		without = (struct walk_state *)map(walk_state_bytes());
	}
	memset(stack, 0, STACK_WORDS * 8);
	memset(other, 0, STACK_WORDS * 8);
	memory.header->modules_gone = 0;
	walk_forget(state);
	walk_forget(without);
	write_tables(0);
}

static uint64_t at(const uint64_t *from, unsigned word)
{
	return (uint64_t)(uintptr_t)(from + word);
}

static void walk_otherwise(const struct walk_start *start, enum walk_result result)
{
	uint32_t again;
	bool known;

	paths_skip(without);
	check_u64(walk_stack(&memory, without, start, &again), result);
	check_u64(again, node);
	check(paths_agree(&memory, without, start, result, &known));
	/* The second time there are paths, wherever there can be. */
	check(paths_agree(&memory, without, start, result, &known));
}

/* Walks in all ways, and takes the addresses of what was found, innermost first. */
static enum walk_result walk(uint64_t pc, uint64_t sp, uint64_t fp)
{
	struct walk_start start = {pc, sp, fp};
	enum walk_result result = walk_stack(&memory, state, &start, &node);

	walk_otherwise(&start, result);
	count = 0;
	for (uint32_t n = node; n >= SHARE_STACK_FIRST && count < 64; n = memory.nodes[n].parent)
		pcs[count++] = memory.nodes[n].pc;
	return result;
}

#define check_frames(...)                                                                          \
	do {                                                                                       \
		const uint64_t all_[] = {__VA_ARGS__};                                             \
		check_u64(count, sizeof(all_) / 8);                                                \
		for (size_t i_ = 0; i_ < count && i_ < sizeof(all_) / 8; i_++)                     \
			check_u64(pcs[i_], all_[i_]);                                              \
	} while (0)

/* Frames of IN_SP16 from word `from` on, then the bottom. */
static void put_plain(uint64_t *to, unsigned from, unsigned frames)
{
	for (unsigned i = 0; i < frames; i++)
		to[from + 2 * i + 1] = SIGNED | (i + 1 < frames ? pc_in(IN_SP16, 0x20 + i) : pc_in(IN_BOTTOM, 1));
}

TEST(plain_frames)
{
	begin();
	put_plain(stack, 10, 3);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
	check_frames(pc_in(IN_SP16, 1), pc_in(IN_SP16, 0x20), pc_in(IN_SP16, 0x21), pc_in(IN_BOTTOM, 1));
	/* A return address of nothing ends it as well. */
	stack[15] = 0;
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
	check_frames(pc_in(IN_SP16, 1), pc_in(IN_SP16, 0x20), pc_in(IN_SP16, 0x21));
	/* The first byte of a rule's code is asked for by the one before it. */
	check_u64(walk(pc_in(IN_SP32_FP, 0), at(stack, 10), 0), WALK_WHOLE);
	check_frames(pc_in(IN_SP32_FP, 0), pc_in(IN_SP16, 0x20), pc_in(IN_SP16, 0x21));
}

TEST(frame_pointers)
{
	begin();
	/* 10: saves it; 20: found by it, twice. */
	stack[12] = at(stack, 20);
	stack[13] = SIGNED | pc_in(IN_FP, 5);
	stack[20] = at(stack, 30);
	stack[21] = SIGNED | pc_in(IN_FP, 6);
	stack[30] = 0x1234;
	stack[31] = SIGNED | pc_in(IN_SP16, 7);
	put_plain(stack, 32, 1);
	check_u64(walk(pc_in(IN_SP32_FP, 1), at(stack, 10), 99), WALK_WHOLE);
	check_frames(pc_in(IN_SP32_FP, 1), pc_in(IN_FP, 5), pc_in(IN_FP, 6), pc_in(IN_SP16, 7), pc_in(IN_BOTTOM, 1));

	/* A saved frame pointer that has changed is noticed, whatever the return addresses say. */
	stack[12] = at(stack, 30);
	check_u64(walk(pc_in(IN_SP32_FP, 1), at(stack, 10), 99), WALK_WHOLE);
	check_frames(pc_in(IN_SP32_FP, 1), pc_in(IN_FP, 5), pc_in(IN_SP16, 7), pc_in(IN_BOTTOM, 1));

	/* One that leads down, nowhere, or is not known. */
	stack[12] = at(stack, 8);
	check_u64(walk(pc_in(IN_SP32_FP, 1), at(stack, 10), 99), WALK_RAW);
	check_u64(node, SHARE_STACK_NONE);
	stack[12] = 64;
	check_u64(walk(pc_in(IN_SP32_FP, 1), at(stack, 10), 99), WALK_RAW);
	stack[11] = pc_in(IN_FP, 5);
	check_u64(walk(pc_in(IN_FP_LOST, 1), at(stack, 10), at(stack, 20)), WALK_RAW);
}

TEST(frame_pointers_that_do_not_matter)
{
	begin();
	put_plain(stack, 10, 5);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 5), WALK_WHOLE);

	uint32_t first = node;

	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 6), WALK_WHOLE);
	check_u64(node, first);
}

TEST(realigned_frames)
{
	begin();
	/* fp at 20: where its caller's frame begins stands below it. */
	stack[19] = at(stack, 40);
	stack[20] = at(stack, 50);
	stack[39] = SIGNED | pc_in(IN_FP, 9);
	stack[50] = 0;
	stack[51] = SIGNED | pc_in(IN_BOTTOM, 1);
	for (int i = 0; i < 2; i++) {
		check_u64(walk(pc_in(IN_REALIGNED, 1), at(stack, 4), at(stack, 20)), WALK_WHOLE);
		check_frames(pc_in(IN_REALIGNED, 1), pc_in(IN_FP, 9), pc_in(IN_BOTTOM, 1));
	}
	/* The word that says where is one of those that count. */
	stack[19] = at(stack, 44);
	stack[43] = SIGNED | pc_in(IN_BOTTOM, 3);
	check_u64(walk(pc_in(IN_REALIGNED, 1), at(stack, 4), at(stack, 20)), WALK_WHOLE);
	check_frames(pc_in(IN_REALIGNED, 1), pc_in(IN_BOTTOM, 3));
}

static void put_signal(uint64_t *to, unsigned from, uint64_t pc, uint64_t sp)
{
	to[from + signal_pc] = pc;
	to[from + signal_sp] = sp;
	to[from + signal_fp] = 77;
#if defined(__aarch64__)
	to[from + signal_lr] = SIGNED | pc_in(IN_SP16, 0x30);
#endif
}

TEST(signal_frames_on_the_same_and_on_another_stack)
{
	begin();
	for (int i = 0; i < 2; i++) {
		uint64_t *from = i ? other : stack;

		/* The handler, what it returns to, then what was interrupted: its first byte, exactly. */
		from[1] = SIGNED | pc_in(IN_SIGNAL, 1);
		put_signal(from, 2, pc_in(IN_SP16, 0), at(stack, 200));
		put_plain(stack, 200, 2);
		check_u64(walk(pc_in(IN_SP16, 1), at(from, 0), 0), WALK_WHOLE);
		check_frames(pc_in(IN_SP16, 1), pc_in(IN_SIGNAL, 1), pc_in(IN_SP16, 0), pc_in(IN_SP16, 0x20),
			pc_in(IN_BOTTOM, 1));
		/* What was interrupted is looked at again each time. */
		put_signal(from, 2, pc_in(IN_SP16, 0), at(stack, 202));
		check_u64(walk(pc_in(IN_SP16, 1), at(from, 0), 0), WALK_WHOLE);
		check_frames(pc_in(IN_SP16, 1), pc_in(IN_SIGNAL, 1), pc_in(IN_SP16, 0), pc_in(IN_BOTTOM, 1));
	}
	/* Back on the first stack. */
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 200), 0), WALK_WHOLE);
	check_frames(pc_in(IN_SP16, 1), pc_in(IN_SP16, 0x20), pc_in(IN_BOTTOM, 1));
}

TEST(leaves_that_signals_interrupted)
{
	begin();
	stack[1] = SIGNED | pc_in(IN_SIGNAL, 1);
	put_signal(stack, 2, pc_in(IN_LEAF, 4), at(stack, 200));
	put_plain(stack, 200, 2);
#if defined(__aarch64__)
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 0), 0), WALK_WHOLE);
	check_frames(pc_in(IN_SP16, 1), pc_in(IN_SIGNAL, 1), pc_in(IN_LEAF, 4), pc_in(IN_SP16, 0x30),
		pc_in(IN_SP16, 0x20), pc_in(IN_BOTTOM, 1));
#else
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 0), 0), WALK_RAW);
#endif
	/* No call leaves its return address there. */
	check_u64(walk(pc_in(IN_LEAF, 4), at(stack, 200), 0), WALK_RAW);
}

TEST(what_is_not_known_is_left_to_the_collector)
{
	begin();
	put_plain(stack, 10, 3);
	check_u64(walk(pc_in(IN_NOTHING, 1), at(stack, 10), 0), WALK_RAW);
	stack[11] = 0x4000; /* no code */
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_RAW);
	stack[11] = pc_in(CODE_KINDS, 1);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_RAW);
	/* Beyond the end of the stack; on none at all. */
	put_plain(stack, STACK_WORDS - 2, 0);
	stack[STACK_WORDS - 1] = SIGNED | pc_in(IN_SP16, 3);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, STACK_WORDS - 2), 0), WALK_RAW);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, STACK_WORDS), 0), WALK_RAW);
	check_u64(walk(pc_in(IN_SP16, 1), 0, 0), WALK_RAW);
	check_u64(walk(pc_in(IN_SP16, 1), UINT64_MAX - 7, 0), WALK_RAW);
	/* And then one that is. */
	put_plain(stack, 10, 3);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
}

TEST(tables_come_and_go)
{
	begin();
	put_plain(stack, 10, 3);
	memory.header->directory = 0;
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_RAW);
	write_tables(0);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);

	uint32_t before = node;

	/* Tables that do not know yet what was unmapped. */
	memory.header->modules_gone = 1;
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_RAW);
	write_tables(1);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
	check(node != before);
	check_frames(pc_in(IN_SP16, 1), pc_in(IN_SP16, 0x20), pc_in(IN_SP16, 0x21), pc_in(IN_BOTTOM, 1), 2);
}

/* Each word of a stack changed, one by one: no walk may go on from what is not so any more. */
TEST(every_word_that_changes_is_noticed)
{
	begin();
	for (unsigned word = 10; word < 30; word++) {
		put_plain(stack, 10, 10);
		check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
		check_u64(count, 11);
		stack[word] = SIGNED | pc_in(IN_BOTTOM, 9);
		check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
		check_u64(count, word % 2 ? (word - 10) / 2 + 2 : 11);
		check_u64(pcs[count - 1], word % 2 ? pc_in(IN_BOTTOM, 9) : pc_in(IN_BOTTOM, 1));
	}
}

/* A stack that ended in a return address of nothing goes on now. */
TEST(an_end_that_is_none_any_more)
{
	begin();
	put_plain(stack, 10, 4);
	stack[15] = 0;
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
	check_u64(count, 3);
	stack[15] = SIGNED | pc_in(IN_SP16, 5);
	check_u64(walk(pc_in(IN_SP16, 1), at(stack, 10), 0), WALK_WHOLE);
	check_u64(count, 5);

	/* The same of a frame that is found through a word. */
	stack[119] = at(stack, 140);
	check_u64(walk(pc_in(IN_REALIGNED, 1), at(stack, 104), at(stack, 120)), WALK_WHOLE);
	check_u64(count, 1);
	stack[119] = at(stack, 144);
	stack[143] = SIGNED | pc_in(IN_BOTTOM, 3);
	check_u64(walk(pc_in(IN_REALIGNED, 1), at(stack, 104), at(stack, 120)), WALK_WHOLE);
	check_u64(count, 2);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(plain_frames), T(frame_pointers), T(frame_pointers_that_do_not_matter),
		T(realigned_frames), T(signal_frames_on_the_same_and_on_another_stack), T(leaves_that_signals_interrupted),
		T(what_is_not_known_is_left_to_the_collector), T(tables_come_and_go), T(every_word_that_changes_is_noticed),
		T(an_end_that_is_none_any_more));
}
