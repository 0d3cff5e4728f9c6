/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The heaps of glibc's malloc (2.17 to 2.43, 64 bit), as they are seen from outside: found by their structure, without symbols,
 * and walked block by block. docs/heuristics/arenas.md says how they are found and what of them is believed.
 *
 * Nothing is stopped and nothing asked but memory, by a function of the caller's: a running process, a core file and a made up
 * one look alike. What is there is not believed: every link is checked, every loop has a bound. A program that runs on changes
 * what is being read; a walk that loses its way begins again some times, and the last one goes on behind what
 * it could not read and says how much that was.
 *
 * Of a program that stands still the numbers are those of mallinfo2(3) to the byte: used + thread caches + bookkeeping are uordblks,
 * free + fast + top are fordblks, mapped is hblkhd.
 */
#ifndef SONDE_HEAP_ARENAS_H
#define SONDE_HEAP_ARENAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/vec.h"

enum arenas_state {
	ARENAS_USED,   /* the program holds it */
	ARENAS_CACHED, /* in the cache of a thread (tcache) */
	ARENAS_FAST,   /* freed, and not merged with its neighbours yet (fastbins) */
	ARENAS_FREE,   /* in a bin */
	ARENAS_TOP,    /* the end of a heap, not cut into blocks yet */
	ARENAS_OWN,    /* what the allocator keeps of itself */
	ARENAS_UNSEEN, /* where the walk lost its way */
	ARENAS_STATES
};

struct arenas_range {
	uint64_t start, end;
};

/* Where to look. */
struct arenas_places {
	const struct arenas_range *data;   /* variables of programs and libraries; the arena that is found first is it */
	size_t data_count;
	const struct arenas_range *memory; /* writable private memory of no file and of no stack, ascending; may hold heaps */
	size_t memory_count;
	struct arenas_range brk;           /* of brk(2); start == end: none */
	uint64_t page_bytes;
};

struct arenas_ops {
	/* How many bytes there are from `address` on, at most `len`. */
	size_t (*read)(void *ctx, uint64_t address, void *buf, size_t len);
	/* The first address from `address` on that may hold anything but zeros; UINT64_MAX: none. */
	uint64_t (*next)(void *ctx, uint64_t address);
	/* Of these bytes, those that are in memory. */
	uint64_t (*resident)(void *ctx, uint64_t start, uint64_t end);
	/* One walk over [start, end) begins: what is known of its pages is of the past. */
	void (*begin)(void *ctx, uint64_t start, uint64_t end);
	/* What is in it, in ascending order without holes; afterwards, parts that are something else than said. */
	void (*part)(void *ctx, uint64_t start, uint64_t end, enum arenas_state state);
	void (*move)(void *ctx, uint64_t start, uint64_t end, enum arenas_state from, enum arenas_state to);
	/* It is over; unless `keep`, what it has said is void. move() may come later as well. */
	void (*end)(void *ctx, bool keep);
	/* A large block in a mapping of its own, with what belongs to it. */
	void (*mapped)(void *ctx, uint64_t start, uint64_t end);
};

struct arenas_sum {
	uint64_t bytes, count;
};

#define ARENAS_CLASSES 48u /* sizes from 2^n up to 2^(n+1) */

struct arena {
	uint64_t address;
	bool main;
	uint64_t heaps;            /* pieces of memory */
	uint64_t threads;          /* that use it; 0 before 2.23, where it does not say */
	uint64_t system_bytes;     /* as it says itself */
	struct arenas_sum states[ARENAS_STATES];
	uint64_t unsorted_bytes;   /* of FREE: not in a bin of its size yet */
	uint64_t largest_free;     /* of FREE and TOP */
	uint64_t trim_bytes;       /* in memory, and malloc_trim(3) would give it back */
	bool moved;                /* it changed in each walk */
};

struct arenas {
	VEC(struct arena) list;    /* the main one first */
	struct arenas_sum states[ARENAS_STATES];       /* of all */
	struct arenas_sum used_classes[ARENAS_CLASSES], free_classes[ARENAS_CLASSES];
	struct arenas_sum mapped;          /* large blocks: as found */
	struct arenas_sum mapped_said;     /* as the allocator counts them; 0, 0 where its parameters were not found */
	uint64_t thread_caches;            /* that hold anything */
	uint64_t trim_bytes, largest_free, unsorted_bytes;
	/* mallopt(3); 0: not known */
	uint64_t trim_threshold, mmap_threshold;
	bool parameters;                   /* they were found */
	bool safe_linking;                 /* links are masked: 2.32 and later */
	uint64_t first;                    /* where the main arena's first block is, 0: not known */
	uint64_t walks;                    /* with those that were thrown away */
};

/* -ENOENT: there is no such allocator, or it was never asked for memory. -ENOMEM. */
int arenas_walk(const struct arenas_places *places, const struct arenas_ops *ops, void *ctx,
	struct arenas *ret, struct err *err);
void arenas_release(struct arenas *a);

#endif
