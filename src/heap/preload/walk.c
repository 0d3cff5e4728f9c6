/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A walk goes from the innermost frame outwards until it meets a frame of the thread's last walk: the same code with
 * the same stack and frame pointer. All that lies further out follows from that frame and from the words that were read on the
 * way; if those words are what they were, so are the frames, and their nodes. Words are compared one by one, all of
 * them: a stack that was unwound and built up again in the same place is not taken for the old one.
 *
 *	fresh[0]  fresh[1]  fresh[2]
 *	                      |  the same frame as frames[2]
 *	          frames[3]  frames[2]  frames[1]  frames[0]
 *	          forgotten   kept, their words compared
 *
 * In what a rule says and in what memory holds nothing is trusted: every word that is read is known to be readable, every
 * frame lies above the one it called (or on another stack, four of them at most), and there is a limit to their number.
 */
#include "heap/preload/walk_priv.h"
#include "heap/tables_layout.h"

/* Also looked at with instruments that know of other words on the stack than C does. */
#define LOOKS_ANYWHERE __attribute__((no_sanitize("address"), no_sanitize("undefined")))

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

#define WALK_LR_KNOWN 4u /* in registers only: `lr` is the frame's */

struct walk {
	const struct walk_memory *m;
	struct walk_state *s;
	struct walk_frame now; /* the frame we stand on; its node is not set */
	uint64_t lr;
	struct walk_readable before; /* as it was before this walk made more of it; count UINT32_MAX: it did not */
};

/* ---- memory ---- */

static inline LOOKS_ANYWHERE uint64_t load(uint64_t at)
{
	typedef uint64_t __attribute__((may_alias, aligned(1))) word;

	return *(const volatile word *)(uintptr_t)at;
}

static __attribute__((noinline)) bool make_readable(struct walk *w, uint64_t at)
{
	if (w->before.count == UINT32_MAX)
		w->before = w->s->readable;
	return readable_extend(&w->s->readable, at);
}

static inline bool read_word(struct walk *w, uint64_t at, uint64_t *ret)
{
	if (!readable_has(&w->s->readable, at) && !make_readable(w, at))
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

static __attribute__((noinline)) uint64_t find_rule(
	const struct walk_memory *m, struct walk_state *s, struct walk_rule_entry *e, uint64_t address)
{
	uint64_t vaddr, blob, rule = TABLES_NONE;

	if (s->stale)
		return TABLES_NONE;
	if (find_module(m, TABLES_WHERE(s->directory), address, &vaddr, &blob))
		rule = find_in_blob(m, blob, vaddr);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (__atomic_load_n(&m->header->directory, __ATOMIC_RELAXED) != s->directory)
		return TABLES_NONE;
	*e = (struct walk_rule_entry){address, rule};
	return rule;
}

static inline uint64_t rule_of(const struct walk *w)
{
	struct walk_state *s = w->s;
	uint64_t address = w->now.pc - !(w->now.flags & WALK_EXACT);
	struct walk_rule_entry *e = &s->rules[(address ^ address >> 10) & (WALK_RULE_CACHE - 1)];

	if (__builtin_expect(e->address == address, 1))
		return e->rule;
	return find_rule(w->m, s, e, address);
}

static void forget_rules(struct walk_state *s)
{
	for (uint32_t i = 0; i < WALK_RULE_CACHE; i++)
		s->rules[i] = (struct walk_rule_entry){0, TABLES_NONE};
}

/* ---- steps ---- */

enum step {
	STEP_DONE,   /* now is the caller */
	STEP_BOTTOM, /* there is none */
	STEP_LOST,   /* who it is cannot be told */
};

/* now is the caller, but for its pc that has to be looked at. */
static inline enum step arrive(struct walk *w, uint64_t pc)
{
	w->now.pc = pc & w->s->address_mask;
	return w->now.pc ? STEP_DONE : STEP_BOTTOM;
}

static enum step step_signal(struct walk *w)
{
	uint64_t sp = w->now.sp, pc, next_sp, fp;

	if (sp > UINT64_MAX - 1024 || !read_word(w, sp + SIGNAL_PC, &pc) || !read_word(w, sp + SIGNAL_SP, &next_sp) ||
		!read_word(w, sp + SIGNAL_FP, &fp))
		return STEP_LOST;
	w->now = (struct walk_frame){.sp = next_sp, .fp = fp, .flags = WALK_EXACT};
#ifdef SIGNAL_LR
	if (!read_word(w, sp + SIGNAL_LR, &w->lr))
		return STEP_LOST;
	w->now.flags |= WALK_LR_KNOWN;
#endif
	/* Three words say who is next; two are remembered. So this is read again each time. */
	w->now.pc_slot = (uint64_t)(uintptr_t)&w->s->never;
	return arrive(w, pc);
}

static enum step step_link_register(struct walk *w, uint64_t cfa)
{
	if (!(w->now.flags & WALK_LR_KNOWN))
		return STEP_LOST;
	w->now.sp = cfa;
	w->now.flags &= WALK_FP_LOST;
	w->now.pc_slot = (uint64_t)(uintptr_t)&w->s->never;
	return arrive(w, w->lr);
}

/* The frame pointer is where a rule says, unless an epilogue has already popped it: rules go on naming the slot. */
static inline bool take_fp(struct walk *w, int64_t saved, uint64_t slot)
{
	if (!saved) {
		w->now.fp_slot = 0;
		return true;
	}
	if (saved == TABLES_FP_LOST) {
		w->now.fp = w->now.fp_slot = 0;
		w->now.flags |= WALK_FP_LOST;
		return true;
	}
	if ((w->now.flags & WALK_EXACT) && slot < w->now.sp) {
		w->now.fp_slot = 0;
		return true;
	}
	w->now.fp_slot = slot;
	w->now.flags &= ~WALK_FP_LOST;
	return read_word(w, slot, &w->now.fp);
}

/* Leaves now.sp for last: take_fp() needs it. */
static inline enum step step_to(struct walk *w, uint64_t rule, uint64_t cfa, uint64_t fp_base)
{
	uint64_t pc, slot = cfa + (uint64_t)(8 * TABLES_RA(rule));

	/* Only a frame that has not called anything may have put nothing on the stack. */
	if (cfa < w->now.sp || (cfa == w->now.sp && !(w->now.flags & WALK_EXACT)))
		return STEP_LOST;
	if (!take_fp(w, TABLES_FP_SAVED(rule), fp_base + (uint64_t)(8 * TABLES_FP_SAVED(rule))))
		return STEP_LOST;
	if (__builtin_expect(!TABLES_RA(rule), 0))
		return step_link_register(w, cfa);
	if (!read_word(w, slot, &pc))
		return STEP_LOST;
	w->now.sp = cfa;
	w->now.pc_slot = slot;
	w->now.flags &= WALK_FP_LOST;
	return arrive(w, pc);
}

static enum step step_realigned(struct walk *w, uint64_t rule)
{
	uint64_t cfa, fp = w->now.fp;
	enum step step;

	if (!read_word(w, fp + (uint64_t)TABLES_OFFSET(rule), &cfa))
		return STEP_LOST;
	step = step_to(w, rule, cfa, fp);
	/* A third word, as in step_signal(). */
	w->now.pc_slot = (uint64_t)(uintptr_t)&w->s->never;
	return step;
}

static inline enum step step(struct walk *w)
{
	uint64_t rule = rule_of(w), offset = (uint64_t)TABLES_OFFSET(rule);

	if (__builtin_expect(TABLES_KIND(rule) == TABLES_SP, 1))
		return step_to(w, rule, w->now.sp + offset, w->now.sp + offset);
	if (TABLES_KIND(rule) == TABLES_BOTTOM)
		return STEP_BOTTOM;
	if (TABLES_KIND(rule) == TABLES_SIGNAL)
		return step_signal(w);
	if (w->now.flags & WALK_FP_LOST)
		return STEP_LOST;
	if (TABLES_KIND(rule) == TABLES_FP)
		return step_to(w, rule, w->now.fp + offset, w->now.fp + offset);
	return TABLES_KIND(rule) == TABLES_FP_AT ? step_realigned(w, rule) : STEP_LOST;
}

/* ---- frames of the last walk ---- */

/* Of frames[0..count) the number up to the innermost one whose words are not what they were; 0: all are. */
static inline LOOKS_ANYWHERE uint32_t compare(const struct walk_state *s, uint32_t count)
{
	uint64_t mask = s->address_mask;

	for (; count; count--) {
		const struct walk_frame *f = &s->frames[count - 1];

		if (__builtin_expect((load(f->pc_slot) & mask) != f->pc, 0))
			break;
		if (f->fp_slot && __builtin_expect(load(f->fp_slot) != f->fp, 0))
			break;
	}
	return count;
}

static inline bool is_same(const struct walk_frame *a, const struct walk_frame *b)
{
	return a->pc == b->pc && a->sp == b->sp && a->fp == b->fp && a->flags == b->flags;
}

/* Looks for the frame we stand on among the first *left of the last walk, which get fewer. True when the
 * last of them is it and everything further out still holds. */
static inline bool is_known(struct walk *w, uint32_t *left)
{
	struct walk_frame *frames = w->s->frames;
	uint32_t n = *left;

	while (n && frames[n - 1].sp < w->now.sp)
		n--;
	*left = n;
	if (!n || !is_same(&frames[n - 1], &w->now))
		return false;

	uint32_t bad = compare(w->s, n - 1);

	if (!bad) {
		/* It may have been reached another way. */
		frames[n - 1].pc_slot = w->now.pc_slot;
		frames[n - 1].fp_slot = w->now.fp_slot;
		return true;
	}
	/* What is further in than the first word that has changed leads there, too: not to be compared again. */
	*left = bad - 1;
	return false;
}

/* ---- the whole ---- */

static enum walk_result cut(const struct walk_memory *m, struct walk_state *s)
{
	s->count = 0;
	__atomic_fetch_add(&m->header->lost[SHARE_LOST_NODE], 1, __ATOMIC_RELAXED);
	return WALK_CUT;
}

/* Puts fresh[0..fresh) upon frames[0..kept) and finds their nodes. */
static enum walk_result keep(const struct walk_memory *m, struct walk_state *s, uint32_t kept, uint32_t fresh,
	uint32_t parent, uint32_t *ret_node)
{
	struct walk_frame *to = s->frames + kept;

	for (uint32_t i = fresh; i-- > 0; to++) {
		uint32_t node = node_find(m, s, parent, s->fresh[i].pc);

		*ret_node = parent;
		if (!node)
			return cut(m, s);
		*to = s->fresh[i];
		to->node = parent = node;
	}
	s->count = kept + fresh;
	*ret_node = parent;
	return WALK_WHOLE;
}

/* Too many frames: the innermost ones, under "not known". */
static enum walk_result keep_innermost(
	const struct walk_memory *m, struct walk_state *s, uint32_t fresh, uint32_t *ret_node)
{
	enum walk_result result = keep(m, s, 0, fresh, SHARE_STACK_CUT, ret_node);

	return result == WALK_WHOLE ? cut(m, s) : result;
}

static enum walk_result walk_on(struct walk *w, uint32_t *ret_node)
{
	struct walk_state *s = w->s;
	uint32_t left = s->count, fresh = 0;
	enum step next = STEP_DONE;

	while (next == STEP_DONE) {
		if (left && is_known(w, &left))
			return left + fresh > WALK_MOST_FRAMES ? keep_innermost(w->m, s, fresh, ret_node)
			       : keep(w->m, s, left, fresh, s->frames[left - 1].node, ret_node);
		if (fresh == WALK_MOST_FRAMES)
			return keep_innermost(w->m, s, fresh, ret_node);
		s->fresh[fresh++] = w->now;
		next = step(w);
	}
	return next == STEP_LOST ? WALK_RAW : keep(w->m, s, 0, fresh, s->base, ret_node);
}

/* After the directory or what is mapped has changed. Frames stay when only the directory has: code that is still mapped has
 * the rules that it had. */
static __attribute__((noinline)) void renew(
	const struct walk_memory *m, struct walk_state *s, uint64_t directory, uint32_t gone)
{
	uint64_t at = TABLES_WHERE(directory);

	s->stale = true;
	s->address_mask = UINT64_MAX;
	if (at && in_tables(at, sizeof(struct tables_directory))) {
		s->stale = (uint32_t)word_at(m, at + 8) != gone;
		s->address_mask = word_at(m, at + 16);
	}
	if (s->gone != gone || !s->base) {
		s->count = 0;
		s->gone = gone;
		s->base = SHARE_STACK_ROOT;
		if (gone)
			s->base = node_find(m, s, SHARE_STACK_ROOT, gone % (SHARE_FIRST_PC - 1) + 1);
	}
	s->directory = directory;
	forget_rules(s);
}

enum walk_result walk_stack(const struct walk_memory *memory, struct walk_state *state,
	const struct walk_start *start, uint32_t *ret_node)
{
	uint64_t directory = __atomic_load_n(&memory->header->directory, __ATOMIC_ACQUIRE);
	uint32_t gone = __atomic_load_n(&memory->header->modules_gone, __ATOMIC_RELAXED);
	enum walk_result result = WALK_RAW;
	struct walk w = {
		.m = memory,
		.s = state,
		.now = {.pc = start->pc, .sp = start->sp, .fp = start->fp},
	};
	bool same;

	w.before.count = UINT32_MAX;
	*ret_node = SHARE_STACK_NONE;
	if (__builtin_expect(directory != state->directory || gone != state->gone || !state->base, 0)) {
		renew(memory, state, directory, gone);
		if (!state->base)
			return cut(memory, state);
	}
	if (!readable_enter(&state->readable, start->sp, &same))
		same = false;
	if (!same)
		state->count = 0;
	if (state->readable.count)
		result = walk_on(&w, ret_node);
	/* Where a walk got lost it may have looked at anything, which need not be there next time. */
	if (result == WALK_RAW) {
		*ret_node = SHARE_STACK_NONE;
		if (w.before.count != UINT32_MAX)
			state->readable = w.before;
	}
	return result;
}

uint64_t walk_state_bytes(void)
{
	return (sizeof(struct walk_state) + 4095) & ~4095ull;
}

void walk_forget(struct walk_state *state)
{
	state->directory = state->base = state->count = state->spare = state->gone = 0;
	state->readable.count = 0;
	for (uint32_t i = 0; i < WALK_NODE_CACHE; i++)
		state->nodes[i] = (struct walk_node_entry){0};
	forget_rules(state);
}
