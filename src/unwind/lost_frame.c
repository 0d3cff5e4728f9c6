/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A rule counts from the frame pointer, and that is not known: of a sleeping thread only sp and pc are.
 *
 * The code says how far the frame pointer stands above sp (flow.h); else the frame is looked for by its
 * return address. Either way the rule does the step. docs/heuristics/lost-frame-pointer.md.
 */
#include "unwind/evidence.h"
#include "unwind/pc_cache.h"
#include "unwind/prologue.h"

#define NEAR_WORDS 256	/* for an indirect call */
#define FAR_WORDS 2048	/* for a direct call of this very function */

/* What the function with the lost frame pointer is like. */
struct lost_frame {
	const struct unwind_rule *rule;
	uint64_t start;    /* of the function */
	uint64_t ra_above; /* the return address stands so far above the frame pointer */
	uint64_t fp_above; /* and the caller's frame pointer so far */
};

static bool lost_frame(struct walk *w, struct lost_frame *ret)
{
	const struct unwind_frame *f = walk_frame(w);
	uint64_t vaddr = walk_lookup_address(f->pc, f->is_return) - w->at.bias;
	const struct unwind_rule *rule = w->at.module ? unwind_module_rule(w->at.module, vaddr) : NULL;
	bool ra = false, fp = false;

	if (!rule || rule->cfa_kind != CFA_REG_OFFSET || rule->cfa_reg != w->arch->fp ||
		!unwind_module_function(w->at.module, vaddr, &ret->start))
		return false;
	ret->rule = rule;
	ret->start += w->at.bias;
	for (unsigned i = 0; i < rule->reg_count && i < RULE_MAX_REGS; i++) {
		const struct reg_rule *r = &rule->regs[i];
		uint64_t above = (uint64_t)((int64_t)rule->cfa_offset + r->offset);

		if (r->kind != REG_AT_CFA || above > NEAR_WORDS)
			continue;
		if (r->reg == rule->ra_reg) {
			ret->ra_above = above;
			ra = true;
		} else if (r->reg == w->arch->fp) {
			ret->fp_above = above;
			fp = true;
		}
	}
	return ra && fp;
}

/* Whether the caller's frame pointer, as saved in the frame at `fp`, is one that its own rule can go on
 * with; where that rule counts from sp instead, whether the step after it lands behind a call. */
static bool lost_caller_holds(
	struct walk *w, const struct lost_frame *lost, const struct candidate *c, uint64_t fp)
{
	uint64_t vaddr = walk_lookup_address(c->pc, true) - c->at.bias, saved;
	const struct unwind_rule *rule = c->at.module ? unwind_module_rule(c->at.module, vaddr) : NULL;
	struct candidate next = {0};
	struct call_site call;

	if (walk_pc_info(w, &c->at, c->pc, true).kind == PC_ROOT)
		return true;
	if (!rule || rule->cfa_kind != CFA_REG_OFFSET || rule->cfa_reg != w->arch->fp)
		return candidate_leads_on(w, c);
	return walk_read_stack(w, fp + lost->fp_above, &saved) && saved > fp && saved % 8 == 0 &&
		saved - fp < WALK_STACK_BYTES && walk_read_stack(w, saved + lost->ra_above, &next.pc) &&
		candidate_glance(w, &next, &call) &&
		(next.evidence != NOT_A_CALL || candidate_is_planted(w, &next));
}

/* How well the word at `slot` holds as the return address of the lost frame. */
static bool judge_lost(struct walk *w, const struct lost_frame *lost, struct candidate *c)
{
	struct call_site call;

	if (!walk_read_stack(w, c->slot, &c->pc))
		return false;
	c->source = w->source;
	if (!candidate_glance(w, c, &call) || c->evidence < CALLS_OTHER) {
		c->evidence = NOT_A_CALL;
		return true;
	}
	if (c->evidence == CALLS_OTHER) { /* direct: it names whom it calls */
		uint64_t target = call.target;

		if (call.form == CALL_SLOT)
			walk_read_data(w, call.target, &target, sizeof(target));
		if (target != lost->start)
			walk_through_plt(w, target, &target);
		c->evidence = target == lost->start ? CALLS_US : NOT_A_CALL;
	}
	if (c->evidence != NOT_A_CALL && !lost_caller_holds(w, lost, c, c->slot - lost->ra_above))
		c->evidence = NOT_A_CALL;
	return true;
}

/* A direct call of this very function is the frame, wherever it stands; else the first indirect call. */
static bool find_lost(struct walk *w, const struct lost_frame *lost, uint64_t *ret_fp)
{
	uint64_t sp = w->regs.value[w->arch->sp];
	bool found = false;

	for (unsigned i = 0; i < FAR_WORDS; i++) {
		struct candidate c = {.slot = sp + lost->ra_above + 8ULL * i};

		if (!judge_lost(w, lost, &c))
			break;
		if (c.evidence != CALLS_US && (c.evidence == NOT_A_CALL || found || i >= NEAR_WORDS))
			continue;
		*ret_fp = c.slot - lost->ra_above;
		found = true;
		if (c.evidence == CALLS_US)
			break;
	}
	return found;
}

/* The code knows how far the frame pointer stands above sp, where nothing of variable size lies between. */
static bool fp_by_code(struct walk *w, const struct lost_frame *lost, uint64_t *ret_fp)
{
	struct candidate c = {0};
	struct call_site call;
	int32_t depth, offset;
	uint64_t fp;

	if (!walk_depth(w, lost->start, &depth, &offset) || offset != lost->rule->cfa_offset)
		return false;
	fp = w->regs.value[w->arch->sp] + (uint64_t)(int64_t)(depth - offset);
	if (fp < w->regs.value[w->arch->sp] || !walk_read_stack(w, fp + lost->ra_above, &c.pc) ||
		!candidate_glance(w, &c, &call) ||
		(c.evidence == NOT_A_CALL && !candidate_is_planted(w, &c)))
		return false;
	*ret_fp = fp;
	return true;
}

int step_lost_frame(struct walk *w, int why, struct step *s)
{
	struct lost_frame lost;
	uint64_t fp;
	bool by_code;

	if (!lost_frame(w, &lost))
		return why;
	by_code = fp_by_code(w, &lost, &fp);
	if (!by_code && !find_lost(w, &lost, &fp))
		return why;
	walk_set(&w->regs, w->arch->fp, fp);
	if (step_by_rule(w, lost.rule, s) == STEP_OK) {
		s->how = by_code ? UNWIND_PROLOGUE : UNWIND_SCAN;
		return STEP_OK;
	}
	w->regs.known &= ~(1ULL << w->arch->fp);
	return why;
}
