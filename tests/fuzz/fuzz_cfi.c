/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Call frame information: every FDE expanded, addresses looked up, expressions evaluated.
 *
 * Input: a byte of flags, two 16-bit sizes, then the bytes of .eh_frame_hdr, .eh_frame and, as the
 * rest, .debug_frame. Each section is its own allocation, so that reading past one is seen.
 */
#include <stdlib.h>

#include "base/cursor.h"
#include "unwind/expr.h"
#include "unwind/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HDR_VADDR 0x1000
#define EH_VADDR 0x2000
#define LOOKUPS 400

static volatile uint64_t touched; /* keeps the compiler from leaving the reads out */

static struct unwind_section take_section(struct cursor *c, size_t len, uint64_t vaddr)
{
	size_t size = len < cursor_left(c) ? len : cursor_left(c);
	struct unwind_section s = {.size = size, .vaddr = vaddr};
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	if (size)
		memcpy(copy, cursor_bytes(c, size), size);
	s.bytes = copy;
	return s;
}

static bool read_pattern(void *ctx, uint64_t addr, void *buf, size_t len)
{
	(void)ctx;
	memset(buf, (int)addr & 0xff, len);
	return addr % 7 != 0;
}

static void evaluate(const struct unwind_section *s, int32_t start, uint16_t len)
{
	struct unwind_regs regs = {.known = 0x1fff0};
	struct expr_input in = {.regs = &regs, .read = read_pattern, .has_initial = len & 1};
	uint64_t value = 0;

	if (start < 0 || (uint64_t)start + len > s->size)
		abort(); /* a rule must not name bytes outside its section */
	if (expr_evaluate(s->bytes + start, len, &in, &value))
		touched += value;
}

static void touch_rule(const struct unwind_module_input *in, const struct unwind_rule *rule)
{
	const struct unwind_section *s = rule->debug_frame ? &in->debug_frame : &in->eh_frame;

	if (rule->cfa_kind == CFA_EXPR)
		evaluate(s, rule->cfa_offset, rule->cfa_expr_len);
	for (int i = 0; i < rule->reg_count; i++) {
		const struct reg_rule *r = &rule->regs[i];

		if (i && r[-1].reg >= r->reg)
			abort(); /* ascending, and each register once */
		if (r->kind == REG_AT_EXPR || r->kind == REG_EXPR)
			evaluate(s, r->offset, r->expr_len);
		touched += (uint64_t)r->offset;
	}
}

static void look_up(struct unwind_module *m)
{
	const struct unwind_module_input *in = unwind_module_input(m);

	for (uint64_t addr = 0; addr < LOOKUPS * 32; addr += 32) {
		const struct unwind_rule *rule = unwind_module_rule(m, addr);

		if (rule)
			touch_rule(in, rule);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor c = cursor_over(data, size);
	uint8_t flags = cursor_u8(&c);
	size_t hdr_size = cursor_u16(&c), eh_size = cursor_u16(&c);
	struct unwind_module_input in = {
		.arch = flags & 1 ? UNWIND_AARCH64 : UNWIND_X86_64,
		.go = flags & 2,
		.eh_frame_hdr = take_section(&c, hdr_size, HDR_VADDR),
		.eh_frame = take_section(&c, eh_size, EH_VADDR),
		.debug_frame = take_section(&c, SIZE_MAX, 0),
	};
	struct unwind_module *m;

	if (!unwind_module_new(&in, &m, NULL)) {
		if (flags & 4)
			unwind_module_expand_all(m);
		look_up(m);
		unwind_module_expand_all(m);
		look_up(m);
		unwind_module_free(m);
	}
	if (in.debug_frame.size < UINT16_MAX)
		evaluate(&in.debug_frame, 0, (uint16_t)in.debug_frame.size);
	free((void *)in.eh_frame_hdr.bytes);
	free((void *)in.eh_frame.bytes);
	free((void *)in.debug_frame.bytes);
	return 0;
}
