/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One step by a rule of any kind (DWARF 5, 6.4.3), and by the kernel's signal frame.
 *
 * A register that cannot be recovered becomes unknown; that is no error until something needs it.
 * Only the CFA and the return address must be there.
 */
#include "unwind/expr.h"
#include "unwind/walk_priv.h"

static bool read_for_expr(void *ctx, uint64_t addr, void *buf, size_t len)
{
	return walk_read_data((struct walk *)ctx, addr, buf, len);
}

/* The value of the expression at `start` of the section the rule came from. */
static bool evaluate(struct walk *w, const struct unwind_rule *rule, int32_t start, uint16_t len,
	const uint64_t *cfa, uint64_t *ret)
{
	const struct unwind_module_input *input = unwind_module_input(w->at.module);
	const struct unwind_section *section =
		rule->debug_frame ? &input->debug_frame : &input->eh_frame;
	struct expr_input in = {
		.regs = &w->regs,
		.read = read_for_expr,
		.ctx = w,
		.has_initial = cfa != NULL,
		.initial = cfa ? *cfa : 0,
		.bias = w->at.bias,
	};

	if (start < 0 || (size_t)start > section->size || len > section->size - (size_t)start)
		return false;
	return expr_evaluate(section->bytes + start, len, &in, ret);
}

/* Compilers do not say that an epilogue has restored a register: its rule goes on naming the slot
 * when that has been popped. Below sp nothing is kept, and the register is the caller's again. */
static bool is_popped(const struct walk *w, unsigned reg, uint64_t slot)
{
	return slot < w->regs.value[w->arch->sp] && !walk_frame(w)->is_return &&
	       walk_knows(&w->regs, reg) && (w->arch->preserved >> reg & 1);
}

/* What a register rule gives; false when that cannot be had, *why says which reason. */
static bool recover(struct walk *w, const struct unwind_rule *rule, const struct reg_rule *r,
	uint64_t cfa, uint64_t *ret, int *why)
{
	uint64_t at;

	*why = UNWIND_BAD_RULE;
	w->source = UNWIND_FROM_REGS;
	w->read_too_high = false;
	switch (r->kind) {
	case REG_SAME:
		*ret = w->regs.value[r->reg];
		return walk_knows(&w->regs, r->reg);
	case REG_IN_REG:
		if (r->offset < 0 || !walk_knows(&w->regs, (unsigned)r->offset))
			return false;
		*ret = w->regs.value[r->offset];
		return true;
	case REG_CFA_OFFSET:
		*ret = cfa + (uint64_t)(int64_t)r->offset;
		return true;
	case REG_EXPR:
		if (evaluate(w, rule, r->offset, r->expr_len, &cfa, ret))
			return true;
		break;
	case REG_AT_CFA:
		at = cfa + (uint64_t)(int64_t)r->offset;
		if (is_popped(w, r->reg, at)) {
			*ret = w->regs.value[r->reg];
			return true;
		}
		if (walk_read_stack(w, at, ret))
			return true;
		*why = walk_unreadable(w, at);
		return false;
	case REG_AT_EXPR:
		w->source = UNWIND_FROM_DUMP;
		if (evaluate(w, rule, r->offset, r->expr_len, &cfa, &at) &&
			walk_read_data(w, at, ret, sizeof(*ret))) {
			if (at - w->dump_start >= w->dump_size)
				w->source = UNWIND_FROM_LIVE;
			return true;
		}
		break;
	default:
		return false;
	}
	if (w->read_too_high)
		*why = UNWIND_TRUNCATED;
	return false;
}

static int find_cfa(struct walk *w, const struct unwind_rule *rule, uint64_t *ret)
{
	uint64_t sp = w->regs.value[w->arch->sp], cfa;

	if (rule->cfa_kind == CFA_EXPR) {
		w->read_too_high = false;
		if (!evaluate(w, rule, rule->cfa_offset, rule->cfa_expr_len, NULL, &cfa))
			return w->read_too_high ? UNWIND_TRUNCATED : UNWIND_BAD_RULE;
	} else {
		if (!walk_knows(&w->regs, rule->cfa_reg))
			return UNWIND_BAD_RULE;
		cfa = w->regs.value[rule->cfa_reg] + (uint64_t)(int64_t)rule->cfa_offset;
	}
	/* Only a frame that has not called anything may have put nothing on the stack. */
	if (cfa < sp || (cfa == sp && walk_frame(w)->is_return))
		if (!rule->signal_frame || cfa - w->dump_start < w->dump_size)
			return UNWIND_NO_PROGRESS;
	*ret = cfa;
	return STEP_OK;
}

/* What a callee leaves as it was; all the rest is lost once it has returned. */
static void keep_preserved(const struct walk *w, struct step *s)
{
	s->regs = w->regs;
	s->regs.known &= w->arch->preserved;
}

int step_by_rule(struct walk *w, const struct unwind_rule *rule, struct step *s)
{
	const struct arch *arch = w->arch;
	bool have_ra = false;
	uint64_t cfa = 0, value;
	int why = find_cfa(w, rule, &cfa);

	if (why != STEP_OK)
		return why;
	keep_preserved(w, s);
	if (rule->cfa_kind == CFA_REG_OFFSET && rule->cfa_reg == arch->fp)
		s->regs.known &= ~(1ULL << arch->fp);
	walk_set(&s->regs, arch->sp, cfa);
	s->cfa = cfa;
	s->how = UNWIND_CFI;
	s->is_return = !rule->signal_frame;

	for (unsigned i = 0; i < rule->reg_count && i < RULE_MAX_REGS; i++) {
		const struct reg_rule *r = &rule->regs[i];
		bool is_ra = r->reg == rule->ra_reg;

		if (r->reg >= UNWIND_MAX_REGS)
			continue;
		if (is_ra && r->kind == REG_UNDEFINED)
			return UNWIND_ROOT;
		if (recover(w, rule, r, cfa, &value, &why)) {
			walk_set(&s->regs, r->reg, value);
		} else if (is_ra) {
			return why;
		} else {
			s->regs.known &= ~(1ULL << r->reg);
			continue;
		}
		if (is_ra) {
			have_ra = true;
			s->pc = value;
			s->source = w->source;
			s->slot = r->kind == REG_AT_CFA && w->source != UNWIND_FROM_REGS ? w->slot
											 : 0;
		}
	}
	if (!have_ra) {
		if (rule->ra_reg == arch->pc || !walk_knows(&w->regs, rule->ra_reg))
			return UNWIND_BAD_RULE;
		s->pc = w->regs.value[rule->ra_reg];
		s->source = UNWIND_FROM_REGS;
		s->slot = 0;
	}
	/* The call itself put the return address there: the caller's own value is not known. */
	if (arch->lr != ARCH_NO_REG && s->is_return)
		s->regs.known &= ~(1ULL << arch->lr);
	return STEP_OK;
}

int step_by_sigframe(struct walk *w, struct step *s)
{
	const struct arch *arch = w->arch;
	uint64_t sp = w->regs.value[arch->sp], value;

	s->regs = (struct unwind_regs){0};
	for (unsigned reg = 0; reg < arch->sigframe_count; reg++) {
		if (!walk_read_stack(w, sp + arch->sigframe[reg], &value))
			return walk_unreadable(w, sp + arch->sigframe[reg]);
		walk_set(&s->regs, reg, value);
	}
	s->cfa = s->regs.value[arch->sp];
	s->pc = s->regs.value[arch->pc];
	s->slot = sp + arch->sigframe[arch->pc];
	s->how = UNWIND_CFI;
	s->source = w->source;
	s->is_return = false;
	/* A signal stack may lie above the stack that was interrupted, so going down is allowed,
	 * but only to another place than the bytes this walk reads. */
	if (s->cfa <= sp && s->cfa - w->dump_start < w->dump_size)
		return UNWIND_NO_PROGRESS;
	return STEP_OK;
}
