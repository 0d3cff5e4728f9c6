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
 * That is for deep stacks. Others are walked whole, along paths that are known (paths.c), unless there are too many of those.
 *
 * In what a rule says and in what memory holds nothing is trusted: every word that is read is known to be readable, every
 * frame lies above the one it called (or on another stack, four of them at most), and there is a limit to their number.
 */
#include "heap/preload/steps.h"

/* ---- frames of the last walk ---- */

/*
 * Whether these words are all what they were. From the innermost outwards, and no further than the first that is not: up to there
 * it is the stack that the thread is on, of which a walk would read the same words. What lies beyond may be left of another
 * one that had the same addresses and is unmapped now. (The processor does not wait for one comparison before the next load.)
 */
static inline bool words_hold(const struct walk_check *c, uint32_t count)
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
	s->count = s->alike = 0;
	__atomic_fetch_add(&m->header->lost[SHARE_LOST_NODE], 1, __ATOMIC_RELAXED);
	return WALK_CUT;
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

/*
 * What the thread remembers of a stack with this hash: its node, or 0. With 64 bits two stacks of one program have the same by
 * chance once in some millions of programs of half a million stacks each.
 */
static inline uint32_t remembered(const struct walk_state *s, uint64_t hash)
{
	const struct walk_stack_set *set = &s->stacks[hash >> 54 & (WALK_STACK_SETS - 1)];
	uint32_t node = 0;

	/* Without a branch: which of them it is cannot be guessed. */
	for (uint32_t i = 0; i < 4; i++)
		node |= set->nodes[i] & -(uint32_t)(set->hashes[i] == hash);
	return node;
}

static void remember(struct walk_state *s, uint64_t hash, uint32_t node)
{
	struct walk_stack_set *set = &s->stacks[hash >> 54 & (WALK_STACK_SETS - 1)];
	uint32_t i = set->turn++ & 3;

	set->hashes[i] = hash;
	set->nodes[i] = node;
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
	uint64_t hash = kept ? s->frames[kept - 1].hash : base, power = kept ? s->frames[kept - 1].power : 1;
	uint32_t alike = s->alike;
	bool room = true;

	for (uint32_t i = fresh; i-- > 0; kept++) {
		const struct walk_fresh *f = &s->fresh[i];
		struct walk_frame *to = &s->frames[kept];

		if (kept >= alike || to->pc != f->pc) {
			alike = 0;
			to->pc = f->pc;
			to->power = power * WALK_HASH_FACTOR;
			to->hash = hash + f->pc * to->power;
			to->node = 0;
		}
		hash = to->hash;
		power = to->power;
		__asm__ volatile("" ::: "memory"); /* see enum step */
		to->sp = f->sp;
		needs = needs_fp(f, needs);
		put_checks(s, kept, f, needs);
	}
	s->count = s->alike = kept;
	*ret_node = kept ? node_of(m, s, kept, base, &room) : base;
	return room ? WALK_WHOLE : cut(m, s);
}

/* Too many frames: the innermost ones, under "not known". */
static enum walk_result keep_innermost(
	const struct walk_memory *m, struct walk_state *s, uint32_t fresh, uint32_t *ret_node)
{
	enum walk_result result;

	s->count = s->alike = 0; /* their nodes are of other stacks */
	result = keep(m, s, 0, fresh, SHARE_STACK_CUT, ret_node);

	return result == WALK_WHOLE ? cut(m, s) : result;
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
	put_end_check(s, now);
	return keep(w->m, s, 0, (uint32_t)(now - s->fresh), s->base, ret_node);
}

static enum walk_result walk_from(struct walk *w, const struct walk_start *start, uint32_t *ret_node)
{
	w->s->fresh[0] = (struct walk_fresh){.pc = start->pc, .sp = start->sp, .fp = start->fp};
	return walk_on(w, ret_node);
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
	s->count = s->alike = 0;
	if (s->gone != gone || !s->base) {
		s->gone = gone;
		s->base = SHARE_STACK_ROOT;
		if (gone)
			s->base = node_find(m, s, SHARE_STACK_ROOT, gone % (SHARE_FIRST_PC - 1) + 1, SHARE_NATIVE);
	}
	s->directory = directory;
	step_forget_rules(s);
	walk_paths_forget(s);
}

/* By paths, when it leads to a stack that is remembered. False: it has to be walked otherwise. */
static inline bool walk_by_paths(
	struct walk *w, const struct walk_start *start, uint32_t *ret_node, enum walk_result *ret_result)
{
	struct walk_state *s = w->s;
	uint64_t hash;
	enum walk_paths_result result = walk_paths(w, start, &hash);

	*ret_result = result == WALK_PATHS_LOST ? WALK_RAW : WALK_WHOLE;
	if (__builtin_expect(result == WALK_PATHS_LOST, 0))
		return true;
	if (result == WALK_PATHS_DEEP) {
		s->paths_off = 100;
		return false;
	}
	*ret_node = remembered(s, hash);
	if (__builtin_expect(result == WALK_PATHS_KNOWN && *ret_node, 1)) {
		s->missing -= s->missing > 0;
	} else if (++s->missing == 8) {
		s->missing = 6;
		s->paths_off = 100;
	}
	return *ret_node;
}

enum walk_result walk_stack(const struct walk_memory *memory, struct walk_state *state,
	const struct walk_start *start, uint32_t *ret_node)
{
	uint64_t directory = __atomic_load_n(&memory->header->directory, __ATOMIC_ACQUIRE);
	uint32_t gone = __atomic_load_n(&memory->header->modules_gone, __ATOMIC_RELAXED);
	enum walk_result result = WALK_RAW;
	struct walk w; /* not all of it needs a value */
	bool same, walked = false;

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
	if (!same)
		state->count = 0;
	state->last.pc = 0;
	if (state->paths_off)
		state->paths_off--;
	else if (state->readable.count && walk_by_paths(&w, start, ret_node, &result))
		walked = true;
	if (walked)
		state->last = *start;
	else if (state->readable.count)
		result = walk_from(&w, start, ret_node);
	/* Where a walk got lost it may have looked at anything, which need not be there next time. */
	if (result == WALK_RAW) {
		*ret_node = SHARE_STACK_NONE;
		if (w.before.count != UINT32_MAX)
			state->readable = w.before;
	}
	return result;
}

void walk_keep_frames(const struct walk_memory *memory, struct walk_state *state)
{
	struct walk w = {.m = memory, .s = state, .before = {.count = UINT32_MAX}};
	uint32_t node;

	if (state->last.pc && walk_from(&w, &state->last, &node) == WALK_RAW)
		state->count = 0;
	state->last.pc = 0;
}

uint64_t walk_state_bytes(void)
{
	return (sizeof(struct walk_state) + 4095) & ~4095ull;
}

void walk_forget(struct walk_state *state)
{
	state->directory = state->base = state->count = state->alike = state->spare = state->gone = 0;
	state->paths_off = state->missing = 0;
	state->readable.count = 0;
	for (uint32_t i = 0; i < WALK_STACK_SETS; i++)
		for (uint32_t j = 0; j < 4; j++)
			state->stacks[i].nodes[j] = 0;
	step_forget_rules(state);
	walk_paths_forget(state);
	if (!state->python.used)
		return;
	state->python.used = false;
	state->python.last_count = 0;
	for (uint32_t i = 0; i < PYTHON_STACK_SETS; i++)
		state->python.stacks[i][0] = state->python.stacks[i][1] = (struct walk_stack_entry){0};
	for (uint32_t i = 0; i < PYTHON_PAIRS; i++)
		state->python.pairs[i] = (struct walk_stack_entry){0};
	for (uint32_t i = 0; i < PYTHON_TOLD; i++)
		state->python.told[i] = 0;
}
