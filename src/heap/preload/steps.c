/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/steps.h"

/* Where the kernel's signal frame has a register, from the stack pointer as a handler returns (unwind/arch_x86_64.c,
 * unwind/arch_aarch64.c). */
#if defined(__x86_64__)
#define SIGNAL_FP 120
#define SIGNAL_SP 160
#define SIGNAL_PC 168
#elif defined(__aarch64__)
#define SIGNAL_FP (312 + 8 * 29)
#define SIGNAL_LR (312 + 8 * 30)
#define SIGNAL_SP (312 + 8 * 31)
#define SIGNAL_PC (312 + 8 * 32)
#endif

bool step_make_readable(struct walk *w, uint64_t at)
{
	if (w->before.count == UINT32_MAX)
		w->before = w->s->readable;
	return readable_extend(&w->s->readable, at);
}

/* ---- rules ---- */

/* The module of a directory that holds the address; false when none does, or its rules are not there. */
static bool find_module(const struct walk_memory *m, uint64_t directory, uint64_t address, uint64_t *ret_vaddr,
	uint64_t *ret_blob)
{
	uint64_t first = directory + sizeof(struct tables_directory), low = 0, high, at;

	if (!directory || !in_tables(directory, sizeof(struct tables_directory)))
		return false;
	high = word_at(m, directory) >> 32;
	if ((uint32_t)word_at(m, directory) != TABLES_MAGIC || !in_tables(first, high * sizeof(struct tables_module)))
		return false;
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (word_at(m, first + middle * sizeof(struct tables_module)) <= address)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return false;
	at = first + (low - 1) * sizeof(struct tables_module);
	if (address >= word_at(m, at + 8))
		return false;
	*ret_vaddr = address - word_at(m, at + 16);
	*ret_blob = word_at(m, at + 24);
	return *ret_blob != 0;
}

/* The rule of a module's blob for one of its addresses. */
static uint64_t find_in_blob(const struct walk_memory *m, uint64_t blob, uint64_t vaddr)
{
	uint64_t first, counts, rows, offset, low = 0, high;
	const uint32_t *starts;
	uint16_t number;

	if (!in_tables(blob, sizeof(struct tables_blob)))
		return TABLES_NONE;
	first = word_at(m, blob);
	counts = word_at(m, blob + 8);
	rows = high = (uint32_t)counts;
	offset = vaddr - first;
	if (vaddr < first || offset > UINT32_MAX || !in_tables(blob, TABLES_RULES_AT(rows) + 8 * (counts >> 32)))
		return TABLES_NONE;
	starts = (const uint32_t *)(const void *)(m->tables + blob + sizeof(struct tables_blob));
	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (__atomic_load_n(&starts[middle], __ATOMIC_RELAXED) <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	if (!low)
		return TABLES_NONE;
	number = __atomic_load_n(
		(const uint16_t *)(const void *)(m->tables + blob + TABLES_RULE_OF_AT(rows)) + low - 1, __ATOMIC_RELAXED);
	return number < counts >> 32 ? word_at(m, blob + TABLES_RULES_AT(rows) + 8ull * number) : TABLES_NONE;
}

uint64_t step_find_rule(const struct walk_memory *m, struct walk_state *s, struct walk_rule_entry *set, uint64_t address)
{
	struct walk_rule_entry other = set[1];
	uint64_t vaddr, blob, rule = TABLES_NONE;

	/* What was asked for last stands first. */
	set[1] = set[0];
	set[0] = other;
	if (other.address == address)
		return other.rule;
	if (s->stale)
		return TABLES_NONE;
	if (find_module(m, TABLES_WHERE(s->directory), address, &vaddr, &blob))
		rule = find_in_blob(m, blob, vaddr);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&m->header->directory, __ATOMIC_RELAXED) != s->directory)
		return TABLES_NONE;
	set[0] = (struct walk_rule_entry){address, rule};
	return rule;
}

void step_forget_rules(struct walk_state *s)
{
	for (uint32_t i = 0; i < WALK_RULE_SETS; i++)
		s->rules[i][0] = s->rules[i][1] = (struct walk_rule_entry){0, TABLES_NONE};
}

/* ---- steps ---- */

/* next is the caller, but for its pc that was read as `word`. */
static enum step arrive(struct walk *w, struct walk_fresh *next, uint64_t slot, uint64_t word)
{
	next->pc = word & w->s->address_mask;
	next->pc_slot = slot;
	next->pc_word = word;
	return next->pc ? STEP_DONE : STEP_BOTTOM;
}

/* The same for one that more words have led to than are remembered: they are read again each time. */
static enum step arrive_unsure(struct walk *w, struct walk_fresh *next, uint64_t word)
{
	enum step step = arrive(w, next, (uint64_t)(uintptr_t)&w->s->never, word);

	next->pc_word = 1;
	return step;
}

static enum step step_signal(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
{
	uint64_t pc;

	if (now->sp > UINT64_MAX - 1024 || !read_word(w, now->sp + SIGNAL_PC, &pc) ||
		!read_word(w, now->sp + SIGNAL_SP, &next->sp) || !read_word(w, now->sp + SIGNAL_FP, &next->fp))
		return STEP_LOST;
	next->fp_slot = 0;
	next->flags = WALK_EXACT;
#ifdef SIGNAL_LR
	if (!read_word(w, now->sp + SIGNAL_LR, &w->lr))
		return STEP_LOST;
	next->flags |= WALK_LR_KNOWN;
#endif
	return arrive_unsure(w, next, pc);
}

/* The frame pointer is where a rule says, unless an epilogue has already popped it: rules go on naming the slot. */
static bool take_fp(
	struct walk *w, const struct walk_fresh *now, struct walk_fresh *next, int64_t saved, uint64_t slot)
{
	next->fp = now->fp;
	next->fp_slot = 0;
	next->flags = now->flags & WALK_FP_LOST;
	if (!saved || ((now->flags & WALK_EXACT) && saved != TABLES_FP_LOST && slot < now->sp))
		return true;
	next->flags = 0;
	if (saved == TABLES_FP_LOST) {
		next->fp = 0;
		next->flags = WALK_FP_LOST;
		return true;
	}
	next->fp_slot = slot;
	return read_word(w, slot, &next->fp);
}

/* The caller by a rule whose CFA is known. `saved`: as the rule says of frame pointers; that is at `fp_slot`. */
static enum step step_to(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next, uint64_t cfa,
	int64_t saved, uint64_t fp_slot)
{
	uint64_t rule = now->rule, word, slot = cfa + (uint64_t)(8 * TABLES_RA(rule));

	/* Only a frame that has not called anything may have put nothing on the stack. */
	if (cfa < now->sp || (cfa == now->sp && !(now->flags & WALK_EXACT)))
		return STEP_LOST;
	if (!take_fp(w, now, next, saved, fp_slot))
		return STEP_LOST;
	next->sp = cfa;
	if (!TABLES_RA(rule))
		return now->flags & WALK_LR_KNOWN ? arrive_unsure(w, next, w->lr) : STEP_LOST;
	return read_word(w, slot, &word) ? arrive(w, next, slot, word) : STEP_LOST;
}

static enum step step_realigned(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
{
	uint64_t cfa;
	enum step step;

	if (!read_word(w, now->fp + (uint64_t)TABLES_OFFSET(now->rule), &cfa))
		return STEP_LOST;
	/* It is always saved, mostly at its own address. */
	step = step_to(w, now, next, cfa, 1, now->fp + (uint64_t)(8 * TABLES_FP_SAVED(now->rule)));
	return step == STEP_LOST ? step : arrive_unsure(w, next, next->pc_word);
}

/* By any rule. */
enum step step_general(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
{
	uint64_t rule = now->rule, cfa;
	int64_t saved = TABLES_FP_SAVED(rule);

	switch (TABLES_KIND(rule)) {
	case TABLES_SP:
		cfa = now->sp + (uint64_t)TABLES_OFFSET(rule);
		return step_to(w, now, next, cfa, saved, cfa + (uint64_t)(8 * saved));
	case TABLES_BOTTOM:
		next->pc_slot = 0;
		return STEP_BOTTOM;
	case TABLES_SIGNAL:
		return step_signal(w, now, next);
	case TABLES_FP:
	case TABLES_FP_AT:
		if (now->flags & WALK_FP_LOST)
			return STEP_LOST;
		if (TABLES_KIND(rule) == TABLES_FP_AT)
			return step_realigned(w, now, next);
		cfa = now->fp + (uint64_t)TABLES_OFFSET(rule);
		return step_to(w, now, next, cfa, saved, cfa + (uint64_t)(8 * saved));
	default:
		return STEP_LOST;
	}
}
