/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Functions of programs that only hand on what an allocator gives: told by how they are called, docs/heuristics/heap-sites.md.
 *
 * In rounds: each round looks at the innermost functions that are nobody's wrapper so far, and what it finds is passed over by
 * the next, so that wrappers of wrappers are found as well.
 */
#include <string.h>
#include <strings.h>

#include "base/hash.h"
#include "base/vec.h"
#include "capture/id_table.h"
#include "profile/heap_priv.h"

#define MOST_ROUNDS 8u

/* Of a function whose name says that it allocates, and of any other. */
struct rule {
	uint32_t callers, places, sizes;
	double direct; /* of the stacks that it is in */
};
static const struct rule by_name = {.callers = 3, .places = 4, .sizes = 2, .direct = 0.9};
static const struct rule by_calls = {.callers = 12, .places = 2, .sizes = 6, .direct = 0.98};

/* What is known of a function. */
struct seen {
	uint32_t direct, in;      /* stacks in which it wants the memory, and all that it is in */
	uint32_t callers, places; /* functions that call it; addresses in it from where it asks for memory */
	uint64_t sizes;           /* HEAP_SIZES: buckets that have something */
	uint32_t last;            /* stack + 1, so that a stack counts once */
};

/* A function and something of it; the same pair is noted once. */
struct pair {
	uint64_t of, what;
};

struct search {
	struct profile *p;
	uint8_t *roles;
	struct seen *seen; /* by function */
	VEC(struct pair) pairs;
	struct id_table ids;
};

static uint64_t pair_hash(const void *ctx, uint32_t id)
{
	const struct search *s = ctx;

	return hash_pair(s->pairs.data[id].of, s->pairs.data[id].what);
}

/* Whether it is the first time. */
static bool is_new(struct search *s, uint64_t of, uint64_t what)
{
	struct id_probe probe = id_probe_start(&s->ids, hash_pair(of, what));

	while (id_probe_next(&s->ids, &probe))
		if (s->pairs.data[probe.id].of == of && s->pairs.data[probe.id].what == what)
			return false;
	if (id_table_reserve(&s->ids, pair_hash, s) || vec_push(&s->pairs, ((struct pair){of, what})))
		return false;
	id_table_add(&s->ids, hash_pair(of, what), (uint32_t)s->pairs.len - 1);
	return true;
}

/* The function that called the one of `level`, which is in the frame of `node`; recursion is no caller. */
static uint32_t caller_of(const struct profile *p, uint32_t level, uint32_t node)
{
	uint32_t function = p->levels.data[level].function, next = level + 1;

	while (node != PROFILE_NONE) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[node].frame];

		for (; next < f->first_level + f->level_count; next++)
			if (p->levels.data[next].function != function)
				return p->levels.data[next].function;
		node = p->nodes.data[node].parent;
		if (node != PROFILE_NONE)
			next = p->frames.data[p->nodes.data[node].frame].first_level;
	}
	return PROFILE_NONE;
}

static uint64_t sizes_of(const struct profile_heap *h, const struct heap_site *site)
{
	uint64_t sizes = 0;

	for (unsigned i = 0; i < HEAP_BUCKETS; i++)
		sizes |= (uint64_t)(heap_shape_count(h, site, HEAP_SIZES, i) > 0) << i;
	return sizes;
}

static void note_stack(struct search *s, uint32_t number, const struct heap_site *site)
{
	const struct profile *p = s->p;
	uint32_t node, level = heap_find_level(p, site->stack, s->roles, &node);
	const struct profile_frame *f;
	struct seen *direct;

	for (uint32_t n = site->stack; n != PROFILE_NONE; n = p->nodes.data[n].parent) {
		f = &p->frames.data[p->nodes.data[n].frame];
		for (uint32_t i = f->first_level; i < f->first_level + f->level_count; i++) {
			struct seen *in = &s->seen[p->levels.data[i].function];

			in->in += in->last != number + 1;
			in->last = number + 1;
		}
	}
	if (level == PROFILE_NONE || s->roles[p->levels.data[level].function] != HEAP_ROLE_USER)
		return;
	f = &p->frames.data[p->nodes.data[node].frame];
	if (f->kind != FRAME_USER)
		return;
	direct = &s->seen[p->levels.data[level].function];
	direct->direct++;
	direct->sizes |= sizes_of(p->heap, site);
	direct->callers += is_new(s, p->levels.data[level].function, caller_of(p, level, node));
	direct->places += is_new(s, (uint64_t)p->levels.data[level].function | 1ull << 32, f->address);
}

/* Of the name alone, without parameters and template arguments, which are full of std::allocator. */
static bool says_alloc(const char *name)
{
	unsigned depth = 0;

	for (; *name && (depth || *name != '('); name++) {
		if (*name == '<')
			depth++;
		else if (*name == '>' && depth)
			depth--;
		else if (!depth && !strncasecmp(name, "alloc", 5))
			return true;
	}
	return false;
}

static bool is_wrapper(const struct profile_function *f, const struct seen *s)
{
	const struct rule *rule = says_alloc(f->name) ? &by_name : &by_calls;

	return !f->unresolved && !f->kernel && f->state == STATE_ON_CPU && s->callers >= rule->callers && s->places <= rule->places &&
		(uint32_t)__builtin_popcountll(s->sizes) >= rule->sizes && s->direct >= rule->direct * s->in;
}

/* Whether there was one. */
static bool round_of(struct search *s)
{
	struct profile *p = s->p;
	bool any = false;

	for (size_t i = 0; i < p->functions.len; i++)
		s->roles[i] = heap_role_of(p, &p->functions.data[i]);
	memset(s->seen, 0, p->functions.len * sizeof(*s->seen));
	s->pairs.len = 0;
	id_table_release(&s->ids);
	for (uint32_t i = 0; i < p->heap->sites.len; i++)
		note_stack(s, i, &p->heap->sites.data[i]);
	for (size_t i = 0; i < p->functions.len; i++) {
		if (s->roles[i] != HEAP_ROLE_USER || !is_wrapper(&p->functions.data[i], &s->seen[i]))
			continue;
		p->heap->wrappers[i] = true;
		any = true;
	}
	return any;
}

void heap_find_wrappers(struct profile *p)
{
	struct search s = {.p = p};

	s.roles = calloc(p->functions.len + 1, sizeof(*s.roles));
	s.seen = calloc(p->functions.len + 1, sizeof(*s.seen));
	p->heap->wrappers = calloc(p->functions.len + 1, sizeof(*p->heap->wrappers));
	if (s.roles && s.seen && p->heap->wrappers)
		for (unsigned i = 0; i < MOST_ROUNDS && round_of(&s); i++)
			;
	free(s.roles);
	free(s.seen);
	vec_release(&s.pairs);
	id_table_release(&s.ids);
}

void heap_show_wrappers(struct profile *p)
{
	free(p->heap->wrappers);
	p->heap->wrappers = NULL;
	p->heap->show_wrappers = true;
}

static void share(struct profile *to, const struct profile *from)
{
	for (size_t k = 0; k < from->functions.len; k++)
		for (size_t i = 0; from->heap->wrappers[k] && i < to->functions.len; i++)
			if (!strcmp(to->functions.data[i].name, from->functions.data[k].name))
				to->heap->wrappers[i] = true;
}

void heap_share_wrappers(struct profile *a, struct profile *b)
{
	if (!a->heap || !b->heap || !a->heap->wrappers || !b->heap->wrappers)
		return;
	share(a, b);
	share(b, a);
}
