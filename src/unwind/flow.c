/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Abstract interpretation with three kinds of values: what a register held where we began, plus a
 * constant; the word that stood at such an address; anything else.
 *
 * Blocks are run once each. The first path is followed to its end, then those that branches led
 * to, in the order they were met; so the shortest way out is tried first. At a join the depth
 * of the stack must be what it was when the place was first met: that refuses loops that move the
 * stack pointer, and most data that was taken for code.
 */
#include "unwind/flow.h"

#include <string.h>

#include "unwind/insn.h"

#define MAX_PENDING 64
#define MAX_BLOCKS 512 /* a power of two; three quarters of it are used */
#define MET_BITS 2048
#define MAX_SLOTS 10
#define MAX_ENDS 64
#define MAX_DEPTHS 32
#define MAX_PADDING 16 /* instructions */

#define SP 0 /* in arch.followed */
#define FP 1

enum value_kind {
	ANYTHING,
	REG_PLUS, /* what `reg` held at the beginning + offset */
	WORD_AT,  /* the word that stood there at the beginning */
};

struct value {
	uint8_t kind; /* enum value_kind */
	uint8_t reg;  /* in arch.followed */
	int32_t offset;
};

struct slot {
	struct value address, value;
};

struct state {
	uint64_t at;
	struct value regs[FLOW_REGS];
	struct slot slots[MAX_SLOTS]; /* words that were stored, the latest last */
	uint8_t slot_count;
};

/* The depth of the stack from an instruction on. */
struct depth {
	uint64_t at;
	struct value sp;
};

struct block {
	uint64_t at; /* 0: none */
	struct value sp, fp;
};

struct flow {
	const struct flow_code *code;
	unsigned budget;
	uint64_t followed; /* arch.followed, by bit */
	bool from_start, inconsistent, found, have_tail, have_spare;
	uint64_t goal;
	struct frame_shape shape, tail;
	size_t pending_count, block_count;
	struct block blocks[MAX_BLOCKS];
	uint64_t met[MET_BITS / 64]; /* by hash: a block may begin there */
	uint64_t ends[MAX_ENDS]; /* behind instructions that do not go on */
	size_t end_count, next_end;
	size_t depth_count;
	/* What is not zero to begin with stands here. */
	struct depth depths[MAX_DEPTHS]; /* of the path we are on, as it changed */
	struct state now, spare;
	struct state pending[MAX_PENDING];
};

static unsigned followed(const struct arch *arch, uint8_t reg)
{
	unsigned i = 0;

	while (i < arch->followed_count && arch->followed[i] != reg)
		i++;
	return i;
}

static bool equal(struct value a, struct value b)
{
	return a.kind == b.kind && (a.kind == ANYTHING || (a.reg == b.reg && a.offset == b.offset));
}

static struct value plus(struct value v, int64_t offset)
{
	int64_t sum;

	if (v.kind != REG_PLUS || __builtin_add_overflow(offset, v.offset, &sum) ||
		sum != (int32_t)sum)
		return (struct value){0};
	v.offset = (int32_t)sum;
	return v;
}

/* ---- blocks ---- */

static uint64_t hash(uint64_t at)
{
	return at * 0x9e3779b97f4a7c15ULL >> 32;
}

static struct block *find_block(struct flow *f, uint64_t at)
{
	size_t i = hash(at) % MAX_BLOCKS;

	while (f->blocks[i].at && f->blocks[i].at != at)
		i = (i + 1) % MAX_BLOCKS;
	return &f->blocks[i];
}

/* Do two paths that meet agree? Where a frame pointer holds the place, sp may be anywhere: arrays
 * of variable length. */
static bool agree(const struct block *b, const struct state *s)
{
	struct value sp = s->regs[SP], fp = s->regs[FP];

	return b->sp.kind != REG_PLUS || sp.kind != REG_PLUS || equal(b->sp, sp) ||
	       (fp.kind == REG_PLUS && fp.reg == SP && equal(b->fp, fp));
}

/* Has a path been at `at` that a branch led to? */
static bool was_met(struct flow *f, uint64_t at)
{
	const uint64_t bit = hash(at) % MET_BITS;
	const struct block *b;

	if (!(f->met[bit / 64] >> bit % 64 & 1))
		return false;
	b = find_block(f, at);
	if (b->at && !agree(b, &f->now))
		f->inconsistent = true;
	return b->at != 0;
}

static bool is_new_block(struct flow *f, uint64_t at)
{
	if (was_met(f, at) || f->block_count >= MAX_BLOCKS * 3 / 4)
		return false;
	f->block_count++;
	f->met[hash(at) % MET_BITS / 64] |= 1ULL << hash(at) % 64;
	*find_block(f, at) = (struct block){at, f->now.regs[SP], f->now.regs[FP]};
	return true;
}

/* Does a branch back to `at`, where the path has been before, find another depth there? */
static bool moves_stack(const struct flow *f, uint64_t at)
{
	size_t i = f->depth_count;

	if (!i || i == MAX_DEPTHS || at < f->depths[0].at || at >= f->now.at)
		return false;
	while (i > 1 && f->depths[i - 1].at > at)
		i--;
	return f->now.regs[SP].kind == REG_PLUS && f->depths[i - 1].sp.kind == REG_PLUS &&
	       !equal(f->depths[i - 1].sp, f->now.regs[SP]);
}

static void note_depth(struct flow *f)
{
	const struct value sp = f->now.regs[SP];

	if (f->depth_count < MAX_DEPTHS &&
		(!f->depth_count || !equal(f->depths[f->depth_count - 1].sp, sp)))
		f->depths[f->depth_count++] = (struct depth){f->now.at, sp};
}

static void add_path(struct flow *f, uint64_t at)
{
	f->inconsistent |= moves_stack(f, at);
	if (f->pending_count == MAX_PENDING || !is_new_block(f, at))
		return;

	struct state *s = &f->pending[f->pending_count++];

	*s = f->now;
	s->at = at;
}

/* The one that was met first; on the way to a goal the one that is nearest before it. */
static struct state take_pending(struct flow *f)
{
	size_t best = 0;
	struct state s;

	for (size_t i = 1; f->from_start && i < f->pending_count; i++)
		if (f->goal - f->pending[i].at < f->goal - f->pending[best].at)
			best = i;
	s = f->pending[best];
	f->pending_count--;
	memmove(&f->pending[best], &f->pending[best + 1],
		(f->pending_count - best) * sizeof(s));
	return s;
}

/* ---- memory ---- */

static void store(struct state *s, struct value address, struct value value)
{
	size_t i = 0;

	if (address.kind != REG_PLUS)
		return;
	while (i < s->slot_count && !equal(s->slots[i].address, address))
		i++;
	if (i == MAX_SLOTS)
		return;
	s->slot_count += i == s->slot_count;
	s->slots[i] = (struct slot){address, value};
}

static struct value load(const struct state *s, struct value address)
{
	if (address.kind != REG_PLUS)
		return (struct value){0};
	for (size_t i = 0; i < s->slot_count; i++)
		if (equal(s->slots[i].address, address))
			return s->slots[i].value;
	address.kind = WORD_AT;
	return address;
}

static void transfer_one(
	struct flow *f, bool is_load, uint8_t reg, struct value address)
{
	const struct arch *arch = f->code->arch;
	unsigned i = followed(arch, reg);

	if (i < arch->followed_count && is_load)
		f->now.regs[i] = load(&f->now, address);
	else if (i < arch->followed_count && !is_load)
		store(&f->now, address, f->now.regs[i]);
}

static void transfer(struct flow *f, const struct insn *insn)
{
	const struct arch *arch = f->code->arch;
	unsigned base = followed(arch, insn->base);
	struct value old = {0}, moved, address;
	bool is_load = insn->op == INSN_LOAD;

	if (base < arch->followed_count)
		old = f->now.regs[base];
	moved = plus(old, insn->imm);
	address = insn->index == INSN_POST_INDEX ? old : moved;
	if (base < arch->followed_count && insn->index == INSN_PRE_INDEX)
		f->now.regs[base] = moved;
	if (base < arch->followed_count && insn->index == INSN_POST_INDEX)
		f->now.regs[base] = moved;
	transfer_one(f, is_load, insn->reg, address);
	transfer_one(f, is_load, insn->reg2, plus(address, 8));
}

/* ---- results ---- */

static struct value initial(unsigned reg)
{
	return (struct value){REG_PLUS, (uint8_t)reg, 0};
}

/* The state that a return instruction finds, told from where we began. False when it does not say
 * where the caller's stack begins. */
static bool shape_at_return(const struct flow *f, struct frame_shape *ret)
{
	const struct arch *arch = f->code->arch;
	const int32_t entry = arch->lr == ARCH_NO_REG ? 8 : 0;
	struct value cfa = plus(f->now.regs[SP], entry);

	/* Nothing that was there at the call has been popped by now. */
	if (cfa.kind != REG_PLUS || cfa.reg > FP || (cfa.reg == SP && cfa.offset < entry))
		return false;
	*ret = (struct frame_shape){.cfa_reg = arch->followed[cfa.reg], .cfa_offset = cfa.offset};
	for (unsigned i = FP; i < arch->followed_count; i++) {
		struct value v = f->now.regs[i];

		if (equal(v, initial(i))) {
			ret->regs[i].place = FLOW_KEPT;
		} else if (v.kind == WORD_AT && v.reg == cfa.reg) {
			ret->regs[i].place = FLOW_SAVED;
			ret->regs[i].offset = v.offset - cfa.offset;
		} else {
			ret->regs[i].place = FLOW_LOST;
		}
	}
	return true;
}

/* The state where we want to be, told from the first instruction of the function. */
static bool shape_since_start(const struct flow *f, struct frame_shape *ret)
{
	const struct arch *arch = f->code->arch;
	const struct state *s = &f->now;
	int32_t entry = arch->lr == ARCH_NO_REG ? 8 : 0; /* CFA at the start, from sp */
	unsigned base = FP;

	if (s->regs[FP].kind != REG_PLUS || s->regs[FP].reg != SP)
		base = SP;
	if (s->regs[base].kind != REG_PLUS || s->regs[base].reg != SP)
		return false;
	*ret = (struct frame_shape){
		.cfa_reg = arch->followed[base], .cfa_offset = entry - s->regs[base].offset};
	if (s->regs[SP].kind == REG_PLUS && s->regs[SP].reg == SP) {
		ret->has_depth = true;
		ret->depth = entry - s->regs[SP].offset;
	}
	for (unsigned i = FP; i < arch->followed_count; i++) {
		ret->regs[i].place = equal(s->regs[i], initial(i)) ? FLOW_KEPT : FLOW_LOST;
		for (size_t k = 0; k < s->slot_count; k++) {
			const struct slot *slot = &s->slots[k];

			if (slot->address.reg != SP || !equal(slot->value, initial(i)) ||
				(s->regs[SP].kind == REG_PLUS &&
					slot->address.offset < s->regs[SP].offset))
				continue;
			ret->regs[i].place = FLOW_SAVED;
			ret->regs[i].offset = slot->address.offset - entry;
		}
	}
	return true;
}

/* ---- instructions ---- */

/* Has the path given back a part of the stack? Then a jump to an address in a register is more
 * likely one out of the function than a switch. */
static bool has_popped(const struct flow *f, const struct frame_shape *s)
{
	const struct arch *arch = f->code->arch;

	return s->cfa_reg == arch->fp || s->cfa_offset > (arch->lr == ARCH_NO_REG ? 8 : 0);
}

static void leave_function(struct flow *f, bool certain)
{
	struct frame_shape shape;

	if (f->from_start || !shape_at_return(f, &shape))
		return;
	if (certain) {
		f->found = true;
		f->shape = shape;
	} else if (!f->have_tail && has_popped(f, &shape)) {
		f->have_tail = true;
		f->tail = shape;
		f->tail.tail = true;
	}
}

/* Somewhere in this function, probably; what comes next may be one of the places. */
static void jump_anywhere(struct flow *f)
{
	if (!f->have_spare)
		f->spare = f->now;
	f->have_spare = true;
}

static void apply_leave(struct flow *f)
{
	struct insn pop = {.op = INSN_LOAD,
		.reg = f->code->arch->fp,
		.reg2 = ARCH_NO_REG,
		.base = f->code->arch->sp,
		.index = INSN_POST_INDEX,
		.imm = 8};

	f->now.regs[SP] = f->now.regs[FP];
	transfer(f, &pop);
}

static void add(struct flow *f, const struct insn *insn)
{
	const struct arch *arch = f->code->arch;
	unsigned to = followed(arch, insn->reg), from = followed(arch, insn->base);

	if (to == arch->followed_count)
		return;
	f->now.regs[to] = from < arch->followed_count ? plus(f->now.regs[from], insn->imm)
						      : (struct value){0};
}

static void apply(struct flow *f, const struct insn *insn)
{
	const struct arch *arch = f->code->arch;

	switch (insn->op) {
	case INSN_ADD:
		add(f, insn);
		break;
	case INSN_LOAD:
	case INSN_STORE:
		transfer(f, insn);
		break;
	case INSN_LEAVE:
		apply_leave(f);
		break;
	default:
		break;
	}
	for (unsigned i = 0; insn->writes & f->followed && i < arch->followed_count; i++)
		if (insn->writes >> arch->followed[i] & 1)
			f->now.regs[i] = (struct value){0};
}

static struct insn decode(const struct flow_code *code, uint64_t at)
{
	size_t len = 0;
	const uint8_t *bytes = code->read(code->ctx, at, &len);

	return code->arch->decode(bytes, bytes ? len : 0, at);
}

/* Does the instruction at `at` open a frame? */
static bool opens_frame(const struct arch *arch, const struct insn *insn, uint64_t at)
{
	if (insn->op == INSN_STORE && insn->index == INSN_PRE_INDEX && insn->base == arch->sp)
		return followed(arch, insn->reg) < arch->followed_count;
	return insn->entry || (at % FLOW_FUNCTION_ALIGN == 0 && insn->op == INSN_ADD &&
				      insn->reg == arch->sp && insn->base == arch->sp &&
				      insn->imm < 0);
}

bool flow_only_ends(const struct arch *arch, const uint8_t *code, size_t len, uint64_t at)
{
	bool called = false;

	for (size_t i = 0; i < len;) {
		struct insn insn = arch->decode(code + i, len - i, at + i);

		if (insn.len && insn.op == INSN_STOP)
			return called;
		if (!insn.len || called || (insn.op != INSN_PLAIN && insn.op != INSN_ADD &&
						   insn.op != INSN_CALL))
			return false;
		called = insn.op == INSN_CALL;
		i += insn.len;
	}
	return false;
}

bool flow_opens_frame(const struct arch *arch, const uint8_t *code, size_t len, uint64_t at)
{
	struct insn insn = arch->decode(code, len, at);

	return insn.len && opens_frame(arch, &insn, at);
}

/* Does another function begin at `at`, where an instruction ends that does not go on, or behind the
 * padding after it? Then what was called there does not return. */
static bool function_begins(const struct flow_code *code, uint64_t at, bool after_call)
{
	for (unsigned i = 0; code->is_start && i < MAX_PADDING; i++) {
		struct insn insn = decode(code, at);

		if (code->is_start(code->ctx, at) || opens_frame(code->arch, &insn, at))
			return true;
		if (!insn.len || !insn.padding)
			return i && after_call && at % FLOW_FUNCTION_ALIGN == 0;
		at += insn.len;
	}
	return false;
}

/* What comes after `insn`; false when nothing comes behind it. */
static bool goes_on(struct flow *f, const struct insn *insn)
{
	switch (insn->op) {
	case INSN_BRANCH:
		add_path(f, insn->target);
		return true;
	case INSN_JUMP:
		add_path(f, insn->target);
		return false;
	case INSN_JUMP_TABLE:
		jump_anywhere(f);
		return false;
	case INSN_JUMP_REG:
		jump_anywhere(f);
		leave_function(f, false);
		return false;
	case INSN_JUMP_SLOT:
	case INSN_RETURN:
		leave_function(f, true);
		return false;
	case INSN_CALL:
		/* Link registers hold something else now. */
		if (f->code->arch->lr != ARCH_NO_REG)
			f->now.regs[followed(f->code->arch, f->code->arch->lr)] =
				(struct value){0};
		return f->now.at == f->goal || !function_begins(f->code, f->now.at, true);
	default:
		return insn->op != INSN_STOP;
	}
}

/* Follows one path until it ends. */
static void run(struct flow *f)
{
	f->depth_count = 0;
	for (bool first = true; f->budget && !f->found && !f->inconsistent; first = false) {
		struct insn insn;

		if (!first && was_met(f, f->now.at))
			return;
		if (f->from_start && f->now.at == f->goal) {
			f->found = shape_since_start(f, &f->shape);
			f->inconsistent = !f->found;
			return;
		}
		f->budget--;
		note_depth(f);
		insn = decode(f->code, f->now.at);
		if (!insn.len)
			return;
		f->now.at += insn.len;
		apply(f, &insn);
		if (!goes_on(f, &insn)) {
			if (f->end_count < MAX_ENDS && !function_begins(f->code, f->now.at, false))
				f->ends[f->end_count++] = f->now.at;
			return;
		}
	}
}

/* The next path: one that a branch leads to; else one that a jump table may lead to. */
static bool next_path(struct flow *f)
{
	if (f->pending_count) {
		f->now = take_pending(f);
		return true;
	}
	while (f->from_start && f->have_spare && f->next_end < f->end_count) {
		uint64_t at = f->ends[f->next_end++];

		f->now = f->spare;
		f->now.at = at;
		if (is_new_block(f, at))
			return true;
	}
	return false;
}

static bool explore(struct flow *f, const struct flow_code *code, uint64_t at)
{
	f->code = code;
	f->budget = FLOW_MAX_INSNS;
	f->now = (struct state){.at = at};
	for (unsigned i = 0; i < code->arch->followed_count; i++) {
		f->now.regs[i] = initial(i);
		f->followed |= 1ULL << code->arch->followed[i];
	}
	do
		run(f);
	while (f->budget && !f->found && !f->inconsistent && next_path(f));
	return f->found;
}

bool flow_to_return(
	const struct flow_code *code, uint64_t pc, bool is_return, struct frame_shape *ret)
{
	struct flow f;

	memset(&f, 0, offsetof(struct flow, depths));
	if (is_return && function_begins(code, pc, true))
		return false;
	if (explore(&f, code, pc))
		*ret = f.shape;
	else if (f.have_tail && !f.inconsistent)
		*ret = f.tail;
	else
		return false;
	return true;
}

bool flow_from_start(
	const struct flow_code *code, uint64_t start, uint64_t pc, struct frame_shape *ret)
{
	struct flow f;

	memset(&f, 0, offsetof(struct flow, depths));
	f.from_start = true;
	f.goal = pc;
	if (!explore(&f, code, start))
		return false;
	*ret = f.shape;
	return true;
}

/* Two answers to two questions about the same frame. Where they are not the same the start is more often
 * wrong than the way to the return; where they are, what comes from the start knows better which
 * registers are saved by now. */
static bool contradict(const struct frame_shape *since_start, const struct frame_shape *to_return)
{
	return since_start->cfa_reg == to_return->cfa_reg &&
	       since_start->cfa_offset != to_return->cfa_offset;
}

bool flow_frame(const struct flow_code *code, const uint64_t *start, uint64_t pc, bool is_return,
	struct frame_shape *ret)
{
	struct frame_shape since_start, to_return;
	bool ends = flow_to_return(code, pc, is_return, &to_return);
	bool begun = start && flow_from_start(code, *start, pc, &since_start);

	if (begun && ends && !to_return.tail && contradict(&since_start, &to_return))
		begun = false;
	if (begun || ends)
		*ret = begun ? since_start : to_return;
	return begun || ends;
}
