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
 * Comparing costs more than walking where most of a stack is another one each time, and it is not deep. Then walks are
 * plain for a while: all frames, and nothing is kept but the hash of their pcs.
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

struct walk {
	const struct walk_memory *m;
	struct walk_state *s;
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
	const struct walk_memory *m, struct walk_state *s, struct walk_rule_entry *set, uint64_t address)
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

static inline uint64_t rule_of(const struct walk_memory *m, struct walk_state *s, uint64_t pc, uint64_t flags)
{
	uint64_t address = pc - !(flags & WALK_EXACT);
	struct walk_rule_entry *set = s->rules[(address ^ address >> 9) & (WALK_RULE_SETS - 1)];

	if (__builtin_expect(set->address == address, 1))
		return set->rule;
	return find_rule(m, s, set, address);
}

static void forget_rules(struct walk_state *s)
{
	for (uint32_t i = 0; i < WALK_RULE_SETS; i++)
		s->rules[i][0] = s->rules[i][1] = (struct walk_rule_entry){0, TABLES_NONE};
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
static __attribute__((noinline)) enum step step_general(
	struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
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

/* What nearly all code with frame pointers has. */
#if defined(__x86_64__)
#define FRAME_RULE TABLES_RULE(TABLES_FP, 16, -1, -2)
#else
#define FRAME_RULE TABLES_NONE
#endif

/* To the caller in place, whose pc is at `slot` and its frame pointer at `fp_slot`, 0: where it was. False when something about
 * it is not common. */
static inline __attribute__((always_inline)) LOOKS_ANYWHERE bool step_in_place(const struct walk *w,
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

/* ---- frames of the last walk ---- */

/*
 * Whether these words are all what they were. From the innermost outwards, and no further than the first that is not: up to there
 * it is the stack that the thread is on, of which a walk would read the same words. What lies beyond may be left of another
 * one that had the same addresses and is unmapped now. (The processor does not wait for one comparison before the next load.)
 */
static inline LOOKS_ANYWHERE bool words_hold(const struct walk_check *c, uint32_t count)
{
	while (count--)
		if (__builtin_expect(load(c[count].at) != c[count].value, 0))
			return false;
	return true;
}

static inline uint32_t checks_of(const struct walk_state *s, uint32_t count)
{
	return count ? WALK_CHECKS(s->frames[count - 1].marks) : s->end_checks;
}

/* Of frames[0..count), some of whose words are not what they were, the number that the innermost such word leaves. */
static __attribute__((noinline)) uint32_t count_that_may_hold(const struct walk_state *s, uint32_t count)
{
	while (count) {
		uint32_t from = checks_of(s, count - 1), to = checks_of(s, count);

		count--;
		if (!words_hold(s->checks + from, to - from))
			break;
	}
	return count;
}

/* What said that there is nothing further out than frames[0]. */
static void put_end_check(struct walk_state *s, const struct walk_fresh *end)
{
	s->end_checks = end->pc_slot != 0;
	if (s->end_checks)
		s->checks[0] = (struct walk_check){end->pc_slot, end->pc_word};
}

/* The words that led to frames[index], `needs_fp`: WALK_NEEDS_FP or 0; whoever comes after it has none so far. */
static inline void put_checks(struct walk_state *s, uint32_t index, const struct walk_fresh *f, uint32_t needs_fp)
{
	uint32_t n = checks_of(s, index);

	if (f->pc_slot)
		s->checks[n++] = (struct walk_check){f->pc_slot, f->pc_word};
	if (f->fp_slot && needs_fp)
		s->checks[n++] = (struct walk_check){f->fp_slot, f->fp};
	s->frames[index].fp = f->fp;
	s->frames[index].marks = WALK_MARKS(n, (uint32_t)f->flags | needs_fp);
}

/* Whether the frame pointer matters in a frame from which `rule` led to one where it does, or does not. */
static inline uint32_t needs_fp(const struct walk_fresh *f, uint32_t caller_needs)
{
	unsigned kind = TABLES_KIND(f->rule);

	if (kind == TABLES_FP || kind == TABLES_FP_AT)
		return WALK_NEEDS_FP;
	if (kind != TABLES_SP || (TABLES_FP_SAVED(f->rule) && !(f->flags & WALK_EXACT)))
		return 0;
	return caller_needs;
}

/* Looks for the frame we stand on among the first *left of the last walk, which get fewer. True when the
 * last of them is it and everything further out still holds. */
static inline __attribute__((always_inline)) bool is_known(
	struct walk_state *s, const struct walk_fresh *now, uint32_t *left)
{
	struct walk_frame *frames = s->frames, *f;
	uint32_t n = *left;

	while (n && frames[n - 1].sp < now->sp)
		n--;
	*left = n;
	if (!n)
		return false;
	f = &frames[n - 1];
	if (f->pc != now->pc || f->sp != now->sp || WALK_FLAGS(f->marks) != now->flags)
		return false;
	if ((f->marks & WALK_NEEDS_FP) && f->fp != now->fp)
		return false;
	if (__builtin_expect(!words_hold(s->checks, checks_of(s, n - 1)), 0)) {
		/* What lies between this and the word leads there, too: not to be compared again. */
		*left = count_that_may_hold(s, n - 1);
		return false;
	}
	/* It may have been reached another way. */
	put_checks(s, n - 1, now, f->marks & WALK_NEEDS_FP);
	return true;
}

/* ---- the whole ---- */

static enum walk_result cut(const struct walk_memory *m, struct walk_state *s)
{
	s->count = s->fresh_count = 0;
	__atomic_fetch_add(&m->header->lost[SHARE_LOST_NODE], 1, __ATOMIC_RELAXED);
	return WALK_CUT;
}

/*
 * The hash of a frame that `outer` is the hash of all further out of. With 64 bits two stacks of one program have the same by
 * chance once in a hundred million programs of half a million stacks each.
 */
static inline uint64_t hash_of(uint64_t outer, uint64_t pc)
{
	uint64_t hash = (outer ^ pc) * 0x9e3779b97f4a7c15u;

	return hash ^ hash >> 29;
}

/* Asks for the nodes of frames[0..count), the outermost ones first, which is called by `base`. The innermost; *ret_room false:
 * there is no room for nodes, and it is the last one that there was. */
static __attribute__((noinline)) uint32_t find_nodes(
	const struct walk_memory *m, struct walk_state *s, uint32_t count, uint32_t base, bool *ret_room)
{
	uint32_t known = count, parent;

	while (known && !s->frames[known - 1].node)
		known--;
	parent = known ? s->frames[known - 1].node : base;
	for (*ret_room = true; known < count; known++) {
		uint32_t node = node_find(m, s, parent, s->frames[known].pc, SHARE_NATIVE);

		*ret_room = node;
		if (!node)
			break;
		s->frames[known].node = parent = node;
	}
	return parent;
}

/* What the thread remembers of a stack with this hash: its node, or 0. */
static inline uint32_t remembered(struct walk_state *s, uint64_t hash)
{
	struct walk_stack_entry *set = s->stacks[hash >> 53 & (WALK_STACK_SETS - 1)], other = set[1];

	if (__builtin_expect(set->hash == hash, 1))
		return set->node;
	/* What was asked for last stands first. */
	set[1] = set[0];
	set[0] = other;
	return other.hash == hash ? other.node : 0;
}

static inline void remember(struct walk_state *s, uint64_t hash, uint32_t node)
{
	s->stacks[hash >> 53 & (WALK_STACK_SETS - 1)][0] = (struct walk_stack_entry){.hash = hash, .node = node};
}

/* The node of the stack that is frames[0..count). */
static inline uint32_t node_of(
	const struct walk_memory *m, struct walk_state *s, uint32_t count, uint32_t base, bool *ret_room)
{
	struct walk_frame *leaf = &s->frames[count - 1];

	*ret_room = true;
	if (!leaf->node)
		leaf->node = remembered(s, leaf->hash);
	if (leaf->node)
		return leaf->node;

	uint32_t node = find_nodes(m, s, count, base, ret_room);

	if (*ret_room)
		remember(s, leaf->hash, node);
	return node;
}

/* Puts fresh[0..fresh) upon frames[0..kept) and finds the node of the whole, whose outermost frame `base` calls. As long as the
 * frames that were there have the same pcs, their hashes and nodes are the same. */
static enum walk_result keep(const struct walk_memory *m, struct walk_state *s, uint32_t kept, uint32_t fresh,
	uint32_t base, uint32_t *ret_node)
{
	uint32_t needs = kept ? s->frames[kept - 1].marks & WALK_NEEDS_FP : 0;
	uint64_t hash = kept ? s->frames[kept - 1].hash : base;
	uint32_t alike = s->count;
	bool room = true;

	for (uint32_t i = fresh; i-- > 0; kept++) {
		const struct walk_fresh *f = &s->fresh[i];
		struct walk_frame *to = &s->frames[kept];

		if (kept >= alike || to->pc != f->pc) {
			alike = 0;
			to->pc = f->pc;
			to->hash = hash_of(hash, f->pc);
			to->node = 0;
		}
		hash = to->hash;
		__asm__ volatile("" ::: "memory"); /* see enum step */
		to->sp = f->sp;
		needs = needs_fp(f, needs);
		put_checks(s, kept, f, needs);
	}
	s->count = kept;
	*ret_node = kept ? node_of(m, s, kept, base, &room) : base;
	return room ? WALK_WHOLE : cut(m, s);
}

/* A whole stack, fresh[0..fresh), that was not compared with the last one. */
static enum walk_result keep_nothing(
	const struct walk_memory *m, struct walk_state *s, uint32_t fresh, uint32_t *ret_node)
{
	uint64_t hash = s->base;

	for (uint32_t i = fresh; i-- > 0;)
		hash = hash_of(hash, s->fresh[i].pc);
	s->count = 0;
	s->fresh_count = fresh;
	*ret_node = remembered(s, hash);
	return *ret_node ? WALK_WHOLE : keep(m, s, 0, fresh, s->base, ret_node);
}

/* Whether the next walks are plain, after one that kept this much of the last one, and found this much. */
static inline void learn(struct walk_state *s, uint32_t kept, uint32_t fresh)
{
	if (fresh <= kept || kept + fresh > WALK_PLAIN_FRAMES) {
		s->changing -= s->changing > 0;
	} else if (++s->changing == 8) {
		s->changing = 6;
		s->plain = 100;
	}
}

/* Too many frames: the innermost ones, under "not known". */
static enum walk_result keep_innermost(
	const struct walk_memory *m, struct walk_state *s, uint32_t fresh, uint32_t *ret_node)
{
	enum walk_result result;

	s->count = 0; /* their nodes are of other stacks */
	result = keep(m, s, 0, fresh, SHARE_STACK_CUT, ret_node);

	return result == WALK_WHOLE ? cut(m, s) : result;
}

/* `now` is where a walk met the bottom of the stack. */
static enum walk_result walked_to_the_end(struct walk *w, const struct walk_fresh *now, uint32_t *ret_node)
{
	struct walk_state *s = w->s;
	uint32_t fresh = (uint32_t)(now - s->fresh);

	put_end_check(s, now);
	if (s->plain && fresh <= WALK_PLAIN_FRAMES) {
		s->plain--;
		return keep_nothing(w->m, s, fresh, ret_node);
	}
	s->plain = 0;
	if (s->count)
		learn(s, 0, fresh);
	return keep(w->m, s, 0, fresh, s->base, ret_node);
}

/* From fresh[0]. */
static enum walk_result walk_on(struct walk *w, uint32_t *ret_node)
{
	struct walk_state *s = w->s;
	struct walk_fresh *now = s->fresh;
	uint32_t left = s->count, fresh;
	enum step step = STEP_DONE;

	for (; step == STEP_DONE; now++) {
		fresh = (uint32_t)(now - s->fresh);
		if (left && is_known(s, now, &left)) {
			learn(s, left, fresh);
			return left + fresh > WALK_MOST_FRAMES ? keep_innermost(w->m, s, fresh, ret_node)
			       : keep(w->m, s, left, fresh, s->base, ret_node);
		}
		if (fresh == WALK_MOST_FRAMES)
			return keep_innermost(w->m, s, fresh, ret_node);
		now->rule = rule_of(w->m, s, now->pc, now->flags);
		if (!step_common(w, now, now + 1, now->rule))
			step = step_general(w, now, now + 1);
	}
	if (step == STEP_LOST)
		return WALK_RAW;
	return walked_to_the_end(w, now, ret_node);
}

/* After the directory or what is mapped has changed: what was known by the old one is forgotten, but for nodes. */
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
	s->count = 0;
	if (s->gone != gone || !s->base) {
		s->gone = gone;
		s->base = SHARE_STACK_ROOT;
		if (gone)
			s->base = node_find(m, s, SHARE_STACK_ROOT, gone % (SHARE_FIRST_PC - 1) + 1, SHARE_NATIVE);
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
	struct walk w; /* not all of it needs a value */
	bool same;

	w.m = memory;
	w.s = state;
	w.lr = 0;
	w.before.count = UINT32_MAX;
	*ret_node = SHARE_STACK_NONE;
	if (__builtin_expect(directory != state->directory || gone != state->gone || !state->base, 0)) {
		renew(memory, state, directory, gone);
		if (!state->base)
			return cut(memory, state);
	}
	if (!readable_enter(&state->readable, start->sp, &same))
		same = false;
	if (!same || state->plain)
		state->count = 0;
	if (state->readable.count) {
		state->fresh[0] = (struct walk_fresh){.pc = start->pc, .sp = start->sp, .fp = start->fp};
		result = walk_on(&w, ret_node);
	}
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
	for (uint32_t i = 0; i < WALK_STACK_SETS; i++)
		state->stacks[i][0] = state->stacks[i][1] = (struct walk_stack_entry){0};
	forget_rules(state);
	if (!state->python.used)
		return;
	state->python.used = false;
	state->python.last_count = 0;
	for (uint32_t i = 0; i < WALK_STACK_SETS; i++)
		state->python.stacks[i][0] = state->python.stacks[i][1] = (struct walk_stack_entry){0};
	for (uint32_t i = 0; i < PYTHON_PAIRS; i++)
		state->python.pairs[i] = (struct walk_stack_entry){0};
	for (uint32_t i = 0; i < PYTHON_TOLD; i++)
		state->python.told[i] = 0;
}
