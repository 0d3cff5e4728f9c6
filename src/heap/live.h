/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The live blocks of a process, by address: a hash table with open addressing whose slots are in the order of their hashes, so that
 * making it larger reads and writes memory in one direction. 32 bytes a block; from a quarter to three quarters of the
 * slots are in use. 100 million blocks take 4.3 GB.
 *
 * Addresses are the target's choice: the hash has a seed, so that it cannot choose blocks that get into each other's way.
 */
#ifndef SONDE_HEAP_LIVE_H
#define SONDE_HEAP_LIVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/hash.h"

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
	return hash_u64(address ^ l->seed) >> l->shift;
}

static inline void live_prefetch(const struct live *l, uint64_t address)
{
	if (l->slot_count)
		__builtin_prefetch(&l->slots[live_home(l, address)], 1);
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

/* A block that is not there yet, its address not 0; after live_reserve(). */
static inline void live_add(struct live *l, const struct live_block *block)
{
	size_t i = live_home(l, block->address);

	while (l->slots[i].address)
		i = (i + 1) & (l->slot_count - 1);
	l->slots[i] = *block;
	l->count++;
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
