/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A stack machine in one switch a class of operations. Every class function answers whether the
 * opcode was one of its own; failure of the operation itself is the machine's `bad`, which, like
 * the cursor's, makes all that follows harmless, so it is looked at once an operation.
 */
#include "unwind/expr.h"

#include <dwarf.h>
#include <string.h>

#include "base/cursor.h"

struct machine {
	struct cursor code;
	const uint8_t *start;
	const struct expr_input *in;
	unsigned depth;
	bool bad;
	uint64_t stack[EXPR_MAX_STACK];
};

static void push(struct machine *m, uint64_t v)
{
	if (m->depth == EXPR_MAX_STACK) {
		m->bad = true;
		return;
	}
	m->stack[m->depth++] = v;
}

static uint64_t pop(struct machine *m)
{
	if (!m->depth) {
		m->bad = true;
		return 0;
	}
	return m->stack[--m->depth];
}

/* The value `index` places below the top. */
static uint64_t peek(struct machine *m, unsigned index)
{
	if (index >= m->depth) {
		m->bad = true;
		return 0;
	}
	return m->stack[m->depth - 1 - index];
}

static void push_reg(struct machine *m, uint64_t reg, int64_t offset)
{
	const struct unwind_regs *regs = m->in->regs;

	if (!regs || reg >= UNWIND_MAX_REGS || !(regs->known >> reg & 1)) {
		m->bad = true;
		return;
	}
	push(m, regs->value[reg] + (uint64_t)offset);
}

static void push_memory(struct machine *m, uint64_t addr, size_t len)
{
	uint64_t v = 0;

	if (m->bad || !len || len > sizeof(v) || !m->in->read ||
		!m->in->read(m->in->ctx, addr, &v, len)) {
		m->bad = true;
		return;
	}
	push(m, v);
}

static void push_initial(struct machine *m)
{
	if (!m->in->has_initial)
		m->bad = true;
	push(m, m->in->initial);
}

/* Operations whose operand stands in the opcode itself. */
static bool run_ranged(struct machine *m, uint8_t op)
{
	if (op >= DW_OP_lit0 && op <= DW_OP_lit31)
		push(m, op - DW_OP_lit0);
	else if (op >= DW_OP_reg0 && op <= DW_OP_reg31)
		push_reg(m, op - DW_OP_reg0, 0);
	else if (op >= DW_OP_breg0 && op <= DW_OP_breg31)
		push_reg(m, op - DW_OP_breg0, cursor_sleb(&m->code));
	else
		return false;
	return true;
}

static bool run_constant(struct machine *m, uint8_t op)
{
	struct cursor *c = &m->code;

	switch (op) {
	case DW_OP_addr:
		push(m, cursor_u64(c) + m->in->bias);
		return true;
	case DW_OP_const1u:
		push(m, cursor_u8(c));
		return true;
	case DW_OP_const1s:
		push(m, (uint64_t)cursor_s8(c));
		return true;
	case DW_OP_const2u:
		push(m, cursor_u16(c));
		return true;
	case DW_OP_const2s:
		push(m, (uint64_t)cursor_s16(c));
		return true;
	case DW_OP_const4u:
		push(m, cursor_u32(c));
		return true;
	case DW_OP_const4s:
		push(m, (uint64_t)cursor_s32(c));
		return true;
	case DW_OP_const8u:
	case DW_OP_const8s:
		push(m, cursor_u64(c));
		return true;
	case DW_OP_constu:
		push(m, cursor_uleb(c));
		return true;
	case DW_OP_consts:
		push(m, (uint64_t)cursor_sleb(c));
		return true;
	}
	return false;
}

static bool run_location(struct machine *m, uint8_t op)
{
	uint64_t reg;

	switch (op) {
	case DW_OP_regx:
		push_reg(m, cursor_uleb(&m->code), 0);
		return true;
	case DW_OP_bregx:
		reg = cursor_uleb(&m->code);
		push_reg(m, reg, cursor_sleb(&m->code));
		return true;
	case DW_OP_deref:
		push_memory(m, pop(m), sizeof(uint64_t));
		return true;
	case DW_OP_deref_size:
		push_memory(m, pop(m), cursor_u8(&m->code));
		return true;
	case DW_OP_call_frame_cfa:
		push_initial(m);
		return true;
	}
	return false;
}

static bool run_stack(struct machine *m, uint8_t op)
{
	uint64_t a, b, c;

	switch (op) {
	case DW_OP_nop:
		return true;
	case DW_OP_dup:
		push(m, peek(m, 0));
		return true;
	case DW_OP_drop:
		pop(m);
		return true;
	case DW_OP_over:
		push(m, peek(m, 1));
		return true;
	case DW_OP_pick:
		push(m, peek(m, cursor_u8(&m->code)));
		return true;
	case DW_OP_swap:
		a = pop(m), b = pop(m);
		push(m, a), push(m, b);
		return true;
	case DW_OP_rot: /* the top goes below the two under it */
		a = pop(m), b = pop(m), c = pop(m);
		push(m, a), push(m, c), push(m, b);
		return true;
	}
	return false;
}

static bool run_unary(struct machine *m, uint8_t op)
{
	uint64_t a;

	switch (op) {
	case DW_OP_abs:
		a = pop(m);
		push(m, (int64_t)a < 0 ? 0 - a : a);
		return true;
	case DW_OP_neg:
		push(m, 0 - pop(m));
		return true;
	case DW_OP_not:
		push(m, ~pop(m));
		return true;
	case DW_OP_plus_uconst:
		a = pop(m);
		push(m, a + cursor_uleb(&m->code));
		return true;
	}
	return false;
}

/* Signed; the one quotient that does not fit wraps. */
static uint64_t divide(struct machine *m, uint64_t a, uint64_t b)
{
	if (!b) {
		m->bad = true;
		return 0;
	}
	return b == UINT64_MAX ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}

static uint64_t modulo(struct machine *m, uint64_t a, uint64_t b)
{
	if (!b) {
		m->bad = true;
		return 0;
	}
	return a % b;
}

static uint64_t shift_arithmetic(uint64_t a, uint64_t by)
{
	return (uint64_t)((int64_t)a >> (by < 64 ? by : 63));
}

/* a op b, b from the top of the stack. Comparisons are signed (DWARF 5, 2.5.1.5). */
static bool binary_value(struct machine *m, uint8_t op, uint64_t a, uint64_t b, uint64_t *ret)
{
	int64_t sa = (int64_t)a, sb = (int64_t)b;

	switch (op) {
	case DW_OP_and:
		return *ret = a & b, true;
	case DW_OP_or:
		return *ret = a | b, true;
	case DW_OP_xor:
		return *ret = a ^ b, true;
	case DW_OP_plus:
		return *ret = a + b, true;
	case DW_OP_minus:
		return *ret = a - b, true;
	case DW_OP_mul:
		return *ret = a * b, true;
	case DW_OP_div:
		return *ret = divide(m, a, b), true;
	case DW_OP_mod:
		return *ret = modulo(m, a, b), true;
	case DW_OP_shl:
		return *ret = b < 64 ? a << b : 0, true;
	case DW_OP_shr:
		return *ret = b < 64 ? a >> b : 0, true;
	case DW_OP_shra:
		return *ret = shift_arithmetic(a, b), true;
	case DW_OP_eq:
		return *ret = sa == sb, true;
	case DW_OP_ne:
		return *ret = sa != sb, true;
	case DW_OP_lt:
		return *ret = sa < sb, true;
	case DW_OP_le:
		return *ret = sa <= sb, true;
	case DW_OP_gt:
		return *ret = sa > sb, true;
	case DW_OP_ge:
		return *ret = sa >= sb, true;
	}
	return false;
}

/* Asked last: when the opcode is not one of these either, what it popped does not matter. */
static bool run_binary(struct machine *m, uint8_t op)
{
	uint64_t b = pop(m), a = pop(m), v = 0;

	if (!binary_value(m, op, a, b, &v))
		return false;
	push(m, v);
	return true;
}

/* A target may be the end of the expression, never beyond it or before its start. */
static void jump(struct machine *m, int64_t delta)
{
	if (m->code.bad || delta < m->start - m->code.at || delta > m->code.end - m->code.at) {
		m->bad = true;
		return;
	}
	m->code.at += delta;
}

static bool run_control(struct machine *m, uint8_t op)
{
	int16_t delta;

	switch (op) {
	case DW_OP_skip:
		jump(m, cursor_s16(&m->code));
		return true;
	case DW_OP_bra:
		delta = cursor_s16(&m->code);
		if (pop(m))
			jump(m, delta);
		return true;
	}
	return false;
}

bool expr_evaluate(const uint8_t *bytes, size_t len, const struct expr_input *in, uint64_t *ret)
{
	struct machine m;

	/* Not an initialiser: the stack needs no clearing, and this runs once a frame. */
	m.code = cursor_over(bytes, len);
	m.start = bytes;
	m.in = in;
	m.depth = 0;
	m.bad = false;
	if (in->has_initial)
		push(&m, in->initial);

	for (unsigned step = 0; cursor_left(&m.code); step++) {
		uint8_t op = cursor_u8(&m.code);
		bool known = run_ranged(&m, op) || run_constant(&m, op) || run_location(&m, op) ||
			     run_stack(&m, op) || run_unary(&m, op) || run_control(&m, op) ||
			     run_binary(&m, op);

		if (!known || m.bad || m.code.bad || step == EXPR_MAX_STEPS)
			return false;
	}
	if (!m.depth)
		return false;
	*ret = m.stack[m.depth - 1];
	return true;
}
