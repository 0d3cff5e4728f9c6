/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The live blocks of a process, by address. Nearly all take 16 bytes: a site says who allocated them, sizes are below 16 MiB, and of
 * the time 64 ns are as good as one. Those for which that is not enough, and those that were sampled, are `wide` (heap/live_wide.h).
 *
 * The table is LIVE_PARTS small ones, by the hash of the address. In each the blocks are in the order of their hashes, at the
 * place where they belong or soon behind it: looking for one ends where a larger hash is met. A part grows by an eighth,
 * where it is, so that no two tables of a size are ever there at once, and at most four fifths of it are in use: 21 bytes a block.
 *
 * Addresses are the target's choice: the hash has a seed, so that it cannot choose blocks that get into each other's way. Two
 * addresses never have the same hash, which therefore stands for the address.
 */
#ifndef SONDE_HEAP_LIVE_H
#define SONDE_HEAP_LIVE_H

#include "heap/live_wide.h"

#define LIVE_PARTS 64u
#define LIVE_TICK_BITS 6 /* of times: 64 ns */

#define LIVE_HASH_BITS 48
#define LIVE_HASH_MOST ((1ull << LIVE_HASH_BITS) - 1)
#define LIVE_NARROW_SIZE_BITS 24
#define LIVE_NARROW_SITE_BITS 20

/* live_block.tid of blocks that were put as the site's. */
#define LIVE_TID_OF_SITE UINT32_MAX

struct live_slot {
	uint64_t key;   /* hash, then the lower 16 bits of the size; UINT64_MAX: nothing */
	uint64_t value; /* site, time, upper 8 bits of the size */
};

struct live_part {
	struct live_slot *slots;
	uint32_t homes; /* places that hashes lead to */
	uint32_t room;  /* slots: a few more, and the last one always has nothing */
	uint32_t count, most; /* with `most` it grows */
};

struct live {
	struct live_part parts[LIVE_PARTS];
	uint64_t seed;            /* set before the first block is put */
	uint64_t began_ns, base_ns; /* of times, see live.c */
	size_t count;             /* of all, wide ones too */
	size_t bytes;             /* of `parts`' slots */
	struct live_wide wide;
};

#define LIVE_FACTOR 0x9e3779b97f4a7c15u

static inline uint64_t live_factor(const struct live *l)
{
	return l->seed >> 8 | 1;
}

/* A permutation of the 48-bit addresses: factors are odd, and the shift is half of the bits, so that each step can be undone. */
static inline uint64_t live_hash(const struct live *l, uint64_t address)
{
	uint64_t h = (address ^ l->seed) & LIVE_HASH_MOST;

	h = h * live_factor(l) & LIVE_HASH_MOST;
	h ^= h >> 24;
	return h * LIVE_FACTOR & LIVE_HASH_MOST;
}

static inline const struct live_part *live_part_of(const struct live *l, uint64_t hash)
{
	return &l->parts[hash / ((LIVE_HASH_MOST + 1) / LIVE_PARTS)];
}

/* Never falls with rising hashes of a part. */
static inline uint32_t live_home(const struct live_part *p, uint64_t hash)
{
	return (uint32_t)((hash >> 10 & UINT32_MAX) * p->homes >> 32);
}

static inline void live_prefetch(const struct live *l, uint64_t address)
{
	uint64_t hash = live_hash(l, address);
	const struct live_part *p = live_part_of(l, hash);

	if (p->homes) {
		const char *home = (const char *)&p->slots[live_home(p, hash)];

		__builtin_prefetch(home, 1);
		__builtin_prefetch(home + 64, 1);
	} else {
		wide_prefetch(&l->wide, address);
	}
}

/* The first slot that is not before a hash; the part has homes. */
static inline struct live_slot *live_reach(const struct live_part *p, uint64_t hash)
{
	struct live_slot *s = &p->slots[live_home(p, hash)];

	while (s->key < hash << 16)
		s++;
	return s;
}

static inline bool live_is(const struct live_slot *s, uint64_t hash)
{
	return s->key >> 16 == hash && s->key != UINT64_MAX;
}

/* The slot of a hash; NULL: it has none. */
static inline struct live_slot *live_slot_of(const struct live_part *p, uint64_t hash)
{
	struct live_slot *s = p->homes ? live_reach(p, hash) : NULL;

	return s && live_is(s, hash) ? s : NULL;
}

/* Site of a block that is not wide, for fetching that; UINT32_MAX: none. */
static inline uint32_t live_site(const struct live *l, uint64_t address)
{
	uint64_t hash = live_hash(l, address);
	const struct live_slot *s = live_slot_of(live_part_of(l, hash), hash);

	return s ? (uint32_t)(s->value >> (64 - LIVE_NARROW_SITE_BITS)) : UINT32_MAX;
}

/*
 * Puts a block, its address not 0; with tid LIVE_TID_OF_SITE when it is the site's, so that it may take less room. What was there at its
 * address is in *ret_old, whose address is 0 when there was nothing. -ENOMEM: the block is not there.
 */
int live_put(struct live *l, const struct live_block *block, struct live_block *ret_old);

/* Takes a block out. False: there is none of that address. */
bool live_take(struct live *l, uint64_t address, struct live_block *ret);

bool live_has(const struct live *l, uint64_t address);

/* All blocks, in no order. Start with {0}. */
struct live_walk {
	uint32_t part;
	size_t at;
	uint64_t back[2]; /* factors, that undo those of live_hash() */
};
bool live_next(const struct live *l, struct live_walk *walk, struct live_block *ret);

/* Gives memory back when much of it is not in use. */
void live_fit(struct live *l);

static inline size_t live_bytes(const struct live *l)
{
	return l->bytes + wide_bytes(&l->wide);
}

void live_release(struct live *l);

/* Times as they are kept: differences of such are no further off than the times themselves. */
static inline uint64_t live_time(uint64_t time_ns)
{
	return time_ns >> LIVE_TICK_BITS << LIVE_TICK_BITS;
}

_Static_assert(sizeof(struct live_slot) == 16, "said so");

#endif
