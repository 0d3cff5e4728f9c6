/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Live blocks that need all their fields (heap/live.h), by address: a hash table with open addressing whose slots are in the order of
 * their hashes, so that making it larger reads and writes memory in one direction. 32 bytes a block; up to half of the slots of a
 * small table are in use, and three quarters of a large one.
 *
 * Addresses are the target's choice: the hash has a seed, so that it cannot choose blocks that get into each other's way.
 */
#ifndef SONDE_HEAP_LIVE_WIDE_H
#define SONDE_HEAP_LIVE_WIDE_H

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

struct live_wide {
	struct live_block *slots;
	size_t slot_count; /* a power of two, or 0 */
	unsigned shift;    /* of hashes, to slots */
	size_t count;
	uint64_t seed;
};

static inline size_t wide_home(const struct live_wide *l, uint64_t address)
{
	unsigned __int128 wide = (unsigned __int128)(address ^ l->seed) * 0x9e3779b97f4a7c15u;

	return ((uint64_t)wide ^ (uint64_t)(wide >> 64)) >> l->shift;
}

static inline void wide_prefetch(const struct live_wide *l, uint64_t address)
{
	if (l->slot_count) {
		const char *home = (const char *)&l->slots[wide_home(l, address)];

		__builtin_prefetch(home, 1);
		__builtin_prefetch(home + 64, 1);
	}
}

/* NULL: none. Valid until the table changes. */
static inline struct live_block *wide_find(const struct live_wide *l, uint64_t address)
{
	if (!l->slot_count)
		return NULL;
	for (size_t i = wide_home(l, address); l->slots[i].address; i = (i + 1) & (l->slot_count - 1))
		if (l->slots[i].address == address)
			return &l->slots[i];
	return NULL;
}

/* Room for one more. 0 or -ENOMEM. */
int wide_reserve(struct live_wide *l);

/* The slot of an address, or the free one that it gets; after wide_reserve(). */
static inline struct live_block *wide_place(struct live_wide *l, uint64_t address)
{
	size_t i = wide_home(l, address);

	while (l->slots[i].address && l->slots[i].address != address)
		i = (i + 1) & (l->slot_count - 1);
	return &l->slots[i];
}

/* A block that is not there yet, its address not 0; after wide_reserve(). */
static inline void wide_add(struct live_wide *l, const struct live_block *block)
{
	*wide_place(l, block->address) = *block;
	l->count++;
}

/* One that wide_find() gave. */
void wide_remove(struct live_wide *l, struct live_block *block);

/* Gives memory back when much of it is not in use. */
void wide_fit(struct live_wide *l);

static inline size_t wide_bytes(const struct live_wide *l)
{
	return l->slot_count * sizeof(*l->slots);
}

void wide_release(struct live_wide *l);

_Static_assert(sizeof(struct live_block) == 32, "said so");

#endif
