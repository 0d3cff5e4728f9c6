/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk over stacks written as short arrays.
 *
 * A world is one module of 16 KB of nop instructions at BIAS, JIT memory at JIT, a stack at STACK
 * and data at DATA. A test puts calls and functions (with CFI bytes) into the module, words onto
 * the stack, and says which program counters must come out.
 */
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

static bool find_mapping(void *ctx, uint64_t addr, struct unwind_mapping *ret)
{
	struct world *w = (struct world *)ctx;
	const struct unwind_mapping all[] = {
		{AT(TEXT), AT(TEXT + TEXT_BYTES), BIAS, w->module, 1, true},
		{JIT, JIT + sizeof(w->jit), 0, NULL, 2, true},
		{DATA, DATA + sizeof(w->data), 0, NULL, 3, false},
		{STACK, SLOT(WORDS), 0, NULL, 4, false},
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
static enum unwind_tail read_tail(void *ctx, const struct unwind_frame *frames, size_t count,
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

static void eh_bytes(struct world *w, const void *bytes, size_t len)
{
	memcpy(w->eh + w->eh_len, bytes, len);
	w->eh_len += len;
}

/* Pads the record that began at `start` with nops and puts its length in front. */
static void eh_end(struct world *w, size_t start)
{
	while ((w->eh_len - start) % 8 != 0)
		w->eh[w->eh_len++] = 0;

	uint32_t len = (uint32_t)(w->eh_len - start - 4);

	memcpy(w->eh + start, &len, 4);
}

/* Two CIEs: "zR" at 0 and "zRS" (signal frames) behind it; addresses are absolute 64-bit. */
static size_t signal_cie;

static void cie(struct world *w, const char *augmentation)
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

static void fde(struct world *w, size_t from_cie, uint64_t vaddr, uint64_t size,
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

static struct world *world_new(enum unwind_arch arch)
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

static void world_free(struct world *w)
{
	if (w->unwinder && w->module)
		unwinder_forget(w->unwinder, w->module);
	unwinder_free(w->unwinder);
	unwind_module_free(w->module);
	free(w);
}
#define autoworld __attribute__((cleanup(world_cleanup))) struct world *
static void world_cleanup(struct world **w)
{
	world_free(*w);
}

static void code_at(struct world *w, uint64_t addr, const char *bytes, size_t len)
{
	uint8_t *at = addr >= JIT ? w->jit + (addr - JIT) : w->text + (addr - TEXT);

	memcpy(at, bytes, len);
}
#define CODE(w, addr, bytes) code_at(w, addr, bytes, sizeof(bytes) - 1)

/* A direct call of `target` that returns to `ra`; both in the module, or both in JIT memory. */
static void direct_call(struct world *w, uint64_t ra, uint64_t target)
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
static void indirect_call(struct world *w, uint64_t ra)
{
	CODE(w, ra - 2, "\xff\xd0");
}

static void reg(struct world *w, unsigned n, uint64_t value)
{
	w->regs.value[n] = value;
	w->regs.known |= 1ULL << n;
}

static void walk(struct world *w)
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
static void expect(struct world *w, enum unwind_end end, size_t count, const uint64_t *pcs)
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

static void check_how(const struct world *w, size_t frame, enum unwind_how how)
{
	check_str(unwind_how_name((enum unwind_how)w->frames[frame].how), unwind_how_name(how));
}

/* The functions most tests share. */
#define START 0x1000ULL /* return address undefined */
#define MAIN 0x1100ULL	/* CFA = rsp + 16 */
#define FUN 0x1200ULL	/* CFA = rbp + 16, rbp saved */
#define LEAF 0x1300ULL	/* CFA = rsp + 8 */

static struct world *usual_world(void)
{
	struct world *w = world_new(UNWIND_X86_64);

	FUNC(w, START, 0x100, UNDEFINED(RA));
	FUNC(w, MAIN, 0x100, DEF_CFA(RSP, 16));
	FUNC(w, FUN, 0x100, DEF_CFA(RBP, 16), SAVED(RBP, 2));
	FUNC(w, LEAF, 0x100);
	return w;
}

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
		{"\xc3", 0, UNWIND_LEAF},	      /* ret */
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

/* ---- scans ---- */

#define BARE 0x3000ULL /* no CFI, and no frame pointers around */

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
		T(thread_exit_after_the_call_is_the_root), T(truncated_at_the_end_of_the_dump), T(live_tail), T(live_tail_refused),
		T(live_tail_is_this_stack_only),
		T(expression_beyond_the_dump), T(without_a_dump_everything_is_read_live),
		T(bad_address), T(no_progress), T(no_registers), T(frame_limit),
		T(recursion_300_deep), T(jit_frame_pointers), T(frame_pointer_zero_ends_the_chain),
		T(frame_pointer_to_a_planted_root), T(frame_pointer_to_a_pushed_address),
		T(frame_pointer_must_hold), T(frame_pointer_minus_one_is_unknown),
		T(frame_pointer_prologue_and_epilogue), T(leaf_by_direct_call), T(call_of_nothing),
		T(uretprobe_trampoline), T(frame_pointer_when_the_rule_fails),
		T(scan_finds_the_direct_call), T(scan_recovers_a_saved_frame_pointer),
		T(scan_through_plt), T(scan_follows_a_wrapper), T(scan_looks_one_step_ahead),
		T(scan_gives_up), T(scan_ends_at_the_entry), T(scan_prefers_a_call_to_a_far_bottom),
		T(scan_of_jit_memory), T(go_stacks), T(goroutine_start_without_symbols), T(a64_link_register_and_signed_addresses),
		T(a64_link_register_is_lost_by_a_call), T(a64_frame_records),
		T(a64_leaf_without_rule), T(a64_signal_frame), T(a64_root), T(x86_calls),
		T(a64_calls), T(cache_is_shared_and_forgets), T(names));
}
