/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk: any registers, stack, code and call frame information must end, and within bounds.
 *
 * Input: a byte of flags; 33 registers; a byte with the number of FDEs, each {start, size, length,
 * instructions}; two bytes with the number of stack words, then those; what is left is code. Words
 * are two bytes: the upper two bits choose between the module, the stack, JIT memory and a plain
 * number, so that addresses hit something.
 */
#include <stdlib.h>

#include "base/cursor.h"
#include "unwind/unwind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BIAS 0x100000ULL
#define TEXT_BYTES 0x4000
#define JIT 0x200000ULL
#define STACK 0x300000ULL
#define UPROBES 0x2000ULL /* among the small numbers */
#define MAX_WORDS 1024
#define MAX_FRAMES 64

struct world {
	uint8_t *text, *jit, *eh;
	size_t eh_len;
	uint64_t *stack;
	size_t words;
	struct unwind_module *module;
};

static uint64_t take_word(struct cursor *c)
{
	uint16_t raw = cursor_u16(c);
	uint64_t low = raw & 0x3fff;

	switch (raw >> 14) {
	case 0:
		return BIAS + low;
	case 1:
		return STACK + low;
	case 2:
		return JIT + low;
	default:
		return low == 0x3fff ? ~0ULL : low;
	}
}

static bool find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	const struct world *w = (const struct world *)ctx;
	const struct unwind_mapping all[] = {
		{BIAS, BIAS + TEXT_BYTES, BIAS, w->module, 1, true},
		{JIT, JIT + TEXT_BYTES, 0, NULL, 2, true},
		{STACK, STACK + TEXT_BYTES, 0, NULL, 3, false},
		{UPROBES, UPROBES + 0x1000, UPROBES, NULL, 4, .executable = true, .uretprobes = true},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (addr >= all[i].start && addr < all[i].end) {
			*ret = all[i];
			return true;
		}
	}
	return false;
}

static bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct world *w = (const struct world *)ctx;
	const uint8_t *from = addr >= STACK ? (const uint8_t *)w->stack : w->jit;
	uint64_t offset = addr - (addr >= STACK ? STACK : JIT);
	size_t size = addr >= STACK ? w->words * 8 : TEXT_BYTES;

	if (addr < JIT || offset >= size || len > size - offset)
		return false;
	memcpy(buf, from + offset, len);
	return true;
}

static void eh_put(struct world *w, const void *bytes, size_t len)
{
	memcpy(w->eh + w->eh_len, bytes, len);
	w->eh_len += len;
}

static void eh_end(struct world *w, size_t start)
{
	uint32_t len = (uint32_t)(w->eh_len - start - 4);

	memcpy(w->eh + start, &len, 4);
}

static void take_fde(struct world *w, struct cursor *c)
{
	size_t start = w->eh_len;
	uint32_t back = (uint32_t)start + 4;
	uint64_t from = cursor_u8(c) * 64ULL, size = cursor_u8(c) * 16ULL;
	uint8_t len = cursor_u8(c) & 63;
	const uint8_t *program = len <= cursor_left(c) ? cursor_bytes(c, len) : NULL;

	eh_put(w, "\0\0\0\0", 4);
	eh_put(w, &back, 4);
	eh_put(w, &from, 8);
	eh_put(w, &size, 8);
	eh_put(w, "\0", 1);
	if (program)
		eh_put(w, program, len);
	eh_end(w, start);
}

static void name_functions(void *functions, void (*take)(void *ctx, uint64_t vaddr), void *ctx)
{
	(void)functions;
	for (uint64_t at = 0; at < TEXT_BYTES; at += 0x200)
		take(ctx, at);
}

static void take_module(struct world *w, struct cursor *c, uint8_t flags)
{
	static const uint8_t x86[] = {1, 0x78, 16, 1, 0, 0x0c, 7, 8, 0x90, 1};
	static const uint8_t a64[] = {1, 0x78, 30, 1, 0, 0x0c, 31, 0, 0, 0};
	bool arm = flags & 1;

	w->eh = (uint8_t *)malloc(256 * 100 + 64);
	w->text = (uint8_t *)calloc(1, TEXT_BYTES);
	w->jit = (uint8_t *)calloc(1, TEXT_BYTES);
	w->stack = (uint64_t *)calloc(MAX_WORDS, 8);
	if (!w->eh || !w->text || !w->jit || !w->stack)
		abort();
	eh_put(w, "\0\0\0\0\0\0\0\0\1", 9);
	eh_put(w, flags & 2 ? "zRS" : "zR", flags & 2 ? 4 : 3);
	eh_put(w, arm ? a64 : x86, sizeof(x86));
	eh_end(w, 0);
	for (unsigned n = cursor_u8(c); n; n--)
		take_fde(w, c);

	w->words = cursor_u16(c) % (MAX_WORDS + 1);
	for (size_t i = 0; i < w->words; i++)
		w->stack[i] = take_word(c);

	/* Over and over, so that there is code wherever an address points. */
	size_t left = cursor_left(c);

	for (size_t i = 0; left && i < TEXT_BYTES; i++)
		w->text[i] = w->jit[i] = c->at[i % left];

	struct unwind_section text = {w->text, TEXT_BYTES, 0};
	struct unwind_range root = {0x3000, 0x3010};
	struct unwind_module_input in = {
		.arch = arm ? UNWIND_AARCH64 : UNWIND_X86_64,
		.eh_frame = {w->eh, w->eh_len, 0x100000},
		.text = &text,
		.text_count = 1,
		.roots = &root,
		.root_count = 1,
		.entry = 0x3100,
		.go = flags & 4,
		.each_function = flags & 64 ? name_functions : NULL,
	};

	if (unwind_module_new(&in, &w->module, NULL))
		abort();
}

static void check_walk(const struct unwind_frame *frames, size_t count, enum unwind_end end)
{
	if (count > MAX_FRAMES || (unsigned)end >= UNWIND_END_COUNT ||
		(!count && end != UNWIND_NO_REGS))
		abort();
	for (size_t i = 0; i < count; i++) {
		if (frames[i].how >= UNWIND_HOW_COUNT || frames[i].source > UNWIND_FROM_REGS)
			abort();
		if (i && frames[i].mapping_id != 1 && frames[i].mapping_id != 2)
			abort(); /* only executable memory is ever returned to */
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor c = cursor_over(data, size);
	uint8_t flags = cursor_u8(&c);
	struct unwind_regs regs = {.known = (1ULL << UNWIND_MAX_REGS) - 1};
	struct unwind_frame frames[MAX_FRAMES];
	struct world w = {0};
	struct unwinder *u;
	enum unwind_end end;

	for (unsigned i = 0; i < UNWIND_MAX_REGS; i++)
		regs.value[i] = take_word(&c);
	take_module(&w, &c, flags);
	if (unwinder_new(&u, NULL))
		abort();

	struct unwind_target target = {
		.arch = flags & 1 ? UNWIND_AARCH64 : UNWIND_X86_64,
		.ctx = &w,
		.find_mapping = find_mapping,
		.read_memory = flags & 8 ? NULL : read_memory,
		.stack_end = flags & 16 ? STACK + 0x800 : 0,
	};
	/* Its own allocation, so that a read past the end is seen. */
	void *bytes = malloc(w.words ? w.words * 8 : 1);

	if (!bytes)
		abort();
	memcpy(bytes, w.stack, w.words * 8);

	struct unwind_dump dump = {STACK, bytes, w.words * 8};

	/* Twice: the second time from a warm cache, which must not change a thing. */
	size_t count = unwinder_walk(
		u, &target, &regs, flags & 32 ? NULL : &dump, frames, MAX_FRAMES, &end);
	enum unwind_end first_end = end;

	check_walk(frames, count, end);
	if (unwinder_walk(u, &target, &regs, flags & 32 ? NULL : &dump, frames, MAX_FRAMES, &end) !=
			count ||
		end != first_end)
		abort();

	unwinder_free(u);
	unwind_module_free(w.module);
	free(bytes);
	free(w.text);
	free(w.jit);
	free(w.eh);
	free(w.stack);
	return 0;
}
