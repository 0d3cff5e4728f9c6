/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where no rule covers the pc: JIT code, Chromium, Go (frame pointers), musl and hand-written
 * assembly (nothing at all).
 *
 * Four ways, each described with its threshold and its lies in docs/heuristics/:
 *
 *	prologue       what the code around the pc does to the stack
 *	frame pointer  [fp] is the caller's fp, [fp + 8] the return address
 *	leaf           the return address is on top of the stack, or in the link register
 *	scan           the first word above that can be a return address into our caller
 *
 * And lost_frame.c where a rule covers the pc and needs the frame pointer, which is not known.
 */
#include "unwind/evidence.h"
#include "unwind/pc_cache.h"
#include "unwind/prologue.h"

#define SCAN_WORDS 256
#define SCAN_WORDS_FAR 2048  /* for a direct call of our own function, when there was nothing near */
#define SCAN_WORDS_JIT 64 /* each look at code that is no file is a system call */
#define ROOT_WORDS 32	  /* how near a bottom must be to beat a direct call of something else */

/* ---- frame pointer ---- */

/* Is `fp` a frame record in executable company, with another above it (or the last)? */
static bool chain_goes_on(struct walk *w, uint64_t fp)
{
	struct candidate c = {.slot = fp + 8};
	struct call_site call;
	uint64_t saved;

	return fp % 8 == 0 && walk_read_stack(w, fp, &saved) && (!saved || saved > fp) &&
	       walk_read_stack(w, fp + 8, &c.pc) && candidate_glance(w, &c, &call);
}

/* Interpreters and deoptimisers push return addresses by hand and jump, so no call stands before
 * them: in code that keeps frame pointers a longer chain will do. */
static bool is_pushed_by_hand(
	struct walk *w, const struct candidate *c, uint64_t fp, uint64_t saved)
{
	/* A goroutine starts with a frame pointer of 0 and the address of goexit above it; in a
	 * stripped file nothing else says where goexit is. */
	if (!saved && c->at.module && unwind_module_input(c->at.module)->go)
		return true;
	return walk_pc_info(w, &c->at, c->pc, true).kind == PC_NO_RULE && saved > fp &&
	       chain_goes_on(w, saved);
}

/* Does the caller go on without its frame pointer? Then that may hold anything. */
static bool needs_no_fp(struct walk *w, const struct candidate *c)
{
	struct pc_info info = walk_pc_info(w, &c->at, c->pc, true);
	struct frame_shape shape;

	return info.kind < PC_NO_RULE || (walk_shape(w, &c->at, c->pc, true, info, &shape) &&
						 shape.cfa_reg == w->arch->sp);
}

static int step_fp(struct walk *w, uint64_t fp, enum evidence least, struct step *s)
{
	const struct arch *arch = w->arch;
	uint64_t sp = w->regs.value[arch->sp], saved;
	struct candidate c = {.slot = fp + 8};
	struct call_site call;

	if ((fp < sp && !w->may_switch) || fp % 8 || fp > UINT64_MAX - 16)
		return UNWIND_NO_RULE;
	if (!walk_read_stack(w, fp, &saved) || !walk_read_stack(w, fp + 8, &c.pc))
		return walk_unreadable(w, fp + 8) == UNWIND_TRUNCATED ? UNWIND_TRUNCATED
								      : UNWIND_NO_RULE;
	if (least == CALLS_US ? !candidate_examine(w, &c) : !candidate_glance(w, &c, &call))
		return UNWIND_NO_RULE;
	if (c.evidence < least && !candidate_is_planted(w, &c) && !is_pushed_by_hand(w, &c, fp, saved))
		return UNWIND_NO_RULE;
	/* Either the chain goes up, or it changes stacks there, or the caller's fp is a register like any
	 * other. */
	if (saved && saved <= fp && !(w->may_switch && walk_changes_stack(w, &c.at, c.pc)) &&
		!needs_no_fp(w, &c))
		return UNWIND_NO_RULE;

	s->regs = (struct unwind_regs){0};
	walk_set(&s->regs, arch->sp, fp + 16);
	walk_set(&s->regs, arch->fp, saved);
	candidate_take(w, &c, UNWIND_FP, s);
	return STEP_OK;
}

/* ---- leaf ---- */

/* The return address where a function that has not built a frame has it. False when that is
 * no code. */
static bool leaf_candidate(struct walk *w, struct candidate *c)
{
	const struct arch *arch = w->arch;

	if (arch->lr != ARCH_NO_REG) {
		if (!walk_knows(&w->regs, arch->lr))
			return false;
		c->pc = w->regs.value[arch->lr];
		w->source = UNWIND_FROM_REGS;
	} else {
		c->slot = w->regs.value[arch->sp];
		if (!walk_read_stack(w, c->slot, &c->pc))
			return false;
	}
	uint8_t source = w->source;

	if (!candidate_examine(w, c))
		return false;
	if (c->evidence == NOT_A_CALL && candidate_is_planted(w, c))
		c->evidence = CALLS_UNKNOWN;
	w->source = source;
	return true;
}

static int step_leaf(struct walk *w, const struct candidate *c, struct step *s)
{
	const struct arch *arch = w->arch;
	uint64_t sp = w->regs.value[arch->sp];

	s->regs = w->regs;
	s->regs.known &= arch->preserved;
	walk_set(&s->regs, arch->sp, arch->lr == ARCH_NO_REG ? sp + 8 : sp);
	candidate_take(w, c, UNWIND_LEAF, s);
	return STEP_OK;
}

/* ---- scan ---- */

/* The words from sp up, `from` to `to`. `best` gets the most convincing one; false when there is none,
 * *ret_short says whether the dump ended before the search did.
 *
 * A direct call of our own function beats everything before it, for what lies between are locals
 * with old return addresses in them; of several the one whose target is nearest below the pc,
 * for that is where our function starts. */
static bool scan_words(struct walk *w, unsigned from, unsigned to, enum evidence least,
	struct candidate *best, bool *ret_short)
{
	uint64_t sp = w->regs.value[w->arch->sp];

	best->evidence = NOT_A_CALL;
	*ret_short = false;
	for (unsigned i = from; i < to; i++) {
		struct candidate c = {.slot = sp + 8ULL * i};

		if (!walk_read_stack(w, c.slot, &c.pc)) {
			*ret_short = walk_unreadable(w, c.slot) == UNWIND_TRUNCATED;
			break;
		}
		c.source = w->source;
		if (!candidate_examine(w, &c) || c.evidence < CALLS_OTHER)
			continue;
		/* Pushed once, at the bottom: never a left-over, and nothing lies above. */
		if (walk_pc_info(w, &c.at, c.pc, true).kind == PC_ROOT) {
			bool near = i < ROOT_WORDS && best->evidence < CALLS_UNKNOWN;

			if (least < CALLS_US && (near || best->evidence == NOT_A_CALL))
				*best = c;
			break;
		}
		if (c.evidence < least)
			continue;
		if (c.evidence == CALLS_US ? best->evidence < CALLS_US || c.target > best->target
					   : c.evidence > best->evidence && candidate_leads_on(w, &c))
			*best = c;
	}
	return best->evidence != NOT_A_CALL;
}

/* Does `fp` look like the frame pointer of a frame that starts above `floor`? */
static bool is_frame_pointer(struct walk *w, uint64_t fp, uint64_t floor)
{
	struct candidate c = {.slot = fp + 8};
	struct call_site call;

	return fp > floor && fp % 8 == 0 && fp - floor < WALK_STACK_BYTES &&
	       walk_read_stack(w, fp + 8, &c.pc) && candidate_glance(w, &c, &call) &&
	       c.evidence >= CALLS_OTHER;
}

/* The function that was stepped over may have saved the caller's frame pointer anywhere between,
 * or not touched it. Unknown when neither the register nor a word holds one. */
static void recover_fp(struct walk *w, uint64_t slot, struct step *s)
{
	uint64_t fp = w->regs.value[w->arch->fp], sp = w->regs.value[w->arch->sp];

	if (walk_knows(&w->regs, w->arch->fp) && is_frame_pointer(w, fp, slot)) {
		walk_set(&s->regs, w->arch->fp, fp);
		return;
	}
	for (uint64_t at = slot; at > sp;) {
		at -= 8;
		if (walk_read_stack(w, at, &fp) && is_frame_pointer(w, fp, slot)) {
			walk_set(&s->regs, w->arch->fp, fp);
			return;
		}
	}
}

static int step_scan(struct walk *w, struct step *s)
{
	struct candidate c = {0};
	bool dump_ended, far_ended, found;

	if (w->at.module)
		found = scan_words(w, 0, SCAN_WORDS, CALLS_OTHER, &c, &dump_ended) ||
			(!dump_ended && scan_words(w, SCAN_WORDS, SCAN_WORDS_FAR, CALLS_US, &c,
						&far_ended));
	else /* JIT code without a frame pointer that holds: only what names it is believed. */
		found = scan_words(w, 0, SCAN_WORDS_JIT, CALLS_US, &c, &dump_ended);
	if (!found)
		return dump_ended ? UNWIND_TRUNCATED : UNWIND_NO_RULE;
	if (c.slot == w->regs.value[w->arch->sp] && !walk_frame(w)->is_return &&
		w->arch->lr == ARCH_NO_REG)
		return step_leaf(w, &c, s);

	s->regs = (struct unwind_regs){0};
	recover_fp(w, c.slot, s);
	walk_set(&s->regs, w->arch->sp, c.slot + 8);
	w->source = c.source;
	candidate_take(w, &c, UNWIND_SCAN, s);
	return STEP_OK;
}

/* ---- which of them ---- */

/* A return address in memory that is no file, and no call before it: going on would invent
 * callers. */
static bool is_trampoline(struct walk *w)
{
	const struct unwind_frame *f = walk_frame(w);
	struct candidate c = {.pc = f->pc};
	struct call_site call;

	/* Frames found here were looked at before they were taken. */
	if (w->at.module || !f->is_return || f->how != UNWIND_CFI)
		return false;
	return f->pc == w->at.start || (candidate_glance(w, &c, &call) && c.evidence == NOT_A_CALL);
}

/* A libc without CFI whose file cannot be had. */
static bool is_sigreturn(struct walk *w)
{
	uint8_t code[ARCH_CODE_MAX];
	size_t len = walk_code_from(w, &w->at, walk_frame(w)->pc, code, sizeof(code));

	return w->arch->is_sigreturn(code, len);
}

static int step_prologue(struct walk *w, struct pc_info info, struct step *s)
{
	struct frame_shape shape;

	const struct unwind_frame *f = walk_frame(w);

	return walk_shape(w, &w->at, f->pc, f->is_return, info, &shape) ? step_by_shape(w, &shape, s)
									: UNWIND_NO_RULE;
}

static bool is_go(const struct walk *w)
{
	return w->at.module && unwind_module_input(w->at.module)->go;
}

/* Goroutines and the runtime's own stacks are linked by frame pointers that leave the bytes we have. */
static int step_go(struct walk *w, struct step *s)
{
	uint64_t fp = w->regs.value[w->arch->fp];
	int result;

	if (!walk_knows(&w->regs, w->arch->fp))
		return UNWIND_NO_RULE;
	if (!fp)
		return UNWIND_ROOT;
	result = step_fp(w, fp, UNREADABLE, s);
	return result == UNWIND_NO_RULE ? UNWIND_TRUNCATED : result;
}

/* In code that keeps frame pointers, or may do so: what a JIT keeps is not known, and a file may have
 * both kinds of functions next to each other. An interrupted frame may not be built yet. */
static int step_framed(struct walk *w, struct pc_info info, struct step *s)
{
	const struct unwind_frame *f = walk_frame(w);
	bool fp_known = walk_knows(&w->regs, w->arch->fp);
	uint64_t fp = w->regs.value[w->arch->fp];
	enum frame_state state = FRAME_SET_UP;
	struct candidate leaf = {0};
	int result = UNWIND_NO_RULE;

	if (is_go(w) && f->is_return)
		return step_go(w, s);
	/* A direct call of us needs no second witness. */
	if (f->is_return && w->at.module && fp_known && step_fp(w, fp, CALLS_US, s) == STEP_OK)
		return STEP_OK;
	result = step_prologue(w, info, s);
	if (result != UNWIND_NO_RULE)
		return result;
	if (f->is_return) {
		if (fp_known && !fp)
			return UNWIND_ROOT; /* only the outermost frame has none */
	} else {
		uint8_t code[ARCH_CODE_MAX];
		size_t len = walk_code_from(w, &w->at, f->pc, code, sizeof(code));

		/* A call of nothing, as through a null pointer, has built no frame. */
		state = w->at.end ? w->arch->frame_state(code, len) : FRAME_ENTRY;
		if (!leaf_candidate(w, &leaf))
			leaf.evidence = NOT_A_CALL;
		if (leaf.evidence == CALLS_US ||
			(state == FRAME_ENTRY && leaf.evidence > NOT_A_CALL))
			return step_leaf(w, &leaf, s);
	}
	if (state == FRAME_PUSHED)
		result = step_fp(w, w->regs.value[w->arch->sp], UNREADABLE, s);
	if (result != STEP_OK && fp_known)
		result = step_fp(w, fp, UNREADABLE, s);
	if (result != STEP_OK && leaf.evidence >= CALLS_UNKNOWN)
		return step_leaf(w, &leaf, s);
	return result;
}

int step_by_fallback(struct walk *w, struct pc_info info, int why, struct step *s)
{
	bool go = is_go(w), exact = !walk_frame(w)->is_return;
	uint64_t fp = w->regs.value[w->arch->fp];
	bool fp_known = walk_knows(&w->regs, w->arch->fp);
	int result;

	/* Go's frame pointers lead from the runtime's stack to that of the goroutine. */
	w->may_switch = go;

	/* A rule was there and failed. Tables that hold only at calls are wrong in the middle of a
	 * function; its frame pointer may still be right. */
	if (why != UNWIND_NO_RULE) {
		/* systemstack() of the Go runtime runs on another stack than its rule says. */
		if (go && why == UNWIND_BAD_ADDRESS && !exact && fp_known && fp)
			return step_fp(w, fp, CALLS_OTHER, s) == STEP_OK ? STEP_OK
									 : UNWIND_TRUNCATED;
		if (why == UNWIND_BAD_RULE && !fp_known)
			return step_lost_frame(w, why, s);
		if (why == UNWIND_TRUNCATED || !exact || !fp_known)
			return why;
		return step_fp(w, fp, CALLS_OTHER, s) == STEP_OK ? STEP_OK : why;
	}
	if (w->at.uretprobes && !exact)
		return step_over_uretprobe(w, s);
	if (is_trampoline(w))
		return is_sigreturn(w) ? step_by_sigframe(w, s) : why;
	if (info.kind == PC_BARE) {
		result = step_prologue(w, info, s);
		if (result != UNWIND_NO_RULE)
			return result;
		result = step_scan(w, s);
		if (result != STEP_OK && fp_known && step_fp(w, fp, CALLS_OTHER, s) == STEP_OK)
			return STEP_OK;
		return result;
	}
	result = step_framed(w, info, s);
	if (result != UNWIND_NO_RULE)
		return result;
	/* Goroutines and the runtime's own stacks are linked by frame pointers that leave the bytes
	 * we have. */
	if (go)
		return fp_known && fp ? UNWIND_TRUNCATED : why;
	return step_scan(w, s);
}
