/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/ring.h"

#include "heap/preload/clock.h"

/* Whoever loses so many races for the list of free chunks takes a new one. */
#define TAKE_TRIES 64

static uint32_t take_free(struct share_header *h)
{
	uint64_t list = __atomic_load_n(&h->free_chunks, __ATOMIC_ACQUIRE), rest;
	uint32_t first;

	for (int i = 0; i < TAKE_TRIES; i++) {
		first = (uint32_t)list;
		if (!first || first >= SHARE_CHUNKS)
			return 0;
		/* Somebody else may have taken it and written on: then the upper half has changed. */
		rest = __atomic_load_n(&chunk_at(first)->next, __ATOMIC_RELAXED);
		rest |= ((list >> 32) + 1) << 32;
		if (__atomic_compare_exchange_n(&h->free_chunks, &list, rest, true, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			return first;
	}
	return 0;
}

static uint32_t take_new(struct share_header *h)
{
	uint32_t limit = __atomic_load_n(&h->chunk_limit, __ATOMIC_RELAXED);
	uint32_t count = __atomic_load_n(&h->chunk_count, __ATOMIC_RELAXED);

	if (limit > SHARE_CHUNKS - 1)
		limit = SHARE_CHUNKS - 1;
	do {
		if (count >= limit)
			return 0;
	} while (!__atomic_compare_exchange_n(&h->chunk_count, &count, count + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return count + 1;
}

uint32_t chunk_take(void)
{
	struct share_header *h = preload.memory.header;
	uint32_t index = take_free(h);

	if (!index)
		index = take_new(h);
	if (index) {
		chunk_at(index)->used = 0;
		chunk_at(index)->next = 0;
	}
	return index;
}

/* A ring is full, and the chunk that it leaves behind will be given back, as those of others are, if anybody reads them.
 * Whoever is late here by a race looks again with the next chunk. */
static void look_for_reader(struct share_header *h)
{
	uint64_t list = __atomic_load_n(&h->free_chunks, __ATOMIC_RELAXED);
	uint64_t since = __atomic_load_n(&preload.idle_since_ns, __ATOMIC_RELAXED), now = clock_ns(CLOCK_MONOTONIC);

	if (list != __atomic_load_n(&preload.idle_list, __ATOMIC_RELAXED) || !since) {
		__atomic_store_n(&preload.idle_since_ns, now, __ATOMIC_RELAXED);
		__atomic_store_n(&preload.idle_list, list, __ATOMIC_RELAXED);
	} else if (now > since && now - since > SHARE_GIVE_UP_MS * 1000000ull) {
		preload_give_up();
	}
}

uint64_t *ring_grow(struct thread *t, uint32_t bytes)
{
	struct share_ring *ring;
	uint32_t index;

	if (!t->chunk && !thread_claim(t))
		return NULL;
	if (t->used + bytes > SHARE_CHUNK_ROOM) {
		look_for_reader(preload.memory.header);
		ring = &preload.rings[t->ring - 1];
		index = chunk_take();
		if (!index) {
			preload_lost(SHARE_LOST_CHUNK);
			return NULL;
		}
		__atomic_store_n(&t->chunk->next, index, __ATOMIC_RELEASE);
		__atomic_store_n(&ring->last, index, __ATOMIC_RELEASE);
		t->chunk = chunk_at(index);
		t->used = 0;
	}
	return (uint64_t *)(void *)((uint8_t *)(t->chunk + 1) + t->used);
}
