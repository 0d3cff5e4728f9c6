/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk over stacks written as short arrays.
 *
 * A world is one module of 16 KB of nop instructions at BIAS, JIT memory at JIT, a stack at STACK
 * and data at DATA. A test puts calls and functions (with CFI bytes) into the module, words onto
 * the stack, and says which program counters must come out.
 */
#ifndef SONDE_TESTS_UNIT_WALK_WORLD_H
#define SONDE_TESTS_UNIT_WALK_WORLD_H

#include "test.h"

#include <stdlib.h>

#include "unwind/arch.h"
#include "unwind/table.h"
#include "unwind/unwind.h"

#define TEXT 0x1000ULL
#define TEXT_BYTES 0x4000
#define BIAS 0x555500000000ULL
#define AT(vaddr) (BIAS + (vaddr))
#define JIT 0x7e0000000000ULL
#define DATA 0x7d0000000000ULL
#define UPROBES 0x7fffffffe000ULL
#define STACK 0x7ffc00001000ULL
#define SLOT(n) (STACK + 8ULL * (n))
#define WORDS 2048

/* Call frame instructions (DWARF 5, 6.4.2). Offsets are in words below the CFA. */
#define DEF_CFA(reg, offset) 0x0c, reg, offset
#define SAVED(reg, words) 0x80 | (reg), words
#define UNDEFINED(reg) 0x07, reg
#define IN_REG(reg, other) 0x09, reg, other
#define CFA_EXPR(len) 0x0f, len
#define AT_EXPR(reg, len) 0x10, reg, len
#define VAL_EXPR(reg, len) 0x16, reg, len
#define ADVANCE(n) 0x40 | (n)
#define NEGATE_RA_STATE 0x2d
#define RBX 3
#define RBP UNWIND_X86_RBP
#define RSP UNWIND_X86_RSP
#define RA UNWIND_X86_PC

struct world {
	enum unwind_arch arch;
	uint8_t text[TEXT_BYTES], jit[4096], data[256], eh[8192];
	size_t eh_len;
	struct unwind_module_input input;
	struct unwind_section text_section;
	struct unwind_module *module;
	struct unwinder *unwinder;
	struct unwind_target target;
	struct unwind_regs regs;
	uint64_t stack[WORDS];
	struct unwind_dump dump;
	bool live; /* hand over no dump */
	uint64_t now[WORDS]; /* the stack as the live tail shows it */
	enum unwind_tail tail;
	unsigned tails; /* how often it was asked for */
	struct unwind_frame frames[512];
	size_t limit, count;
	enum unwind_end end;
};

static inline bool find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	struct world *w = (struct world *)ctx;
	const struct unwind_mapping all[] = {
		{AT(TEXT), AT(TEXT + TEXT_BYTES), BIAS, w->module, 1, true},
		{JIT, JIT + sizeof(w->jit), 0, NULL, 2, true},
		{DATA, DATA + sizeof(w->data), 0, NULL, 3, false},
		{STACK, SLOT(WORDS), 0, NULL, 4, false},
		{UPROBES, UPROBES + 0x1000, UPROBES, NULL, 5, .executable = true, .uretprobes = true},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (addr >= all[i].start && addr < all[i].end) {
			*ret = all[i];
			return true;
		}
	}
	return false;
}

static inline bool read_memory(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct world *w = (struct world *)ctx;
	const struct {
		uint64_t start;
		const void *bytes;
		size_t size;
	} all[] = {
		{AT(TEXT), w->text, TEXT_BYTES},
		{JIT, w->jit, sizeof(w->jit)},
		{DATA, w->data, sizeof(w->data)},
		{STACK, w->stack, sizeof(w->stack)},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		if (addr - all[i].start < all[i].size &&
			len <= all[i].size - (addr - all[i].start)) {
			memcpy(buf, (const uint8_t *)all[i].bytes + (addr - all[i].start), len);
			return true;
		}
	}
	return false;
}

/* Four words at a time, so that a walk needs several. */
static inline enum unwind_tail read_tail(void *ctx, const struct unwind_frame *frames, size_t count,
	uint64_t addr, struct unwind_dump *ret)
{
	struct world *w = (struct world *)ctx;
	uint64_t at = (addr - STACK) / 8, words = at < WORDS ? WORDS - at : 0;

	w->tails++;
	check(count && frames[count - 1].pc);
	if (w->tail != UNWIND_TAIL_OK || !words)
		return w->tail ? w->tail : UNWIND_TAIL_UNREADABLE;
	*ret = (struct unwind_dump){addr, &w->now[at], (words < 4 ? words : 4) * 8};
	return UNWIND_TAIL_OK;
}

static inline void eh_bytes(struct world *w, const void *bytes, size_t len)
{
	memcpy(w->eh + w->eh_len, bytes, len);
	w->eh_len += len;
}

/* Pads the record that began at `start` with nops and puts its length in front. */
static inline void eh_end(struct world *w, size_t start)
{
	while ((w->eh_len - start) % 8 != 0)
		w->eh[w->eh_len++] = 0;

	uint32_t len = (uint32_t)(w->eh_len - start - 4);

	memcpy(w->eh + start, &len, 4);
}

/* Two CIEs: "zR" at 0 and "zRS" (signal frames) behind it; addresses are absolute 64-bit. */
static size_t signal_cie;

static inline void cie(struct world *w, const char *augmentation)
{
	static const uint8_t x86[] = {1, 0x78, RA, 1, 0x00, DEF_CFA(RSP, 8), SAVED(RA, 1)};
	static const uint8_t a64[] = {4, 0x78, UNWIND_A64_LR, 1, 0x00, DEF_CFA(UNWIND_A64_SP, 0)};
	size_t start = w->eh_len;

	eh_bytes(w, "\0\0\0\0\0\0\0\0\1", 9);
	eh_bytes(w, augmentation, strlen(augmentation) + 1);
	if (w->arch == UNWIND_X86_64)
		eh_bytes(w, x86, sizeof(x86));
	else
		eh_bytes(w, a64, sizeof(a64));
	eh_end(w, start);
}

static inline void fde(struct world *w, size_t from_cie, uint64_t vaddr, uint64_t size,
	const uint8_t *program, size_t len)
{
	size_t start = w->eh_len;
	uint32_t back = (uint32_t)(start + 4 - from_cie);

	eh_bytes(w, "\0\0\0\0", 4);
	eh_bytes(w, &back, 4);
	eh_bytes(w, &vaddr, 8);
	eh_bytes(w, &size, 8);
	eh_bytes(w, "\0", 1);
	eh_bytes(w, program, len);
	eh_end(w, start);
}
#define FUNC(w, vaddr, size, ...)                                                                  \
	fde(w, 0, vaddr, size, (const uint8_t[]){0, __VA_ARGS__},                                  \
		sizeof((const uint8_t[]){0, __VA_ARGS__}))
#define SIGNAL_FUNC(w, vaddr, size, ...)                                                           \
	fde(w, signal_cie, vaddr, size, (const uint8_t[]){0, __VA_ARGS__},                         \
		sizeof((const uint8_t[]){0, __VA_ARGS__}))

static inline struct world *world_new(enum unwind_arch arch)
{
	static const uint8_t nop[4] = {0x1f, 0x20, 0x03, 0xd5};
	struct world *w = (struct world *)calloc(1, sizeof(*w));

	if (!w)
		abort();
	w->arch = arch;
	for (size_t i = 0; i < TEXT_BYTES; i++)
		w->text[i] = arch == UNWIND_X86_64 ? 0x90 : nop[i % 4];
	for (size_t i = 0; i < sizeof(w->jit); i++)
		w->jit[i] = arch == UNWIND_X86_64 ? 0x90 : nop[i % 4];
	cie(w, "zR");
	signal_cie = w->eh_len;
	cie(w, "zRS");
	w->text_section = (struct unwind_section){w->text, TEXT_BYTES, TEXT};
	w->input.arch = arch;
	w->input.text = &w->text_section;
	w->input.text_count = 1;
	w->target = (struct unwind_target){
		.arch = arch, .ctx = w, .find_mapping = find_mapping, .read_memory = read_memory};
	w->dump = (struct unwind_dump){STACK, w->stack, sizeof(w->stack)};
	w->limit = sizeof(w->frames) / sizeof(w->frames[0]);
	return w;
}

static inline void world_free(struct world *w)
{
	if (w->unwinder && w->module)
		unwinder_forget(w->unwinder, w->module);
	unwinder_free(w->unwinder);
	unwind_module_free(w->module);
	free(w);
}
#define autoworld __attribute__((cleanup(world_cleanup))) struct world *
static inline void world_cleanup(struct world **w)
{
	world_free(*w);
}

static inline void code_at(struct world *w, uint64_t addr, const char *bytes, size_t len)
{
	uint8_t *at = addr >= JIT ? w->jit + (addr - JIT) : w->text + (addr - TEXT);

	memcpy(at, bytes, len);
}
#define CODE(w, addr, bytes) code_at(w, addr, bytes, sizeof(bytes) - 1)

/* A direct call of `target` that returns to `ra`; both in the module, or both in JIT memory. */
static inline void direct_call(struct world *w, uint64_t ra, uint64_t target)
{
	if (w->arch == UNWIND_X86_64) {
		int32_t rel = (int32_t)(target - ra);

		CODE(w, ra - 5, "\xe8");
		code_at(w, ra - 4, (const char *)&rel, 4);
	} else {
		uint32_t insn = 0x94000000 | (((uint32_t)(target - (ra - 4)) >> 2) & 0x3ffffff);

		code_at(w, ra - 4, (const char *)&insn, 4);
	}
}

/* call *%rax */
static inline void indirect_call(struct world *w, uint64_t ra)
{
	CODE(w, ra - 2, "\xff\xd0");
}

static inline void reg(struct world *w, unsigned n, uint64_t value)
{
	w->regs.value[n] = value;
	w->regs.known |= 1ULL << n;
}

static inline void walk(struct world *w)
{
	if (!w->module) {
		w->input.eh_frame = (struct unwind_section){w->eh, w->eh_len, 0x100000};
		check(!unwind_module_new(&w->input, &w->module, NULL));
		check(!unwinder_new(&w->unwinder, NULL));
	}
	w->count = unwinder_walk(w->unwinder, &w->target, &w->regs, w->live ? NULL : &w->dump,
		w->frames, w->limit, &w->end);
}

/* Walks from `pc` (x86: sp is STACK unless set) and compares the program counters. */
static inline void expect(struct world *w, enum unwind_end end, size_t count, const uint64_t *pcs)
{
	const struct arch *a = arch_of(w->arch);

	reg(w, a->pc, pcs[0]);
	if (!(w->regs.known >> a->sp & 1))
		reg(w, a->sp, STACK);
	walk(w);
	check_str(unwind_end_name(w->end), unwind_end_name(end));
	check_u64(w->count, count);
	for (size_t i = 0; i < count && i < w->count; i++)
		check_u64(w->frames[i].pc, pcs[i]);
}
#define EXPECT(w, end, ...)                                                                        \
	expect(w, end, sizeof((const uint64_t[]){__VA_ARGS__}) / 8, (const uint64_t[]){__VA_ARGS__})

#define STACK_WORDS(w, ...)                                                                        \
	memcpy((w)->stack, (const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}))

static inline void check_how(const struct world *w, size_t frame, enum unwind_how how)
{
	check_str(unwind_how_name((enum unwind_how)w->frames[frame].how), unwind_how_name(how));
}

/* The functions most tests share. */
#define START 0x1000ULL /* return address undefined */
#define MAIN 0x1100ULL	/* CFA = rsp + 16 */
#define FUN 0x1200ULL	/* CFA = rbp + 16, rbp saved */
#define LEAF 0x1300ULL	/* CFA = rsp + 8 */

static inline struct world *usual_world(void)
{
	struct world *w = world_new(UNWIND_X86_64);

	FUNC(w, START, 0x100, UNDEFINED(RA));
	FUNC(w, MAIN, 0x100, DEF_CFA(RSP, 16));
	FUNC(w, FUN, 0x100, DEF_CFA(RBP, 16), SAVED(RBP, 2));
	FUNC(w, LEAF, 0x100);
	return w;
}

#endif
