/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whole stacks by what is known of their shape.
 *
 * Where the caller of a frame is found depends on the rule of its code, which depends on its return address, which was
 * found by the frame before. A processor that has to wait for each of these loads takes several times as long as for the
 * work itself. So a path keeps, for some frames in a row from a certain place on, where their words were. A walk takes the
 * words from there at once, and asks only whether the rules of the frames are the same: as long as they are, the words are
 * where the path says. Return addresses need not be the same, so one path is good for all functions whose frames are alike.
 * Where they always are the same, they are compared instead, which is less work, and their hash is known.
 *
 * A path is known by the return address and the stack pointer of its first frame. It ends where the stack gets into another
 * block of PATH_BLOCK bytes, so that stacks that differ in their innermost frames share the paths further out. A frame
 * with another rule is the first of another path.
 *
 * A frame that is found by its frame pointer is where the path says if that has the value that it had: this is compared.
 *
 * No word is read before all that leads to it was compared, so none that a walk by the rules would not read. (The processor
 * does, ahead of the comparisons, and there it does no harm.)
 */
#include "heap/preload/steps.h"

#define PATH_BLOCK 1024u
#define PATH_REACH_MOST (1u << 20) /* bytes from a path's stack pointer to anything of it */
#define NONE UINT32_MAX
#define STEADY 8u                  /* walks with the same return addresses, until these are compared */

/* Where a walk stands. */
struct place {
	uint64_t pc, sp, fp, flags;
};

/* What was found until there. */
struct found {
	uint64_t hash;
	uint32_t count, built;
};

#define K WALK_HASH_FACTOR
static const uint64_t powers[WALK_PATH_FRAMES + 1] = {
	1, K, K *K, K *K *K, K *K *K *K, K *K *K *K *K, K *K *K *K *K *K, K *K *K *K *K *K *K, K *K *K *K *K *K *K *K};
#undef K

/* Different for different rules. */
static inline uint64_t mark_of(uint64_t rule)
{
	return rule * 0xd6e8feb86659fd93u;
}

/* ---- making one ---- */

/* As step_common, and when memory has to be made readable for that, it is. */
static bool step_shown(struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
{
	if (step_common(w, now, next, now->rule))
		return true;
	return step_general(w, now, next) == STEP_DONE && step_common(w, now, next, now->rule);
}

/* Whether [sp, at) with the word at `at` is short enough; *ret: how far that is. */
static bool within(uint64_t sp, uint64_t at, uint32_t *ret)
{
	*ret = (uint32_t)(at - sp);
	return at - sp <= PATH_REACH_MOST;
}

/* What finds the next frame of the path, `now`. */
static void put_frame(struct walk_path *p, const struct walk_fresh *now, uint32_t pc_at)
{
	struct walk_path_fp *fp = &p->fps[p->count];

	p->frames[p->count++] = (struct walk_path_frame){
		.mark = mark_of(now->rule), .pc = now->pc, .pc_at = pc_at, .sp_at = (uint32_t)(now->sp - p->sp), .fp_at = p->fp_at};
	*fp = (struct walk_path_fp){(uintptr_t)&fp->value, 0};
	if (TABLES_KIND(now->rule) != TABLES_FP)
		return;
	p->by_fp |= p->fp_at == NONE ? WALK_PATH_FIRST_FP : WALK_PATH_SAVED_FP;
	if (p->fp_at != NONE)
		*fp = (struct walk_path_fp){p->sp + p->fp_at, now->fp};
}

/* One more frame, from `now` to `next`. False: it is none for a path. */
static bool extend(struct walk_path *p, struct walk *w, const struct walk_fresh *now, struct walk_fresh *next)
{
	uint32_t pc_at = 0, fp_at = 0, bytes = 0;

	if (TABLES_KIND(now->rule) == TABLES_BOTTOM) {
		put_frame(p, now, 0);
		p->ends = true;
		return true;
	}
	if (!step_shown(w, now, next) || !within(p->sp, next->sp, &bytes) || !within(p->sp, next->pc_slot, &pc_at) ||
		(next->fp_slot && !within(p->sp, next->fp_slot, &fp_at)))
		return false;
	put_frame(p, now, pc_at);
	p->bytes = bytes;
	p->last_word = pc_at > p->last_word ? pc_at : p->last_word;
	if (next->fp_slot) {
		p->fp_at = fp_at;
		p->last_word = fp_at > p->last_word ? fp_at : p->last_word;
	}
	return true;
}

/* From there on. Its frames may be none: then that is known. */
static __attribute__((noinline)) void build(struct walk *w, struct walk_path *p, const struct place *from)
{
	struct walk_fresh *now = w->s->fresh;

	p->pc = from->pc;
	p->sp = from->sp;
	p->fp = from->fp;
	p->sum = 0;
	p->count = p->last_word = p->bytes = 0;
	p->by_fp = p->steady = p->others = 0;
	p->ends = false;
	p->fp_at = NONE;
	*now = (struct walk_fresh){.pc = from->pc, .sp = from->sp, .fp = from->fp};
	while (p->count < WALK_PATH_FRAMES && !p->ends) {
		now->rule = rule_of(w->m, w->s, now->pc, 0);
		if (!extend(p, w, now, now + 1))
			break;
		p->sum = p->sum * WALK_HASH_FACTOR + now->pc;
		if (!p->ends && (now[1].sp ^ now->sp) / PATH_BLOCK)
			break;
		now++;
	}
}

/* ---- following ---- */

static inline bool begins_at(const struct walk_path *p, const struct place *at)
{
	return p->pc == at->pc && p->sp == at->sp;
}

static inline void make(struct walk *w, struct walk_path *p, const struct place *at, struct found *found)
{
	struct place from = *at;

	build(w, p, &from);
	found->built += p->count + 1u;
}

/* The path from there on, made when it is not there. */
static inline struct walk_path *get(struct walk *w, const struct place *at, struct found *found)
{
	struct walk_path *set = w->s->paths[(at->pc ^ at->pc >> 8 ^ at->sp >> 4) & (WALK_PATH_SETS - 1)];

	if (__builtin_expect(begins_at(set, at), 1))
		return set;
	if (!begins_at(++set, at)) {
		set -= w->s->turn ^= 1;
		make(w, set, at, found);
	}
	return set;
}

/* Whether a return address has the rule of a path's frame; that is remembered. */
static __attribute__((noinline)) bool has_rule(struct walk *w, uint64_t pc, uint64_t mark)
{
	if (mark_of(rule_of(w->m, w->s, pc, 0)) != mark)
		return false;
	w->s->marks[pc & (WALK_PATH_MARKS - 1)] = pc ^ mark;
	return true;
}

/* The frame pointer of a frame that has it from `fp_at`; `fp`: what it is where the path begins. */
static inline uint64_t fp_from(uint64_t sp, uint32_t fp_at, uint64_t fp)
{
	return fp_at == NONE ? fp : load(sp + fp_at);
}

/* A frame that is found by a frame pointer that was saved on the way: whether that is what it was. */
static inline bool fp_holds(const struct walk_path_fp *fp)
{
	return __builtin_expect(load(fp->slot) == fp->value, 1);
}

/* frames[0..count) are the right ones, and the pc of what called them is there. */
struct along {
	uint64_t pc, hash;
	uint32_t count;
};

/* By return addresses. Not all: frames[count] is another one, or `hash` and `pc` are not known. */
static inline __attribute__((always_inline)) struct along compare(
	const struct walk_path *p, uint64_t mask, bool by_fp)
{
	const struct walk_path_frame *f = p->frames;
	uint64_t sp = p->sp, pc;
	uint32_t i = 0, count = p->count;

	for (;; f++) {
		pc = load(sp + f->pc_at) & mask;
		if (++i == count)
			break;
		if (__builtin_expect(f[1].pc != pc, 0) || (by_fp && !fp_holds(&p->fps[i])))
			break;
	}
	return (struct along){pc, p->sum, i};
}

/* By rules. */
static inline __attribute__((always_inline)) struct along follow(
	struct walk *w, const struct walk_path *p, uint64_t mask, bool by_fp)
{
	const struct walk_path_frame *f = p->frames;
	const uint64_t *marks = w->s->marks;
	uint64_t sp = p->sp, pc = p->pc, hash = 0;
	uint32_t i = 0, count = p->count;

	for (;; f++) {
		hash = hash * WALK_HASH_FACTOR + pc;
		pc = load(sp + f->pc_at) & mask;
		if (++i == count)
			break;
		if (__builtin_expect(marks[pc & (WALK_PATH_MARKS - 1)] != (pc ^ f[1].mark), 0) && !has_rule(w, pc, f[1].mark))
			break;
		if (by_fp && !fp_holds(&p->fps[i]))
			break;
	}
	return (struct along){pc, hash, i};
}

/* The return addresses of the path are these, from now on. */
static __attribute__((noinline)) void learn_pcs(struct walk_path *p, uint64_t sum, uint64_t mask)
{
	for (uint32_t i = 1; i < p->count; i++)
		p->frames[i].pc = load(p->sp + p->frames[i - 1].pc_at) & mask;
	p->sum = sum;
	p->steady = 0;
}

static inline __attribute__((always_inline)) struct along walk_path(
	struct walk *w, struct walk_path *p, bool by_fp)
{
	uint64_t mask = w->s->address_mask;
	struct along along;

	if (p->steady >= STEADY) {
		along = compare(p, mask, by_fp);
		if (__builtin_expect(along.count == p->count, 1))
			return along;
		p->steady = 0;
	}
	along = follow(w, p, mask, by_fp);
	if (along.count < p->count)
		return along;
	if (along.hash == p->sum)
		p->steady++;
	else if (!(++p->others & 31))
		learn_pcs(p, along.hash, mask);
	else
		p->steady = 0;
	return along;
}

/* A frame that is in no path. */
static __attribute__((noinline)) enum step step_alone(struct walk *w, struct place *at)
{
	struct walk_fresh *now = w->s->fresh;
	enum step step = STEP_DONE;

	*now = (struct walk_fresh){.pc = at->pc, .sp = at->sp, .fp = at->fp, .flags = at->flags};
	now->rule = rule_of(w->m, w->s, at->pc, at->flags);
	if (!step_common(w, now, now + 1, now->rule))
		step = step_general(w, now, now + 1);
	*at = (struct place){.pc = now[1].pc, .sp = now[1].sp, .fp = now[1].fp, .flags = now[1].flags};
	return step;
}

/* The same of a place that is kept in registers, as long as nobody has its address. */
static inline enum step go_alone(struct walk *w, struct place *at, struct found *found)
{
	struct place place = *at;
	enum step step = step_alone(w, &place);

	found->hash = found->hash * WALK_HASH_FACTOR + at->pc;
	found->count++;
	*at = place;
	return step;
}

/* The next frames, at least one. */
static inline __attribute__((always_inline)) enum step go_on(struct walk *w, struct place *at, struct found *found)
{
	const struct walk_readable *r = &w->s->readable;
	struct walk_path *p;
	struct along along;

	if (__builtin_expect(at->flags || !readable_has(r, at->sp), 0))
		return go_alone(w, at, found);
	p = get(w, at, found);
	if (__builtin_expect(!p->count || !readable_has(r, at->sp + p->last_word), 0))
		return go_alone(w, at, found);
	if (__builtin_expect((p->by_fp & WALK_PATH_FIRST_FP) && p->fp != at->fp, 0)) {
		make(w, p, at, found);
		return go_alone(w, at, found);
	}
	along = p->by_fp & WALK_PATH_SAVED_FP ? walk_path(w, p, true) : walk_path(w, p, false);
	found->hash = found->hash * powers[along.count] + along.hash;
	found->count += along.count;
	at->pc = along.pc;
	if (__builtin_expect(along.count == p->count, 1)) {
		at->fp = fp_from(p->sp, p->fp_at, at->fp);
		at->sp = p->sp + p->bytes;
		return p->ends ? STEP_BOTTOM : STEP_DONE;
	}
	at->fp = fp_from(p->sp, p->frames[along.count].fp_at, at->fp);
	at->sp = p->sp + p->frames[along.count].sp_at;
	return STEP_DONE;
}

enum walk_paths_result walk_paths(struct walk *w, const struct walk_start *start, uint64_t *ret_hash)
{
	struct place at = {.pc = start->pc, .sp = start->sp, .fp = start->fp};
	struct found found = {0};
	enum step step;

	do {
		if (found.count >= WALK_PATHS_MOST)
			return WALK_PATHS_DEEP;
		step = go_on(w, &at, &found);
	} while (step == STEP_DONE && at.pc);
	if (__builtin_expect(step == STEP_LOST, 0))
		return WALK_PATHS_LOST;
	*ret_hash = found.hash * WALK_HASH_FACTOR + w->s->base;
	return found.built * 2 <= found.count ? WALK_PATHS_KNOWN : WALK_PATHS_NEW;
}

void walk_paths_forget(struct walk_state *s)
{
	for (uint32_t i = 0; i < WALK_PATH_SETS; i++)
		for (uint32_t j = 0; j < 2; j++)
			if (s->paths[i][j].sp)
				s->paths[i][j].pc = s->paths[i][j].sp = 0;
	for (uint32_t i = 0; i < WALK_PATH_MARKS; i++)
		if (s->marks[i])
			s->marks[i] = 0;
}
