/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Blocks that were freed and still look as if they were in use: in fastbins, and in the caches of threads. They are
 * in lists; since 2.32 a link is masked with the address where it stands (safe-linking).
 */
#include <string.h>

#include "heap/arenas_priv.h"

#define MASK_SHIFT 12u
#define MOST_UNSORTED 100000u
#define CACHE_MOST_BYTES (CACHE_MOST_BINS * (2 + 8))

const struct cache_layout cache_layouts[CACHE_LAYOUTS] = {
	{0x250, 64, 1, false},
	{0x290, 64, 2, false},
	{0x300, 76, 2, true},
};

/* Of a link that may be masked: both readings, as the first that could be told shows. */
static uint64_t follow(const struct walk *w, uint64_t stands_at, uint64_t link)
{
	return w->links == LINKS_MASKED ? link ^ stands_at >> MASK_SHIFT : link;
}

static bool is_block(struct walk *w, uint64_t chunk, uint64_t bytes)
{
	struct chunk c;

	return chunk && !(chunk % CHUNK_ALIGN) && walk_in_memory(w, chunk) && walk_read(w, chunk, &c, sizeof(c)) &&
		chunk_bytes(&c) == bytes;
}

/* Which of the two it is, by a link to a block of `bytes` bytes whose links point `offset` into the block; or by the last link. */
static void learn_links(struct walk *w, uint64_t stands_at, uint64_t link, uint64_t bytes, uint64_t offset)
{
	uint64_t masked = link ^ stands_at >> MASK_SHIFT;

	if (w->links != LINKS_UNKNOWN)
		return;
	if (!link || is_block(w, link - offset, bytes))
		w->links = LINKS_PLAIN;
	else if (!masked || is_block(w, masked - offset, bytes))
		w->links = LINKS_MASKED;
}

/* ---- sums ---- */

static bool in_heap(const struct walk *w, uint64_t start, uint64_t bytes)
{
	vec_each(&w->heaps, h)
		if (start >= h->start && start < h->end)
			return bytes <= h->end - start;
	return false;
}

static void take_off(struct arenas_sum *sum, uint64_t bytes)
{
	sum->bytes -= bytes < sum->bytes ? bytes : sum->bytes;
	sum->count -= sum->count > 0;
}

static void move(struct walk *w, uint32_t arena, uint64_t chunk, uint64_t bytes, enum arenas_state to)
{
	struct arena *a = &w->ret->list.data[arena];

	if (!in_heap(w, chunk, bytes))
		return;
	take_off(&a->states[ARENAS_USED], bytes);
	a->states[to].bytes += bytes;
	a->states[to].count++;
	take_off(&w->ret->used_classes[size_class(bytes)], bytes);
	w->ops->move(w->ctx, chunk, chunk + bytes, ARENAS_USED, to);
}

/* ---- fastbins ---- */

static void walk_fast_bin(struct walk *w, uint32_t arena, uint64_t chunk, uint64_t bytes)
{
	struct arena *a = &w->ret->list.data[arena];
	uint64_t left = a->system_bytes / CHUNK_LEAST;

	while (chunk && left-- && is_block(w, chunk, bytes)) {
		uint64_t link = walk_word(w, chunk + CHUNK_HEADER);

		learn_links(w, chunk + CHUNK_HEADER, link, bytes, 0);
		move(w, arena, chunk, bytes, ARENAS_FAST);
		chunk = follow(w, chunk + CHUNK_HEADER, link);
	}
}

void walk_fast_bins(struct walk *w, uint32_t arena)
{
	uint64_t at = w->ret->list.data[arena].address + ARENA_FAST_AT(&w->layout);

	for (uint32_t i = 0; i < w->layout.fast_bins; i++)
		walk_fast_bin(w, arena, walk_word(w, at + 8 * i), CHUNK_LEAST + CHUNK_ALIGN * i);
}

/* ---- bin 1 ---- */

void walk_unsorted(struct walk *w, uint32_t arena)
{
	struct arena *a = &w->ret->list.data[arena];
	uint64_t bin = a->address + ARENA_BINS_AT(&w->layout) - CHUNK_HEADER, at = walk_word(w, bin + CHUNK_HEADER);

	for (uint32_t i = 0; i < MOST_UNSORTED && at && at != bin && walk_in_memory(w, at); i++) {
		struct chunk c;

		if (!walk_read(w, at, &c, sizeof(c)) || a->unsorted_bytes + chunk_bytes(&c) > a->states[ARENAS_FREE].bytes)
			return;
		a->unsorted_bytes += chunk_bytes(&c);
		at = walk_word(w, at + CHUNK_HEADER);
	}
}

/* ---- caches of threads ---- */

/* A list of `count` blocks; whether it is one. With `take` they are moved. */
static bool walk_cache_list(struct walk *w, uint32_t arena, uint64_t memory, uint64_t bytes, uint32_t count, bool take)
{
	for (; count; count--) {
		uint64_t chunk = memory - CHUNK_HEADER, link;

		if (memory < CHUNK_HEADER || !is_block(w, chunk, bytes))
			return false;
		link = walk_word(w, memory);
		if (count > 1 || link)
			learn_links(w, memory, link, bytes, CHUNK_HEADER);
		if (take)
			move(w, arena, chunk, bytes, ARENAS_CACHED);
		memory = follow(w, memory, link);
	}
	/* Of a program that runs, the list may have become longer. */
	return true;
}

/* Of counts of what is missing: a list that is empty misses all. */
static void turn_round(uint32_t *counts, uint32_t bins)
{
	uint32_t most = 0;

	for (uint32_t i = 0; i < bins; i++)
		most = counts[i] > most ? counts[i] : most;
	for (uint32_t i = 0; i < bins; i++)
		counts[i] = most - counts[i];
}

/* What a block of that size holds, if it is a cache: the number and the first block of each list. */
static bool read_cache(struct walk *w, const struct cache_candidate *c, uint32_t counts[CACHE_MOST_BINS],
	uint64_t first[CACHE_MOST_BINS])
{
	const struct cache_layout *l = &cache_layouts[c->layout];
	uint8_t bytes[CACHE_MOST_BYTES];
	uint64_t all = 0;

	if (!walk_read(w, c->address, bytes, l->bins * (l->count_bytes + 8)))
		return false;
	for (size_t i = 0; i < l->bins; i++) {
		counts[i] = l->count_bytes == 2 ? (uint32_t)bytes[2 * i] | (uint32_t)bytes[2 * i + 1] << 8 : bytes[i];
		memcpy(&first[i], bytes + l->bins * l->count_bytes + 8 * i, sizeof(first[i]));
	}
	if (l->missing)
		turn_round(counts, l->bins);
	for (size_t i = 0; i < l->bins; i++) {
		if (!counts[i] != !first[i] || first[i] % CHUNK_ALIGN)
			return false;
		all += counts[i];
	}
	return all != 0;
}

static void walk_cache(struct walk *w, const struct cache_candidate *c)
{
	const struct cache_layout *l = &cache_layouts[c->layout];
	uint32_t counts[CACHE_MOST_BINS];
	uint64_t first[CACHE_MOST_BINS];

	if (!read_cache(w, c, counts, first))
		return;
	for (uint32_t i = 0; i < l->bins; i++)
		if (counts[i] && !walk_cache_list(w, c->arena, first[i], CHUNK_LEAST + CHUNK_ALIGN * i, counts[i], false))
			return;
	for (uint32_t i = 0; i < l->bins; i++)
		if (counts[i])
			walk_cache_list(w, c->arena, first[i], CHUNK_LEAST + CHUNK_ALIGN * i, counts[i], true);
	move(w, c->arena, c->address - CHUNK_HEADER, l->block_bytes, ARENAS_OWN);
	w->ret->thread_caches++;
}

void walk_thread_caches(struct walk *w)
{
	vec_each(&w->caches, c)
		walk_cache(w, c);
	w->ret->safe_linking = w->links == LINKS_MASKED;
}
