/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The live blocks of a process, by address: a hash table with open addressing whose slots are in the order of their hashes, so that
 * making it larger reads and writes memory in one direction. 32 bytes a block; up to half of the slots of a small table are in
 * use, and three quarters of a large one. 100 million blocks take 4.3 GB.
 *
 * Addresses are the target's choice: the hash has a seed, so that it cannot choose blocks that get into each other's way.
 */
#ifndef SONDE_HEAP_LIVE_H
#define SONDE_HEAP_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LIVE_SIZE_BITS 48 /* larger ones are cut */

struct live_block {
	uint64_t address; /* 0: an empty slot */
	uint64_t time_ns;
	uint64_t size : LIVE_SIZE_BITS;
	uint64_t rate : 64 - LIVE_SIZE_BITS; /* a number of the model's */
	uint32_t site, tid;
};

struct live {
	struct live_block *slots;
	size_t slot_count; /* a power of two, or 0 */
	unsigned shift;    /* of hashes, to slots */
	size_t count;
	uint64_t seed;
};

static inline size_t live_home(const struct live *l, uint64_t address)
{
	unsigned __int128 wide = (unsigned __int128)(address ^ l->seed) * 0x9e3779b97f4a7c15u;

	return ((uint64_t)wide ^ (uint64_t)(wide >> 64)) >> l->shift;
}

static inline void live_prefetch(const struct live *l, uint64_t address)
{
	if (l->slot_count) {
		const char *home = (const char *)&l->slots[live_home(l, address)];

		__builtin_prefetch(home, 1);
		__builtin_prefetch(home + 64, 1);
	}
}

/* NULL: none. Valid until the table changes. */
static inline struct live_block *live_find(const struct live *l, uint64_t address)
{
	if (!l->slot_count)
		return NULL;
	for (size_t i = live_home(l, address); l->slots[i].address; i = (i + 1) & (l->slot_count - 1))
		if (l->slots[i].address == address)
			return &l->slots[i];
	return NULL;
}

/* Room for one more. 0 or -ENOMEM. */
int live_reserve(struct live *l);

/* The slot of an address, or the free one that it gets; after live_reserve(). */
static inline struct live_block *live_place(struct live *l, uint64_t address)
{
	size_t i = live_home(l, address);

	while (l->slots[i].address && l->slots[i].address != address)
		i = (i + 1) & (l->slot_count - 1);
	return &l->slots[i];
}

/* A block that is not there yet, its address not 0; after live_reserve(). */
static inline void live_add(struct live *l, const struct live_block *block)
{
	*live_place(l, block->address) = *block;
	l->count++;
}

/* As live_find(), when it is not far from where it should be. */
static inline struct live_block *live_find_near(const struct live *l, uint64_t address)
{
	size_t i = l->slot_count ? live_home(l, address) : 0, next = (i + 1) & (l->slot_count - 1);

	if (!l->slot_count)
		return NULL;
	if (l->slots[i].address == address)
		return &l->slots[i];
	return l->slots[next].address == address ? &l->slots[next] : NULL;
}

/* One that live_find() gave. */
void live_remove(struct live *l, struct live_block *block);

/* Gives memory back when much of it is not in use. */
void live_fit(struct live *l);

static inline size_t live_bytes(const struct live *l)
{
	return l->slot_count * sizeof(*l->slots);
}

void live_release(struct live *l);

_Static_assert(sizeof(struct live_block) == 32, "said so");

#endif
