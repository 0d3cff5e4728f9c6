/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where a variable is kept (DWARF 5, 2.6): location lists through libdw, which hands out operations
 * instead of bytes. What describes a location (registers, pieces, values) is understood here; what computes
 * goes back into bytes, with registers, the frame base and addresses put in as constants, for
 * unwind/expr.h to run.
 *
 * Refused: the value that something had when the function was entered, pointers to what does not exist,
 * thread-local addresses, typed operations and branches. The variable counts as lost then.
 */
#include "symbol/variables_priv.h"

#include <string.h>

#include "unwind/expr.h"

#define MAX_OPERATIONS 256u
#define MAX_OPERATION_BYTES 9u

struct evaluation {
	const struct variable_frame *frame;
	Dwarf_Attribute *attr;
	Dwarf_Die *function;
	uint64_t address;
	bool in_frame_base;
};

struct code {
	uint8_t bytes[MAX_OPERATIONS * MAX_OPERATION_BYTES];
	size_t len;
};

static bool evaluate(struct evaluation *e, const Dwarf_Op *ops, size_t count, uint64_t *ret);
static bool find_piece(
	struct evaluation *e, const Dwarf_Op *ops, size_t count, struct variable_piece *ret);

static bool known_register(const struct variable_frame *f, uint64_t reg, uint64_t *ret)
{
	if (!f->regs || reg >= UNWIND_MAX_REGS || !(f->regs->known >> reg & 1))
		return false;
	*ret = f->regs->value[reg];
	return true;
}

/* The operations that hold at the address. False: there are none. */
static bool operations(Dwarf_Attribute *attr, uint64_t address, Dwarf_Op **ret, size_t *ret_count)
{
	return dwarf_getlocation_addr(attr, address, ret, ret_count, 1) == 1 && *ret_count &&
	       *ret_count <= MAX_OPERATIONS;
}

static bool frame_base(struct evaluation *e, uint64_t *ret)
{
	struct variable_piece piece;
	Dwarf_Attribute attr;
	struct evaluation base = *e;
	Dwarf_Op *ops;
	size_t count;

	if (e->in_frame_base || !dwarf_attr_integrate(e->function, DW_AT_frame_base, &attr) ||
		!operations(&attr, e->address, &ops, &count))
		return false;
	base.attr = &attr;
	base.in_frame_base = true;
	if (!find_piece(&base, ops, count, &piece))
		return false;
	*ret = piece.value;
	return piece.at == VARIABLE_MEMORY || piece.at == VARIABLE_VALUE;
}

static bool address_operand(struct evaluation *e, const Dwarf_Op *op, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Addr addr = op->number;

	if (op->atom != DW_OP_addr &&
		(dwarf_getlocation_attr(e->attr, op, &attr) || dwarf_formaddr(&attr, &addr)))
		return false;
	*ret = addr + e->frame->bias;
	return true;
}

/* Operations that stand for a number which is known before anything is computed. */
static bool constant_of(struct evaluation *e, const Dwarf_Op *op, uint64_t *ret)
{
	uint64_t base;

	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31) {
		if (!known_register(e->frame, op->atom - DW_OP_breg0, &base))
			return false;
		*ret = base + op->number;
		return true;
	}
	switch (op->atom) {
	case DW_OP_bregx:
		if (!known_register(e->frame, op->number, &base))
			return false;
		*ret = base + op->number2;
		return true;
	case DW_OP_fbreg:
		if (!frame_base(e, &base))
			return false;
		*ret = base + op->number;
		return true;
	case DW_OP_call_frame_cfa:
		*ret = e->frame->cfa;
		return e->frame->cfa != 0;
	case DW_OP_addr:
	case DW_OP_addrx:
	case DW_OP_GNU_addr_index:
		return address_operand(e, op, ret);
	case DW_OP_const1u:
	case DW_OP_const1s:
	case DW_OP_const2u:
	case DW_OP_const2s:
	case DW_OP_const4u:
	case DW_OP_const4s:
	case DW_OP_const8u:
	case DW_OP_const8s:
	case DW_OP_constu:
	case DW_OP_consts:
		*ret = op->number;
		return true;
	default:
		return false;
	}
}

static void put(struct code *c, uint8_t op, uint64_t operand, size_t operand_bytes)
{
	c->bytes[c->len++] = op;
	memcpy(c->bytes + c->len, &operand, operand_bytes);
	c->len += operand_bytes;
}

/* Operations that compute: the same again. At most MAX_OPERATION_BYTES are written. */
static bool put_operation(struct code *c, const Dwarf_Op *op)
{
	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31) {
		put(c, op->atom, 0, 0);
		return true;
	}
	switch (op->atom) {
	case DW_OP_plus_uconst: /* its operand has no fixed size */
		if (op->number >> 56)
			return false;
		c->bytes[c->len++] = DW_OP_plus_uconst;
		for (uint64_t left = op->number, more = 1; more; left >>= 7) {
			more = left >> 7 != 0;
			c->bytes[c->len++] = (uint8_t)((left & 0x7f) | more << 7);
		}
		return true;
	case DW_OP_deref_size:
	case DW_OP_pick:
		put(c, op->atom, op->number, 1);
		return true;
	case DW_OP_deref:
	case DW_OP_dup:
	case DW_OP_drop:
	case DW_OP_over:
	case DW_OP_swap:
	case DW_OP_rot:
	case DW_OP_nop:
		put(c, op->atom, 0, 0);
		return true;
	case DW_OP_bra:
	case DW_OP_skip:
		return false;
	default:
		if (op->atom < DW_OP_abs || op->atom > DW_OP_ne)
			return false;
		put(c, op->atom, 0, 0);
		return true;
	}
}

static bool evaluate(struct evaluation *e, const Dwarf_Op *ops, size_t count, uint64_t *ret)
{
	const struct expr_input in = {.read = e->frame->read, .ctx = e->frame->ctx};
	struct code code;
	uint64_t constant;

	code.len = 0;
	for (size_t i = 0; i < count; i++) {
		if (constant_of(e, &ops[i], &constant))
			put(&code, DW_OP_const8u, constant, 8);
		else if (!put_operation(&code, &ops[i]))
			return false;
	}
	return expr_evaluate(code.bytes, code.len, &in, ret);
}

static bool register_of(const Dwarf_Op *op, uint64_t *ret)
{
	if (op->atom >= DW_OP_reg0 && op->atom <= DW_OP_reg31)
		*ret = op->atom - DW_OP_reg0;
	else if (op->atom == DW_OP_regx)
		*ret = op->number;
	else
		return false;
	return true;
}

/* One location description without pieces. */
static bool find_piece(
	struct evaluation *e, const Dwarf_Op *ops, size_t count, struct variable_piece *ret)
{
	Dwarf_Block block;
	uint64_t reg;

	*ret = (struct variable_piece){.size = UINT64_MAX};
	if (!count)
		return false;
	if (count == 1 && register_of(&ops[0], &reg)) {
		ret->at = VARIABLE_VALUE;
		if (known_register(e->frame, reg, &ret->value))
			return true;
	} else if (ops[0].atom == DW_OP_implicit_value) {
		ret->at = VARIABLE_BYTES;
		if (count == 1 && !dwarf_getlocation_implicit_value(e->attr, &ops[0], &block)) {
			ret->bytes = block.data;
			ret->size = block.length;
			return true;
		}
	} else {
		bool is_value = ops[count - 1].atom == DW_OP_stack_value;

		ret->at = is_value ? VARIABLE_VALUE : VARIABLE_MEMORY;
		if (evaluate(e, ops, count - is_value, &ret->value))
			return true;
	}
	ret->at = VARIABLE_LOST;
	return false;
}

static bool ends_piece(const Dwarf_Op *op, uint64_t *ret_size)
{
	if (op->atom != DW_OP_piece && op->atom != DW_OP_bit_piece)
		return false;
	*ret_size = op->atom == DW_OP_piece ? op->number : op->number / 8;
	return true;
}

/* False: none of the pieces is left. */
static bool find_pieces(
	struct evaluation *e, const Dwarf_Op *ops, size_t count, struct variable_place *ret)
{
	size_t start = 0;
	uint64_t size;
	bool any = false;

	for (size_t i = 0; i < count && ret->count < VARIABLE_MOST_PIECES; i++) {
		struct variable_piece *piece = &ret->pieces[ret->count];

		if (!ends_piece(&ops[i], &size))
			continue;
		any |= find_piece(e, ops + start, i - start, piece);
		if (piece->at != VARIABLE_BYTES || piece->size > size)
			piece->size = size;
		ret->count++;
		start = i + 1;
		/* Bits that begin or end within a byte: what follows has no place. */
		if (ops[i].atom == DW_OP_bit_piece && (ops[i].number % 8 || ops[i].number2))
			return any;
	}
	if (!start) {
		any = find_piece(e, ops, count, &ret->pieces[0]);
		ret->count = 1;
	}
	return any;
}

static bool find_constant(Dwarf_Die *die, struct variable_place *ret)
{
	struct variable_piece *piece = &ret->pieces[0];
	Dwarf_Attribute attr;
	Dwarf_Block block;
	Dwarf_Word value;

	if (!dwarf_attr_integrate(die, DW_AT_const_value, &attr))
		return false;
	if (!dwarf_formblock(&attr, &block))
		*piece = (struct variable_piece){VARIABLE_BYTES, block.length, 0, block.data};
	else if (!dwarf_formudata(&attr, &value))
		*piece = (struct variable_piece){VARIABLE_VALUE, UINT64_MAX, value, NULL};
	else
		return false;
	ret->count = 1;
	return true;
}

bool variable_place(struct variables *v, const struct variable *var, const struct variable_frame *f,
	struct variable_place *ret)
{
	const struct variable_scope *scope = var->scope;
	Dwarf_Die die = scope->extras.data[var - scope->variables.data].die;
	Dwarf_Die function = scope->function;
	Dwarf_Attribute attr;
	struct evaluation e = {f, &attr, &function, scope->address, false};
	Dwarf_Op *ops;
	size_t count;

	ret->count = 0;
	if (!dwarf_attr(&die, DW_AT_location, &attr))
		return find_constant(&die, ret);
	return operations(&attr, scope->address, &ops, &count) && find_pieces(&e, ops, count, ret);
}

/* Bytes of one piece. */
static bool read_piece(const struct variable_piece *p, const struct variable_frame *f, uint64_t offset,
	void *buf, size_t len)
{
	switch (p->at) {
	case VARIABLE_MEMORY:
		return f->read && f->read(f->ctx, p->value + offset, buf, len);
	case VARIABLE_VALUE:
		if (offset > sizeof(p->value) || len > sizeof(p->value) - offset)
			return false;
		memcpy(buf, (const uint8_t *)&p->value + offset, len);
		return true;
	case VARIABLE_BYTES:
		memcpy(buf, p->bytes + offset, len);
		return true;
	case VARIABLE_LOST:
		break;
	}
	return false;
}

bool variable_read(const struct variable_place *p, const struct variable_frame *f, uint64_t offset,
	void *buf, size_t len)
{
	uint8_t *out = buf;

	for (size_t i = 0; i < p->count && len; i++) {
		const struct variable_piece *piece = &p->pieces[i];

		if (offset >= piece->size) {
			offset -= piece->size;
			continue;
		}
		size_t n = piece->size - offset < len ? (size_t)(piece->size - offset) : len;

		if (!read_piece(piece, f, offset, out, n))
			return false;
		out += n;
		len -= n;
		offset = 0;
	}
	return !len;
}

bool variable_address(const struct variable_place *p, uint64_t *ret)
{
	if (p->count != 1 || p->pieces[0].at != VARIABLE_MEMORY)
		return false;
	*ret = p->pieces[0].value;
	return true;
}
