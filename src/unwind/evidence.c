/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/evidence.h"

#include "unwind/pc_cache.h"

#define WRAPPER_BYTES 96 /* how far into a function to look for the jump that makes it a wrapper */
#define FUNCTION_BYTES (16 << 10) /* a call's target further below the pc is another function */

/* Can a function that starts at `target` hold our pc? */
static bool is_our_start(struct walk *w, uint64_t target)
{
	const struct unwind_frame *f = walk_frame(w);
	uint64_t pc = walk_lookup_address(f->pc, f->is_return);

	if (target < w->at.start || target >= w->at.end || target > pc ||
		pc - target >= FUNCTION_BYTES)
		return false;
	/* One FDE covers a whole function: where the start has one, our pc would, too. */
	return !w->at.module || !unwind_module_rule(w->at.module, target - w->at.bias);
}

void walk_through_plt(struct walk *w, uint64_t target, uint64_t *ret)
{
	uint8_t code[ARCH_CODE_MAX];
	struct walk_mapping at;

	if (!walk_find(w, target, &at) || !at.executable || !at.module)
		return;

	size_t len = walk_code_from(w, &at, target, code, sizeof(code));
	uint64_t slot = len ? w->arch->plt_slot(code, len, target) : 0, to;

	if (slot && walk_read_data(w, slot, &to, sizeof(to)))
		*ret = to;
}

/* Does the function at `target` jump on to ours (a tail call)? *ret is where that starts. */
static bool jumps_to_us(struct walk *w, uint64_t target, uint64_t *ret)
{
	uint8_t code[WRAPPER_BYTES];
	size_t len, step = w->arch->code_align;

	if (!w->at.module || target < w->at.start || target >= w->at.end)
		return false;
	len = walk_code_from(w, &w->at, target, code, sizeof(code));
	for (size_t i = 0; i < len; i += step) {
		uint64_t to = w->arch->jump(code + i, len - i, target + i);

		if (to && is_our_start(w, to)) {
			*ret = to;
			return true;
		}
	}
	return false;
}

/* A call whose target is known, or stands in memory. */
static enum evidence judge_call(struct walk *w, struct call_site call, uint64_t *ret_target)
{
	uint64_t target = call.target;

	if (call.form == CALL_SLOT) {
		if (!walk_read_data(w, call.target, &target, sizeof(target)))
			return CALLS_UNKNOWN;
	} else if (!is_our_start(w, target)) {
		walk_through_plt(w, target, &target);
	}
	/* Also where the target itself could be our start: a wrapper below us is another function.
	 */
	if (!jumps_to_us(w, target, ret_target)) {
		if (!is_our_start(w, target))
			return CALLS_OTHER;
		*ret_target = target;
	}
	return CALLS_US;
}

bool candidate_glance(struct walk *w, struct candidate *c, struct call_site *ret_call)
{
	uint8_t code[ARCH_CALL_MAX];

	c->pc &= w->address_mask;
	c->target = 0;
	c->evidence = NOT_A_CALL;
	if (c->pc < 4096 || (c->pc & (w->arch->code_align - 1)) ||
		!walk_find(w, walk_lookup_address(c->pc, true), &c->at) || !c->at.executable)
		return false;

	size_t len = walk_code_before(w, &c->at, c->pc, code, sizeof(code));

	*ret_call = w->arch->call_before(code, len, c->pc);
	if (!len)
		c->evidence = UNREADABLE;
	else if (ret_call->form == CALL_INDIRECT)
		c->evidence = CALLS_UNKNOWN;
	else if (ret_call->form != CALL_NONE)
		c->evidence = CALLS_OTHER;
	return true;
}

bool candidate_examine(struct walk *w, struct candidate *c)
{
	struct call_site call;

	if (!candidate_glance(w, c, &call))
		return false;
	if (c->evidence == CALLS_OTHER)
		c->evidence = judge_call(w, call, &c->target);
	return true;
}

bool candidate_is_planted(struct walk *w, const struct candidate *c)
{
	enum pc_kind kind = walk_pc_info(w, &c->at, c->pc, true).kind;

	return kind == PC_ROOT || kind == PC_SIGRETURN;
}

bool candidate_leads_on(struct walk *w, const struct candidate *c)
{
	struct candidate next = {0};
	struct walk_mapping at = c->at;
	struct call_site call;

	if (!walk_pc_return_slot(w, &at, c->pc, c->slot + 8, &next.slot) ||
		!walk_read_stack(w, next.slot, &next.pc))
		return true; /* cannot tell */
	if (!(next.pc & w->address_mask))
		return true;
	return candidate_glance(w, &next, &call) && (next.evidence != NOT_A_CALL || candidate_is_planted(w, &next));
}

void candidate_take(const struct walk *w, const struct candidate *c, uint8_t how, struct step *s)
{
	s->pc = c->pc;
	s->slot = c->slot;
	s->at = c->at;
	s->how = how;
	s->source = w->source;
	s->is_return = true;
	s->cfa = s->regs.value[w->arch->sp];
}
