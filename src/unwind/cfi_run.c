/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Runs the instructions of a CIE and an FDE.
 *
 * An instruction changes the current state; advancing the location hands the state so far to the
 * sink. Operations are sorted into four groups (location, CFA, register, state), one function
 * each, that answer whether the opcode was theirs. `bad` is sticky, like the cursor's.
 */
#include "unwind/cfi.h"

#include <dwarf.h>

#define MAX_REMEMBERED 256 /* compilers nest two or three deep */

struct run {
	struct cfi_runner *r;
	const struct cfi_section *s;
	const struct cfi_cie *cie;
	const struct cfi_fde *fde; /* NULL while the CIE's own instructions run */
	const struct cfi_sink *sink;
	struct cursor code;
	uint64_t offset; /* of the current location in the FDE */
	bool changed;	 /* since the last row */
	bool bad;
	int err;
};

#define AARCH64_NEGATE_RA_STATE_WITH_PC 0x2c /* not in every dwarf.h */

static unsigned reg_limit(const struct cfi_section *s)
{
	return s->arch == UNWIND_X86_64 ? UNWIND_X86_PC + 1 : UNWIND_A64_PC + 1;
}

/* The slot of a register, or -1 for one that no walk needs (vector registers). */
static int slot_of(const struct run *run, uint64_t reg)
{
	if (reg < reg_limit(run->s))
		return (int)reg;
	return reg == run->cie->ra_reg ? CFI_SLOTS - 1 : -1;
}

static void emit_row(struct run *run, const struct cfi_state *state)
{
	if (!run->err)
		run->err = run->sink->row(run->sink->ctx, run->offset, state);
	run->changed = false;
}

static void advance(struct run *run, uint64_t delta)
{
	uint64_t offset;

	if (!run->fde || __builtin_mul_overflow(delta, run->cie->code_align, &delta) ||
		__builtin_add_overflow(run->offset, delta, &offset)) {
		run->bad = true;
		return;
	}
	if (!delta || run->code.bad)
		return;
	if (run->changed)
		emit_row(run, &run->r->now);
	run->offset = offset;
}

static void set_location(struct run *run)
{
	uint64_t at = run->s->vaddr + (uint64_t)(run->code.at - run->s->bytes), pc;

	if (run->s->debug && !run->cie->encoding && run->cie->addr_size == 4)
		pc = cursor_u32(&run->code);
	else
		pc = cfi_read_encoded(&run->code, run->cie->encoding & 0x7f, at, run->s->data_base);
	if (run->code.bad || !run->fde || pc < run->fde->start + run->offset) {
		run->bad = true;
		return;
	}

	uint64_t delta = pc - run->fde->start - run->offset;

	if (delta && run->changed)
		emit_row(run, &run->r->now);
	run->offset += delta;
}

static bool run_location(struct run *run, uint8_t op)
{
	switch (op) {
	case DW_CFA_nop:
		return true;
	case DW_CFA_set_loc:
		set_location(run);
		return true;
	case DW_CFA_advance_loc1:
		advance(run, cursor_u8(&run->code));
		return true;
	case DW_CFA_advance_loc2:
		advance(run, cursor_u16(&run->code));
		return true;
	case DW_CFA_advance_loc4:
		advance(run, cursor_u32(&run->code));
		return true;
	case DW_CFA_MIPS_advance_loc8:
		advance(run, cursor_u64(&run->code));
		return true;
	}
	return false;
}

/* value * data alignment, in the 32 bits that rules have. */
static int32_t factored(struct run *run, int64_t value)
{
	int64_t product;

	if (__builtin_mul_overflow(value, run->cie->data_align, &product) ||
		product != (int32_t)product) {
		run->bad = true;
		return 0;
	}
	return (int32_t)product;
}

/* An unsigned operand, which must fit the 32 bits that rules have. */
static int32_t unfactored(struct run *run)
{
	uint64_t v = cursor_uleb(&run->code);

	if (v > INT32_MAX) {
		run->bad = true;
		return 0;
	}
	return (int32_t)v;
}

/* The DWARF expression that comes next: where it stands in the section. */
static int32_t expression(struct run *run, uint16_t *ret_len)
{
	uint64_t len = cursor_uleb(&run->code);
	const uint8_t *bytes = cursor_bytes(&run->code, len);

	if (!bytes || len > UINT16_MAX || bytes - run->s->bytes > INT32_MAX) {
		run->bad = true;
		return 0;
	}
	*ret_len = (uint16_t)len;
	return (int32_t)(bytes - run->s->bytes);
}

static void set_cfa_reg(struct run *run, uint64_t reg)
{
	struct cfi_state *now = &run->r->now;

	/* A base that is not a register of ours can be spelled but not used. */
	now->cfa_kind = reg < reg_limit(run->s) ? CFA_REG_OFFSET : CFI_NO_CFA;
	now->cfa_reg = reg < reg_limit(run->s) ? (uint8_t)reg : 0;
	run->changed = true;
}

static void set_cfa_offset(struct run *run, int32_t offset)
{
	run->r->now.cfa_offset = offset;
	run->changed = true;
}

/* Half a definition takes the other half from before, even from before an expression: assembler
 * sources rely on what libgcc does there, and DWARF does not say. */
static bool run_cfa(struct run *run, uint8_t op)
{
	struct cursor *c = &run->code;
	struct cfi_state *now = &run->r->now;

	switch (op) {
	case DW_CFA_def_cfa:
		set_cfa_reg(run, cursor_uleb(c));
		set_cfa_offset(run, unfactored(run));
		return true;
	case DW_CFA_def_cfa_sf:
		set_cfa_reg(run, cursor_uleb(c));
		set_cfa_offset(run, factored(run, cursor_sleb(c)));
		return true;
	case DW_CFA_def_cfa_register:
		set_cfa_reg(run, cursor_uleb(c));
		return true;
	case DW_CFA_def_cfa_offset:
		set_cfa_offset(run, unfactored(run));
		return true;
	case DW_CFA_def_cfa_offset_sf:
		set_cfa_offset(run, factored(run, cursor_sleb(c)));
		return true;
	case DW_CFA_def_cfa_expression:
		now->cfa_kind = CFA_EXPR;
		now->cfa_expr = expression(run, &now->cfa_expr_len);
		run->changed = true;
		return true;
	}
	return false;
}

static void set_rule(
	struct run *run, uint64_t reg, enum reg_kind kind, int32_t offset, uint16_t expr_len)
{
	int slot = slot_of(run, reg);

	if (slot < 0)
		return;
	run->r->now.regs[slot] = (struct reg_rule){
		.reg = (uint8_t)reg, .kind = (uint8_t)kind, .expr_len = expr_len, .offset = offset};
	run->r->now.named |= 1ULL << slot;
	run->changed = true;
}

static void set_expression(struct run *run, enum reg_kind kind)
{
	uint64_t reg = cursor_uleb(&run->code);
	uint16_t len = 0;
	int32_t at = expression(run, &len);

	set_rule(run, reg, kind, at, len);
}

/* Back to what the CIE says, which may be nothing. */
static void restore_rule(struct run *run, uint64_t reg)
{
	int slot = slot_of(run, reg);

	if (!run->fde)
		run->bad = true;
	if (slot < 0 || !run->fde)
		return;
	run->r->now.named &= ~(1ULL << slot);
	run->r->now.named |= run->r->initial.named & 1ULL << slot;
	run->r->now.regs[slot] = run->r->initial.regs[slot];
	run->changed = true;
}

/* A value that stands in another register: one we know, or it is lost. */
static void set_in_register(struct run *run)
{
	uint64_t reg = cursor_uleb(&run->code), other = cursor_uleb(&run->code);

	if (other < reg_limit(run->s))
		set_rule(run, reg, REG_IN_REG, (int32_t)other, 0);
	else
		set_rule(run, reg, REG_UNDEFINED, 0, 0);
}

static bool run_register(struct run *run, uint8_t op)
{
	struct cursor *c = &run->code;
	uint64_t reg;

	switch (op) {
	case DW_CFA_offset_extended:
		reg = cursor_uleb(c);
		set_rule(run, reg, REG_AT_CFA, factored(run, (int64_t)cursor_uleb(c)), 0);
		return true;
	case DW_CFA_offset_extended_sf:
		reg = cursor_uleb(c);
		set_rule(run, reg, REG_AT_CFA, factored(run, cursor_sleb(c)), 0);
		return true;
	case DW_CFA_GNU_negative_offset_extended:
		reg = cursor_uleb(c);
		set_rule(run, reg, REG_AT_CFA, factored(run, -(int64_t)unfactored(run)), 0);
		return true;
	case DW_CFA_val_offset:
		reg = cursor_uleb(c);
		set_rule(run, reg, REG_CFA_OFFSET, factored(run, (int64_t)cursor_uleb(c)), 0);
		return true;
	case DW_CFA_val_offset_sf:
		reg = cursor_uleb(c);
		set_rule(run, reg, REG_CFA_OFFSET, factored(run, cursor_sleb(c)), 0);
		return true;
	case DW_CFA_register:
		set_in_register(run);
		return true;
	case DW_CFA_expression:
		set_expression(run, REG_AT_EXPR);
		return true;
	case DW_CFA_val_expression:
		set_expression(run, REG_EXPR);
		return true;
	case DW_CFA_undefined:
		set_rule(run, cursor_uleb(c), REG_UNDEFINED, 0, 0);
		return true;
	case DW_CFA_same_value:
		set_rule(run, cursor_uleb(c), REG_SAME, 0, 0);
		return true;
	case DW_CFA_restore_extended:
		restore_rule(run, cursor_uleb(c));
		return true;
	}
	return false;
}

static void remember(struct run *run)
{
	if (run->r->stack.len == MAX_REMEMBERED)
		run->bad = true;
	else if (vec_push(&run->r->stack, run->r->now))
		run->err = -ENOMEM;
}

static void recall(struct run *run)
{
	if (!run->r->stack.len) {
		run->bad = true;
		return;
	}
	run->r->now = run->r->stack.data[--run->r->stack.len];
	run->changed = true;
}

static bool run_state(struct run *run, uint8_t op)
{
	switch (op) {
	case DW_CFA_remember_state:
		remember(run);
		return true;
	case DW_CFA_restore_state:
		recall(run);
		return true;
	case DW_CFA_GNU_args_size: /* for exception handlers only */
		cursor_uleb(&run->code);
		return true;
	case DW_CFA_AARCH64_negate_ra_state: /* SPARC's window_save, elsewhere unknown */
	case AARCH64_NEGATE_RA_STATE_WITH_PC:
		if (run->s->arch != UNWIND_AARCH64)
			return false;
		run->r->now.ra_mangled = !run->r->now.ra_mangled;
		run->changed = true;
		return true;
	}
	return false;
}

/* One instruction. The three commonest carry an operand in their low six bits. */
static void step(struct run *run)
{
	uint8_t op = cursor_u8(&run->code), low = op & 0x3f;

	switch (op & 0xc0) {
	case DW_CFA_advance_loc:
		advance(run, low);
		return;
	case DW_CFA_offset:
		set_rule(run, low, REG_AT_CFA, factored(run, (int64_t)cursor_uleb(&run->code)), 0);
		return;
	case DW_CFA_restore:
		restore_rule(run, low);
		return;
	}
	if (!run_cfa(run, op) && !run_location(run, op) && !run_state(run, op) &&
		!run_register(run, op))
		run->bad = true;
}

/* Until the code ends, breaks, or leaves the FDE. Each step eats a byte, which bounds the loop. */
static void run_code(struct run *run, uint64_t limit)
{
	while (cursor_left(&run->code) && !run->bad && !run->err && run->offset < limit)
		step(run);
	run->bad |= run->code.bad;
}

static int run_cie(struct run *run)
{
	struct cfi_runner *r = run->r;

	r->now = (struct cfi_state){.cfa_kind = CFI_NO_CFA};
	r->stack.len = 0;
	run->code = run->cie->code;
	run_code(run, UINT64_MAX);
	if (run->err)
		return run->err;
	r->initial = r->now;
	r->initial_bad = run->bad;
	r->cie_offset = run->cie->offset;
	r->has_initial = true;
	return 0;
}

void cfi_runner_release(struct cfi_runner *r)
{
	vec_release(&r->stack);
	*r = (struct cfi_runner){0};
}

int cfi_run(struct cfi_runner *r, const struct cfi_section *s, const struct cfi_cie *cie,
	const struct cfi_fde *fde, const struct cfi_sink *sink)
{
	struct run run = {.r = r, .s = s, .cie = cie, .sink = sink};

	if (!(r->has_initial && r->cie_offset == cie->offset)) {
		int err = run_cie(&run);

		if (err)
			return err;
	}
	r->now = r->initial;
	r->stack.len = 0;
	run.fde = fde;
	run.code = fde->code;
	run.bad = r->initial_bad;
	run.changed = true;
	run_code(&run, fde->end - fde->start);
	if (run.offset >= fde->end - fde->start)
		return run.err;
	if (run.bad)
		emit_row(&run, NULL);
	else if (run.changed)
		emit_row(&run, &r->now);
	return run.err;
}
