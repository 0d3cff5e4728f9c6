/* SPDX-License-Identifier: BSD-2-Clause */
/* One heap, block by block. A block says how long it is, and the next one whether it is in use. */
#include "heap/arenas_priv.h"

#define MOST_WALKS 5u  /* of a heap that changes */
#define CHAIN 8u       /* blocks that follow each other, to be one's way again */
#define MOST_CACHES 262144u

struct step {
	struct walk *w;
	const struct heap_piece *piece;
	struct arena sums;     /* of this walk alone */
	struct arenas_sum used_classes[ARENAS_CLASSES], free_classes[ARENAS_CLASSES];
	size_t first_cache;
	bool lost;
};

static void say(struct step *s, uint64_t start, uint64_t end, enum arenas_state state)
{
	s->sums.states[state].bytes += end - start;
	s->sums.states[state].count++;
	s->w->ops->part(s->w->ctx, start, end, state);
}

/* Whole pages of a free block that are in memory. */
static uint64_t whole_pages(const struct step *s, uint64_t start, uint64_t end)
{
	uint64_t page = s->w->places->page_bytes;

	start = (start + page - 1) & ~(page - 1);
	end &= ~(page - 1);
	return start < end ? s->w->ops->resident(s->w->ctx, start, end) : 0;
}

static void take_free(struct step *s, uint64_t at, uint64_t bytes)
{
	struct arenas_sum *class = &s->free_classes[size_class(bytes)];

	say(s, at, at + bytes, ARENAS_FREE);
	class->bytes += bytes;
	class->count++;
	s->sums.trim_bytes += whole_pages(s, at + FREE_CHUNK_HEAD, at + bytes);
	if (bytes > s->sums.largest_free)
		s->sums.largest_free = bytes;
}

/* A block of the size of a thread's cache may be one. */
static void note_cache(struct step *s, uint64_t at, uint64_t bytes)
{
	struct walk *w = s->w;

	for (uint32_t i = 0; i < CACHE_LAYOUTS; i++)
		if (bytes == cache_layouts[i].block_bytes && w->caches.len < MOST_CACHES &&
			vec_push(&w->caches, (struct cache_candidate){at + CHUNK_HEADER, i, s->piece->arena}))
			w->failed = true;
}

static void take_used(struct step *s, uint64_t at, uint64_t bytes)
{
	struct arenas_sum *class = &s->used_classes[size_class(bytes)];

	say(s, at, at + bytes, ARENAS_USED);
	class->bytes += bytes;
	class->count++;
	note_cache(s, at, bytes);
}

/* malloc_trim() gives back the end of the main heap, and of others nothing. */
static void take_top(struct step *s, uint64_t at, uint64_t end)
{
	say(s, at, end, ARENAS_TOP);
	if (s->sums.main)
		s->sums.trim_bytes += whole_pages(s, at + CHUNK_LEAST, end);
	if (end - at > s->sums.largest_free)
		s->sums.largest_free = end - at;
}

/* ---- is it one ---- */

/* A block that ends in the heap. Two of 16 bytes, or one and nothing, stand where a heap ends before its memory does. */
static bool is_chunk(const struct step *s, uint64_t at, const struct chunk *c)
{
	uint64_t bytes = chunk_bytes(c);

	return bytes >= CHUNK_LEAST && !(bytes % CHUNK_ALIGN) && bytes <= s->piece->end - at && !(c->size & CHUNK_MAPPED);
}

static bool is_fence(const struct chunk *c)
{
	return chunk_bytes(c) == CHUNK_HEADER && (c->size & CHUNK_PREV_IN_USE);
}

/* The block and what follows agree: `*ret_free`, and the flag that tells the main arena from others. */
static bool agrees(const struct step *s, const struct chunk *c, const struct chunk *next, bool *ret_free)
{
	*ret_free = !(next->size & CHUNK_PREV_IN_USE);
	if (*ret_free)
		return next->prev_size == chunk_bytes(c);
	return !!(c->size & CHUNK_NOT_MAIN) == !s->sums.main;
}

/* Where the walk goes on from `at`; 0: it has lost its way. Says what it found when `take`. */
static uint64_t advance(struct step *s, uint64_t at, bool take)
{
	struct chunk c, next;
	bool is_free;
	uint64_t to;

	if (!walk_chunk(s->w, at, &c))
		return 0;
	if (at == s->piece->top) {
		if (chunk_bytes(&c) != s->piece->end - at)
			return 0;
		if (take)
			take_top(s, at, s->piece->end);
		return s->piece->end;
	}
	if (is_fence(&c)) {
		to = s->piece->end - at <= 2 * CHUNK_HEADER ? s->piece->end : at + CHUNK_HEADER;
		if (take)
			say(s, at, to, ARENAS_OWN);
		return to;
	}
	if (!is_chunk(s, at, &c))
		return 0;
	to = at + chunk_bytes(&c);
	if (to + CHUNK_HEADER > s->piece->end || !walk_chunk(s->w, to, &next) || !agrees(s, &c, &next, &is_free))
		return 0;
	if (take && is_free)
		take_free(s, at, to - at);
	else if (take)
		take_used(s, at, to - at);
	return to;
}

/* The next place from which blocks follow each other. */
static uint64_t find_way(struct step *s, uint64_t at)
{
	for (at += CHUNK_ALIGN; at + CHUNK_LEAST <= s->piece->end; at += CHUNK_ALIGN) {
		uint64_t to = at;
		uint32_t i = 0;

		for (; i < CHAIN && to && to < s->piece->end; i++)
			to = advance(s, to, false);
		if (to && (i == CHAIN || to == s->piece->end))
			return at;
	}
	return s->piece->end;
}

/* ---- all of it ---- */

static void walk_once(struct step *s, bool last)
{
	const struct heap_piece *p = s->piece;
	uint64_t at = p->first;

	if (p->first > p->start)
		say(s, p->start, p->first, ARENAS_OWN);
	while (at < p->end) {
		uint64_t to = advance(s, at, true);

		if (!to) {
			s->lost = true;
			if (!last)
				return;
			to = find_way(s, at);
			say(s, at, to, ARENAS_UNSEEN);
		}
		at = to;
	}
}

static void keep(struct step *s)
{
	struct arena *a = &s->w->ret->list.data[s->piece->arena];

	for (size_t i = 0; i < ARENAS_STATES; i++) {
		a->states[i].bytes += s->sums.states[i].bytes;
		a->states[i].count += s->sums.states[i].count;
	}
	for (size_t i = 0; i < ARENAS_CLASSES; i++) {
		s->w->ret->used_classes[i].bytes += s->used_classes[i].bytes;
		s->w->ret->used_classes[i].count += s->used_classes[i].count;
		s->w->ret->free_classes[i].bytes += s->free_classes[i].bytes;
		s->w->ret->free_classes[i].count += s->free_classes[i].count;
	}
	if (s->sums.largest_free > a->largest_free)
		a->largest_free = s->sums.largest_free;
	a->trim_bytes += s->sums.trim_bytes;
	a->heaps++;
	a->moved |= s->lost;
}

/* The main heap grows and shrinks at its end, while it is walked. */
static struct heap_piece as_it_is_now(struct walk *w, const struct heap_piece *piece)
{
	struct heap_piece p = *piece;
	uint64_t top = walk_word(w, w->ret->list.data[p.arena].address + ARENA_TOP_AT(&w->layout)), bytes;

	if (p.top < p.start || p.top >= p.end || top < p.first)
		return p;
	bytes = walk_word(w, top + 8) & ~(uint64_t)CHUNK_FLAGS;
	if (bytes >= CHUNK_LEAST && walk_in_memory(w, top) && walk_in_memory(w, top + bytes - 1) && top + bytes > top) {
		p.top = top;
		p.end = top + bytes;
	}
	return p;
}

void walk_heap(struct walk *w, const struct heap_piece *piece)
{
	size_t first_cache = w->caches.len;

	for (uint32_t i = 1; i <= MOST_WALKS; i++) {
		struct step s = {.w = w, .sums = {.main = w->ret->list.data[piece->arena].main}};
		struct heap_piece now;
		bool last = i == MOST_WALKS;

		walk_forget(w);
		now = as_it_is_now(w, piece);
		s.piece = &now;
		w->caches.len = first_cache;
		w->ops->begin(w->ctx, now.start, now.end);
		walk_once(&s, last);
		w->ret->walks++;
		w->ops->end(w->ctx, last || !s.lost);
		if (!last && s.lost)
			continue;
		keep(&s);
		if (vec_push(&w->heaps, (struct arenas_range){now.start, now.end}))
			w->failed = true;
		return;
	}
}
