/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Going from one frame to its caller: what is done for nearly all frames is inline here, the rest stands in steps.c.
 *
 * In what a rule says and in what memory holds nothing is trusted: every word that is read is known to be readable, and every
 * frame lies above the one it called (or on another stack, four of them at most).
 */
#ifndef SONDE_HEAP_PRELOAD_STEPS_H
#define SONDE_HEAP_PRELOAD_STEPS_H

#include "heap/preload/walk_priv.h"
#include "heap/tables_layout.h"

struct walk {
	const struct walk_memory *m;
	struct walk_state *s;
	uint64_t lr;
	struct walk_readable before; /* as it was before this walk made more of it; count UINT32_MAX: it did not */
};

/* ---- memory ---- */

static LOOKS_ANYWHERE uint64_t load(uint64_t at)
{
	typedef uint64_t __attribute__((may_alias, aligned(1))) word;

	return *(const volatile word *)(uintptr_t)at;
}

/* The slow part of read_word(). */
bool step_make_readable(struct walk *w, uint64_t at);

static inline bool read_word(struct walk *w, uint64_t at, uint64_t *ret)
{
	if (!readable_has(&w->s->readable, at) && !step_make_readable(w, at))
		return false;
	*ret = load(at);
	return true;
}

/* ---- rules ---- */

/* [at, at + bytes) lies in the tables, as it should. */
static inline bool in_tables(uint64_t at, uint64_t bytes)
{
	return at <= SHARE_TABLES_BYTES && bytes <= SHARE_TABLES_BYTES - at && !(at & 7);
}

static inline uint64_t word_at(const struct walk_memory *m, uint64_t at)
{
	return __atomic_load_n((const uint64_t *)(const void *)(m->tables + at), __ATOMIC_RELAXED);
}

/* Looks in the tables, and keeps what it finds in `set`. */
uint64_t step_find_rule(const struct walk_memory *m, struct walk_state *s, struct walk_rule_entry *set, uint64_t address);
void step_forget_rules(struct walk_state *s);

static inline uint64_t rule_of(const struct walk_memory *m, struct walk_state *s, uint64_t pc, uint64_t flags)
{
	uint64_t address = pc - !(flags & WALK_EXACT);
	struct walk_rule_entry *set = s->rules[(address ^ address >> 9) & (WALK_RULE_SETS - 1)];

	if (__builtin_expect(set->address == address, 1))
		return set->rule;
	return step_find_rule(m, s, set, address);
}

/* ---- steps ---- */

/*
 * From `now` to `next`, the place behind it. Word by word and in place: a frame that was put together elsewhere and then copied
 * in larger pieces would be waited for, since the processor does not join words that it has just stored.
 */
enum step {
	STEP_DONE,   /* next is the caller */
	STEP_BOTTOM, /* there is none; next->pc_slot says where that was read, 0: nowhere */
	STEP_LOST,   /* who it is cannot be told */
};

/* By any rule: now->rule. */
enum step step_general(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next);

/* What nearly all code with frame pointers has. */
#if defined(__x86_64__)
#define FRAME_RULE TABLES_RULE(TABLES_FP, 16, -1, -2)
#else
#define FRAME_RULE TABLES_NONE
#endif

/* To the caller in place, whose pc is at `slot` and its frame pointer at `fp_slot`, 0: where it was. False when something about
 * it is not common. */
static inline __attribute__((always_inline)) bool step_in_place(const struct walk *w,
	const struct walk_fresh *now, struct walk_fresh *next, uint64_t cfa, uint64_t slot, uint64_t fp_slot)
{
	uint64_t fp = now->fp, word;

	if (__builtin_expect(now->flags || cfa <= now->sp || !readable_has(&w->s->readable, slot), 0))
		return false;
	if (fp_slot) {
		if (__builtin_expect(!readable_has(&w->s->readable, fp_slot), 0))
			return false;
		fp = load(fp_slot);
	}
	word = load(slot);
	next->pc = word & w->s->address_mask;
	next->sp = cfa;
	next->fp = fp;
	next->pc_slot = slot;
	next->pc_word = word;
	next->fp_slot = fp_slot;
	next->flags = 0;
	return next->pc != 0;
}

/* The common rules. The first of them goes on from the frame pointer alone: the processor need not wait for the rule to know where
 * the next frame is. */
static inline __attribute__((always_inline)) bool step_common(
	const struct walk *w, const struct walk_fresh *now, struct walk_fresh *next, uint64_t rule)
{
	unsigned kind = TABLES_KIND(rule);
	int64_t ra = TABLES_RA(rule), saved = TABLES_FP_SAVED(rule);
	uint64_t cfa;

	if (rule == FRAME_RULE)
		return step_in_place(w, now, next, now->fp + 16, now->fp + 8, now->fp);
	if (__builtin_expect((kind != TABLES_SP && kind != TABLES_FP) || !ra || saved == TABLES_FP_LOST, 0))
		return false;
	cfa = (kind == TABLES_SP ? now->sp : now->fp) + (uint64_t)TABLES_OFFSET(rule);
	return step_in_place(w, now, next, cfa, cfa + (uint64_t)(8 * ra), saved ? cfa + (uint64_t)(8 * saved) : 0);
}

#endif
