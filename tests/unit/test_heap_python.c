/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Chains of Python frames that are made up, as code inside a program follows them: whole ones, circles, pages that cannot
 * be read, and random words.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test.h"

#include "heap/preload/walk.h"

#define WORDS 512u /* of the page that can be read; before it and behind it nothing can */

/* Where things are in that page, in words. */
#define SELF 8u
#define STATE_SLOT 10u
#define THREAD 16u
#define LOCK 32u
#define TYPE 40u
#define CODES 48u   /* of 8 words each */
#define FRAMES 128u /* of 8 words each */

static struct walk_memory memory;
static struct walk_state *state;
static uint64_t *words;
static uint64_t told[64], calls;
static size_t told_count;

static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static uint64_t at(unsigned word)
{
	return (uint64_t)(uintptr_t)(words + word);
}

static bool tell_code(void *ctx, const struct share_python *python, uint64_t code, uint64_t key)
{
	check((key & (SHARE_CODE_MOST - 1)) == code);
	if (told_count < 64)
		told[told_count] = code;
	told_count++;
	return true;
}

static bool tell_call(void *ctx, uint64_t pc)
{
	calls++;
	return true;
}

static uint64_t frame_at(unsigned i)
{
	return at(FRAMES + 8 * i);
}

static uint64_t code_at(unsigned i)
{
	return at(CODES + 8 * i);
}

/* In frames: 0: code, 1: previous, 2: position, byte 24: owner, byte 25: is an entry. In code: 0: type, 1 to 3: name, file,
 * table; 4: line; 5: bytecode. */
static void lay_out(unsigned minor)
{
	*share_python_of(memory.header) = (struct share_python){
		.state = SHARE_PYTHON_READY,
		.state_at = 8 * (STATE_SLOT - SELF),
		.code_type = at(TYPE),
		.code_mask = ~0ull,
		.lock = at(LOCK),
		.lock_locked_at = 8,
		.minor = (uint16_t)minor,
		.thread_frame_at = 8,
		.cframe_frame_at = SHARE_PYTHON_NONE,
		.thread_cframe_at = SHARE_PYTHON_NONE,
		.previous_at = 8,
		.position_at = 16,
		.owner_at = minor >= 11 ? 24 : SHARE_PYTHON_NONE,
		.entry_at = minor == 11 ? 25 : SHARE_PYTHON_NONE,
		.code_bytecode_at = minor >= 11 ? 40 : SHARE_PYTHON_NONE,
		.code_name_at = 8,
		.code_file_at = 16,
		.code_table_at = 24,
		.code_line_at = 32,
	};
}

static void begin(unsigned minor, bool holds_lock)
{
	if (!words) {
		uint8_t *pages = (uint8_t *)map(3 * 4096);

		if (mprotect(pages, 4096, PROT_NONE) || mprotect(pages + 8192, 4096, PROT_NONE))
			abort();
		words = (uint64_t *)(void *)(pages + 4096);
		memory.header = (struct share_header *)map(4096);
		memory.index = (uint32_t *)map(SHARE_INDEX_SLOTS * 4);
		memory.nodes = (struct share_node *)map(SHARE_NODES * sizeof(struct share_node));
		state = (struct walk_state *)map(walk_state_bytes());
	}
	memset(words, 0, 4096);
	walk_forget(state);
	told_count = calls = 0;
	lay_out(minor);
	words[STATE_SLOT] = at(THREAD);
	words[THREAD] = at(SELF);
	words[LOCK] = holds_lock ? at(THREAD) : 0;
	words[LOCK + 1] = holds_lock;
	for (unsigned i = 0; i < 4; i++) {
		words[CODES + 8 * i] = at(TYPE);
		words[CODES + 8 * i + 4] = 10ull * i + 1;
	}
}

static void put_frame(unsigned i, unsigned code, unsigned owner, uint64_t previous)
{
	words[FRAMES + 8 * i] = code_at(code);
	words[FRAMES + 8 * i + 1] = previous;
	words[FRAMES + 8 * i + 2] = code_at(code) + 40 + 2ull * i;
	words[FRAMES + 8 * i + 3] = owner;
}

static uint32_t walk(void)
{
	const struct walk_python_teller teller = {tell_code, tell_call, NULL};

	words[THREAD + 1] = words[THREAD + 1] ? words[THREAD + 1] : frame_at(0);
	return walk_python(&memory, state, at(SELF), SHARE_STACK_FIRST, &teller);
}

/* Frames of the pair, and what stands at their end. */
static unsigned count_frames(uint32_t pair, uint32_t *ret_end)
{
	uint32_t n = (uint32_t)memory.nodes[pair].pc;
	unsigned count = 0;

	check_u64(SHARE_DETAIL_KIND(memory.nodes[pair].detail), SHARE_PAIR);
	check_u64(memory.nodes[pair].parent, SHARE_STACK_FIRST);
	for (; n >= SHARE_STACK_FIRST; n = memory.nodes[n].parent)
		count++;
	*ret_end = n;
	return count;
}

static const struct share_node *python_node(uint32_t pair)
{
	return &memory.nodes[memory.nodes[pair].pc];
}

TEST(frames_up_to_their_shim)
{
	uint32_t pair, end;

	begin(12, true);
	put_frame(0, 1, 0, frame_at(1));
	put_frame(1, 2, 0, frame_at(2));
	put_frame(2, 0, 3, 0);
	pair = walk();
	check_u64(count_frames(pair, &end), 2);
	check_u64(end, SHARE_STACK_ROOT);
	check_u64(python_node(pair)->pc & (SHARE_CODE_MOST - 1), code_at(1));
	check_u64(SHARE_DETAIL_VALUE(python_node(pair)->detail), SHARE_PYTHON_OFFSET_ADDED);
	check_u64(SHARE_DETAIL_KIND(python_node(pair)->detail), SHARE_PYTHON_FRAME);
	check_u64(told_count, 2);
	check_u64(walk(), pair);
	check_u64(told_count, 2);
}

TEST(without_a_native_stack)
{
	const struct walk_python_teller teller = {tell_code, tell_call, NULL};
	uint32_t node;

	begin(12, true);
	put_frame(0, 1, 0, frame_at(1));
	put_frame(1, 0, 3, 0);
	words[THREAD + 1] = frame_at(0);
	node = walk_python(&memory, state, at(SELF), SHARE_STACK_NONE, &teller);
	check_u64(SHARE_DETAIL_KIND(memory.nodes[node].detail), SHARE_PYTHON_ENTRY);
	check_u64(calls, 0);
}

TEST(a_call_without_a_frame)
{
	uint32_t pair, end;

	begin(13, true);
	put_frame(0, 0, 3, frame_at(1));
	put_frame(1, 2, 0, frame_at(2));
	put_frame(2, 0, 3, 0);
	pair = walk();
	check_u64(count_frames(pair, &end), 2);
	check_u64(python_node(pair)->pc, 0);
	check_u64(SHARE_DETAIL_KIND(python_node(pair)->detail), SHARE_PYTHON_ENTRY);
}

TEST(each_frame_is_a_call_before_3_11)
{
	uint32_t pair, end;

	begin(9, false);
	put_frame(0, 1, 0, frame_at(1));
	put_frame(1, 2, 0, 0);
	words[FRAMES + 2] = 6;
	words[FRAMES + 8 + 2] = (uint64_t)(uint32_t)-1;
	pair = walk();
	check_u64(count_frames(pair, &end), 2);
	check_u64(end, SHARE_STACK_ROOT);
	check_u64(SHARE_DETAIL_KIND(python_node(pair)->detail), SHARE_PYTHON_ENTRY);
	check_u64(SHARE_DETAIL_VALUE(python_node(pair)->detail), 6 + SHARE_PYTHON_OFFSET_ADDED);
	check_u64(SHARE_DETAIL_VALUE(memory.nodes[python_node(pair)->parent].detail), SHARE_PYTHON_OFFSET_ADDED - 1);
}

TEST(another_code_object_in_the_same_place)
{
	uint32_t first, second;

	begin(12, true);
	put_frame(0, 1, 0, frame_at(1));
	put_frame(1, 0, 3, 0);
	first = walk();
	words[CODES + 8 + 3] = 0x7f0012345670;
	second = walk();
	check(first != second);
	check_u64(told_count, 2);
	words[CODES + 8 + 3] = 0;
	check_u64(walk(), first);
}

TEST(what_is_no_thread_of_ours)
{
	begin(12, true);
	put_frame(0, 1, 0, 0);
	words[THREAD] = at(SELF) + 8;
	check_u64(walk(), SHARE_STACK_FIRST);
	words[STATE_SLOT] = 0;
	check_u64(walk(), SHARE_STACK_FIRST);
	words[STATE_SLOT] = at(WORDS);
	check_u64(walk(), SHARE_STACK_FIRST);
	words[STATE_SLOT] = 0xdead00000000;
	check_u64(walk(), SHARE_STACK_FIRST);
}

TEST(chains_that_end_in_nothing)
{
	static const uint64_t ends[] = {1, 8, 4096, 0x5555deadbee0, 1ull << 56, 1ull << 63, UINT64_MAX - 7, UINT64_MAX};

	for (unsigned minor = 8; minor <= 14; minor++)
		for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]) + 2; i++) {
			uint64_t end = i < 8 ? ends[i] : at(i == 8 ? WORDS : 0) - (i == 8 ? 0 : 8);
			uint32_t pair, reached;

			begin(minor, i & 1);
			put_frame(0, 1, 0, end);
			if (minor <= 10)
				words[FRAMES + 2] = 4;
			pair = walk();
			check_u64(count_frames(pair, &reached), 1);
			check_u64(reached, SHARE_STACK_CUT);
		}
}

TEST(a_circle_ends)
{
	uint32_t pair, end;

	begin(12, true);
	put_frame(0, 1, 0, frame_at(1));
	put_frame(1, 2, 0, frame_at(0));
	pair = walk();
	check_u64(count_frames(pair, &end), 16384);
	check_u64(end, SHARE_STACK_CUT);
}

static uint64_t random_state = 1;

static uint64_t random_word(void)
{
	random_state = random_state * 6364136223846793005u + 1442695040888963407u;
	return random_state >> 16;
}

/* Words that lead somewhere, mostly, and now and then to where nothing is. */
static uint64_t wild_word(void)
{
	switch (random_word() % 8) {
	case 0:
		return random_word() << 8;
	case 1:
		return at(0) - 8 * (random_word() % 4);
	case 2:
		return at(WORDS) - random_word() % 16;
	case 3:
		return at(TYPE);
	case 4:
		return at(SELF);
	default:
		return at((unsigned)(random_word() % WORDS)) + (random_word() % 64 ? 0 : 4);
	}
}

TEST(random_words)
{
	for (unsigned i = 0; i < 20000; i++) {
		begin(8 + i % 8, i & 8);
		for (unsigned w = 0; w < WORDS; w++)
			if (random_word() % 4)
				words[w] = wild_word();
		if (i % 3) {
			words[STATE_SLOT] = at(THREAD);
			words[THREAD] = at(SELF);
			words[THREAD + 1] = frame_at(0);
			put_frame(0, 1, 0, frame_at(1));
			words[CODES + 8] = at(TYPE);
		}
		share_python_of(memory.header)->cframe_frame_at = i & 16 ? 0 : SHARE_PYTHON_NONE;
		share_python_of(memory.header)->thread_cframe_at = i & 32 ? 24 : SHARE_PYTHON_NONE;
		memory.header->node_count = memory.header->node_count > SHARE_NODES / 2 ? SHARE_STACK_FIRST
											: memory.header->node_count;
		check(walk() >= SHARE_STACK_FIRST);
	}
}

TEST(no_room_for_nodes)
{
	begin(12, true);
	put_frame(0, 3, 0, frame_at(1));
	put_frame(1, 0, 3, 0);
	words[FRAMES + 2] += 100;
	memory.header->node_count = SHARE_NODES;
	check_u64(walk(), SHARE_STACK_FIRST);
	memory.header->node_count = SHARE_STACK_FIRST;
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(frames_up_to_their_shim), T(without_a_native_stack), T(a_call_without_a_frame), T(each_frame_is_a_call_before_3_11),
		T(another_code_object_in_the_same_place), T(what_is_no_thread_of_ours), T(chains_that_end_in_nothing),
		T(a_circle_ends), T(random_words), T(no_room_for_nodes));
}
