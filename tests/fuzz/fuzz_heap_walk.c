/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Walks inside a watched program: any tables, stack, registers and tree of nodes must end within bounds, and a walk that
 * goes on from the last one must find what one from nothing finds.
 *
 * Input: two bytes with how many bytes of tables there are, those; two bytes with the number of stack words, those, of two
 * bytes each whose upper two bits choose between code, the stack, small numbers and large ones; 64 bytes for slots of the index;
 * what is left are steps: a byte that says what happens, then what that needs.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/cursor.h"
#include "heap/preload/walk.h"
#include "heap/tables_layout.h"
#include "tests/unit/own_paths.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CODE 0x100000ULL
#define AREA_BYTES 8192u
#define STACK_BYTES 8192u
#define STEPS 64

static struct walk_memory memory;
static uint8_t *area, *stack;
static struct walk_state *state, *second, *third;

static void *map(uint64_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		abort();
	return p;
}

static void set_up(void)
{
	if (area)
		return;
	memory.header = (struct share_header *)map(4096);
	memory.index = (uint32_t *)map(SHARE_INDEX_SLOTS * 4);
	memory.nodes = (struct share_node *)map(SHARE_NODES * sizeof(struct share_node));
	area = (uint8_t *)map(SHARE_TABLES_BYTES);
	memory.tables = area;
	/* Nothing can be read on either side of the stack. */
	stack = (uint8_t *)map(STACK_BYTES + 8192) + 4096;
	if (mprotect(stack - 4096, 4096, PROT_NONE) || mprotect(stack + STACK_BYTES, 4096, PROT_NONE))
		abort();
	state = (struct walk_state *)map(walk_state_bytes());
	second = (struct walk_state *)map(walk_state_bytes());
	third = (struct walk_state *)map(walk_state_bytes());
}

static void forget_all(void)
{
	memset(memory.header, 0, 4096);
	memset(area, 0, AREA_BYTES);
	memset(stack, 0, STACK_BYTES);
	madvise(memory.index, SHARE_INDEX_SLOTS * 4, MADV_DONTNEED);
	madvise(memory.nodes, SHARE_NODES * sizeof(struct share_node), MADV_DONTNEED);
	walk_forget(state);
	walk_forget(third);
}

static uint64_t take_word(struct cursor *c)
{
	uint16_t raw = cursor_u16(c);
	uint64_t low = raw & 0x3fff;

	switch (raw >> 14) {
	case 0:
		return CODE + low;
	case 1:
		return (uint64_t)(uintptr_t)stack + (low & 0x2fff) - 64;
	case 2:
		return low;
	default:
		return ~low;
	}
}

static void take_tables(struct cursor *c)
{
	uint16_t bytes = cursor_u16(c) % AREA_BYTES;
	const uint8_t *from = bytes <= cursor_left(c) ? cursor_bytes(c, bytes) : NULL;

	if (from)
		memcpy(area + 8, from, bytes < AREA_BYTES - 8 ? bytes : AREA_BYTES - 8);
	/* Most inputs get further with these two right. */
	memcpy(area + 8, &(uint32_t){TABLES_MAGIC}, 4);
	memory.header->directory = TABLES_WORD(8, 1);
}

static void put_stack(struct cursor *c, uint64_t index)
{
	uint64_t word = take_word(c);

	memcpy(stack + index % (STACK_BYTES / 8) * 8, &word, 8);
}

static void check_node(uint32_t node, enum walk_result result)
{
	uint32_t steps = 0;

	if (result == WALK_RAW && node != SHARE_STACK_NONE)
		abort();
	while (node >= SHARE_STACK_FIRST) {
		if (node >= SHARE_NODES || memory.nodes[node].parent >= node || ++steps > SHARE_NODES)
			abort();
		node = memory.nodes[node].parent;
	}
	if (result == WALK_WHOLE && node != SHARE_STACK_ROOT)
		abort();
}

static void walk(struct cursor *c)
{
	struct walk_start start = {take_word(c), take_word(c), take_word(c)};
	uint32_t node, again, once_more;
	enum walk_result result, wanted, third_result;
	bool known;
	bool full = memory.header->node_count > SHARE_NODES - 4096;

	result = walk_stack(&memory, state, &start, &node);
	walk_forget(second);
	wanted = walk_stack(&memory, second, &start, &again);
	paths_skip(third);
	third_result = walk_stack(&memory, third, &start, &once_more);
	check_node(node, result);
	check_node(again, wanted);
	/* Where there is no room for all nodes, how far it gets depends on who came first. */
	if (!full && (result != wanted || node != again || result != third_result || node != once_more))
		abort();
	if (!full && !paths_agree(&memory, third, &start, result, &known))
		abort();
}

static void step(struct cursor *c)
{
	uint8_t what = cursor_u8(c);

	switch (what & 7) {
	case 0:
		memory.header->modules_gone = cursor_u8(c) * 0x1001u;
		break;
	case 1: /* other tables, and published: what was read before is of older ones */
		memory.header->directory += 1ull << 40;
		memcpy(area + cursor_u16(c) % (AREA_BYTES - 8), &(uint64_t){take_word(c)}, 8);
		break;
	case 2:
		memory.header->node_count = SHARE_NODES - cursor_u8(c);
		break;
	case 3:
	case 4:
		for (unsigned n = cursor_u8(c) % 8; n; n--)
			put_stack(c, cursor_u16(c));
		break;
	default:
		walk(c);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor c = cursor_over(data, size);
	const uint8_t *slots;
	unsigned words;

	set_up();
	forget_all();
	take_tables(&c);
	words = cursor_u16(&c) % (STACK_BYTES / 8);
	for (unsigned i = 0; i < words; i++)
		put_stack(&c, i);
	slots = cursor_left(&c) >= 64 ? cursor_bytes(&c, 64) : NULL;
	for (unsigned i = 0; slots && slots[0] && i < 65536; i += 64)
		memcpy((uint8_t *)memory.index + i, slots, 64);
	for (unsigned i = 0; i < STEPS && cursor_left(&c); i++)
		step(&c);
	return 0;
}
