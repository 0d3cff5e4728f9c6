/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Behind a uretprobe: the kernel has put the address of a page of its own where the return address was,
 * and keeps the true one to itself. All else about the caller is known, for the rule of the probed
 * function gives back its registers, only not where in which function it is.
 *
 * That is found from both sides: a word above is the return address of a direct call, which names a
 * function; and in this function there is a call of the probed one, at which the function's own rule
 * expects its return address just where that word is.
 *
 *	probed     ret -> [uprobes]
 *	caller     sp ->  locals
 *	                  word: behind "call caller"  <- where the rule at "call probed" says
 *
 * docs/heuristics/uretprobe.md
 */
#include "base/hash.h"
#include "unwind/evidence.h"
#include "unwind/pc_cache.h"

#define SCAN_WORDS 256
#define FUNCTION_BYTES (16u << 10)

/* The function that was probed. */
struct callee {
	uint64_t start;
	uint64_t key;
};

/* A function that may have called it: its return address would be in `slot`. */
struct caller {
	struct walk_mapping at;
	uint64_t start, slot;
};

/* Where the function that holds `addr` starts, by its unwind information. */
static bool function_start(struct walk *w, uint64_t addr, struct walk_mapping *at, uint64_t *ret)
{
	if (!walk_find(w, addr, at) || !at->executable || !at->module ||
		!unwind_module_function(at->module, addr - at->bias, ret))
		return false;
	*ret += at->bias;
	return true;
}

static bool find_callee(struct walk *w, struct callee *ret)
{
	struct walk_mapping at;
	const struct unwind_frame *f;

	if (w->count < 2)
		return false;
	f = &w->frames[w->count - 2];
	if (!function_start(w, walk_lookup_address(f->pc, f->is_return), &at, &ret->start))
		return false;
	ret->key = hash_pair(unwind_module_serial(at.module), ret->start - at.bias);
	return true;
}

/* Does the rule behind the call at `ra` find the return address of the caller in its slot? */
static bool rule_fits(struct walk *w, const struct caller *c, uint64_t ra)
{
	const struct unwind_rule *rule =
		unwind_module_rule(c->at.module, walk_lookup_address(ra, true) - c->at.bias);

	if (!rule || rule->cfa_kind != CFA_REG_OFFSET || !walk_knows(&w->regs, rule->cfa_reg))
		return false;
	for (unsigned i = 0; i < rule->reg_count && i < RULE_MAX_REGS; i++) {
		const struct reg_rule *r = &rule->regs[i];

		if (r->reg == rule->ra_reg && r->kind == REG_AT_CFA)
			return w->regs.value[rule->cfa_reg] +
				(uint64_t)(int64_t)rule->cfa_offset + (uint64_t)(int64_t)r->offset ==
				c->slot;
	}
	return false;
}

static bool calls(struct walk *w, struct call_site call, uint64_t function)
{
	uint64_t target = call.target;

	if (call.form == CALL_SLOT)
		return walk_read_data(w, call.target, &target, sizeof(target)) && target == function;
	if (call.form != CALL_DIRECT)
		return false;
	if (target != function)
		walk_through_plt(w, target, &target);
	return target == function;
}

/* Code from a module address on, as much as one function may have. NULL: there is none. */
static const uint8_t *code_from(const struct unwind_module *m, uint64_t vaddr, size_t *ret_size)
{
	const struct unwind_module_input *in = unwind_module_input(m);

	for (size_t i = 0; i < in->text_count; i++) {
		const struct unwind_section *s = &in->text[i];
		uint64_t left = s->size - (vaddr - s->vaddr);

		if (!s->bytes || vaddr < s->vaddr || vaddr - s->vaddr >= s->size)
			continue;
		*ret_size = left < FUNCTION_BYTES ? left : FUNCTION_BYTES;
		return s->bytes + (vaddr - s->vaddr);
	}
	return NULL;
}

/* The first call of `callee` in the caller that its rule agrees with: the offset of the address behind
 * it; 0 when there is none. */
static uint32_t search_call(struct walk *w, const struct caller *c, const struct callee *callee)
{
	uint64_t vaddr = c->start - c->at.bias, start;
	uint32_t step = w->arch->code_align;
	size_t size;
	const uint8_t *code = code_from(c->at.module, vaddr, &size);

	for (uint32_t end = step; code && end <= size; end += step) {
		size_t len = end < ARCH_CALL_MAX ? end : ARCH_CALL_MAX;
		struct call_site call = w->arch->call_before(code + end - len, len, c->start + end);

		if (call.form == CALL_NONE)
			continue;
		if (!unwind_module_function(c->at.module, vaddr + end - 1, &start) || start != vaddr)
			break;
		if (calls(w, call, callee->start) && rule_fits(w, c, c->start + end))
			return end;
	}
	return 0;
}

/* The same from the cache: a probed function is mostly called from few places. */
static uint32_t find_call(struct walk *w, const struct caller *c, const struct callee *callee)
{
	uint64_t sp = w->regs.value[w->arch->sp], fp = w->regs.value[w->arch->fp];
	uint64_t place = hash_pair(unwind_module_serial(c->at.module), c->start - c->at.bias);
	uint64_t frame = hash_pair(c->slot - sp, walk_knows(&w->regs, w->arch->fp) ? fp - sp : 1);
	uint64_t key = hash_pair(hash_pair(place, frame), callee->key);
	struct probed_call *e = &w->u->probed[key % PROBED_CALLS];

	if (e->key != key)
		*e = (struct probed_call){key, search_call(w, c, callee)};
	return e->offset;
}

/* The function that the word at c->slot was the return address of. A caller that is probed itself has
 * the kernel's address there, too, and can be told only when it has called itself. */
static bool name_caller(struct walk *w, const struct callee *callee, uint64_t word, struct caller *c)
{
	struct candidate behind = {.pc = word};
	struct call_site call;
	uint64_t target, start;

	if (word == walk_frame(w)->pc) {
		target = callee->start;
	} else if (!candidate_glance(w, &behind, &call)) {
		return false;
	} else {
		target = call.target;
		if (call.form == CALL_SLOT ? !walk_read_data(w, call.target, &target, sizeof(target))
					   : call.form != CALL_DIRECT)
			return false;
		if (!function_start(w, target, &c->at, &start) || start != target)
			walk_through_plt(w, target, &target);
	}
	c->start = target;
	return function_start(w, target, &c->at, &start) && start == target;
}

int step_over_uretprobe(struct walk *w, struct step *s)
{
	uint64_t sp = w->regs.value[w->arch->sp], word;
	struct callee callee;

	if (!find_callee(w, &callee))
		return UNWIND_NO_RULE;
	for (unsigned i = 0; i < SCAN_WORDS; i++) {
		struct caller c = {.slot = sp + 8ULL * i};
		uint32_t offset = 0;

		if (!walk_read_stack(w, c.slot, &word))
			return walk_unreadable(w, c.slot) == UNWIND_TRUNCATED ? UNWIND_TRUNCATED
									      : UNWIND_NO_RULE;
		if (name_caller(w, &callee, word, &c))
			offset = find_call(w, &c, &callee);
		if (!offset)
			continue;
		s->regs = w->regs;
		s->cfa = sp;
		s->pc = c.start + offset;
		s->slot = 0;
		s->how = UNWIND_SCAN;
		s->source = UNWIND_FROM_REGS;
		s->is_return = true;
		return STEP_OK;
	}
	return UNWIND_NO_RULE;
}
