/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files of arenas.h, and the layouts. These are facts of glibc's malloc/malloc.c and malloc/arena.c:
 *
 *	struct malloc_state	mutex, flags (8 bytes); 2.27 to 2.42 have_fastchunks as well (16)
 *		then		fastbinsY[10] up to 2.42, top, last_remainder, bins[254], binmap (16 bytes), next, next_free,
 *				attached_threads (since 2.23), system_mem, max_system_mem
 *	struct _heap_info	ar_ptr, prev, size, mprotect_size; since 2.35 pagesize, padded to 48 bytes
 *	struct malloc_chunk	prev_size, size with three flags; of free ones fd, bk
 *	tcache_perthread_struct	2.26 to 2.29: 64 counts of 1 byte, 64 links; from 2.30 on counts of 2 bytes; from 2.42
 *				on 76 of each, and instead of what is in a list, what is not yet
 *	struct malloc_par	parameters[] in arenas_find.c
 */
#ifndef SONDE_HEAP_ARENAS_PRIV_H
#define SONDE_HEAP_ARENAS_PRIV_H

#include "heap/arenas.h"

#define CHUNK_HEADER 16u
#define CHUNK_LEAST 32u
#define CHUNK_ALIGN 16u
#define CHUNK_PREV_IN_USE 1u
#define CHUNK_MAPPED 2u
#define CHUNK_NOT_MAIN 4u
#define CHUNK_FLAGS 7u
#define FREE_CHUNK_HEAD 48u  /* of a free block: sizes and links, which malloc_trim() keeps */

#define MOST_FAST_BINS 10u
#define BINS 127u
#define ARENA_FAST_AT(l) ((l)->header)
#define ARENA_TOP_AT(l) ((l)->header + 8 * (l)->fast_bins)
#define ARENA_BINS_AT(l) (ARENA_TOP_AT(l) + 16)
#define ARENA_BINMAP_AT(l) (ARENA_BINS_AT(l) + 16 * BINS)
#define ARENA_NEXT_AT(l) (ARENA_BINMAP_AT(l) + 16)
#define ARENA_THREADS_AT(l) (ARENA_NEXT_AT(l) + 16)
#define ARENA_SYSTEM_AT(l) (ARENA_THREADS_AT(l) + ((l)->threads ? 8 : 0))
#define ARENA_BYTES(l) (ARENA_SYSTEM_AT(l) + 16)
#define ARENA_MOST_BYTES 2200u

#define MOST_ARENAS 65536u
#define MOST_HEAPS 65536u

struct arenas_layout {
	uint32_t header;  /* what stands before fastbinsY */
	uint32_t fast_bins;
	bool threads;     /* there is attached_threads */
};

enum linking {
	LINKS_UNKNOWN,
	LINKS_PLAIN,
	LINKS_MASKED, /* by where they stand */
};

struct cache_layout {
	uint32_t block_bytes, bins, count_bytes;
	bool missing; /* counts are of what is missing to a full list */
};
#define CACHE_LAYOUTS 3u
#define CACHE_MOST_BINS 76u
extern const struct cache_layout cache_layouts[CACHE_LAYOUTS];

/* A tcache_perthread_struct, perhaps. */
struct cache_candidate {
	uint64_t address; /* of the block's memory */
	uint32_t layout;
	uint32_t arena;
};

#define WALK_PAGE_BYTES 4096u
#define WALK_PAGES 512u

struct walk_page {
	uint64_t start;
	size_t len; /* 0: nothing is known of it */
	uint8_t bytes[WALK_PAGE_BYTES];
};

struct walk {
	const struct arenas_places *places;
	const struct arenas_ops *ops;
	void *ctx;
	struct arenas *ret;
	struct arenas_layout layout;
	enum linking links;
	uint64_t main;            /* address of the main arena */
	uint64_t first;           /* where the first heap begins; 0: not known */
	VEC(struct cache_candidate) caches;
	VEC(struct arenas_range) heaps; /* that were walked */
	uint8_t *window;          /* bytes that were read last */
	uint64_t window_start;
	size_t window_len;
	struct walk_page *pages;  /* by address, what was read there last */
	bool failed;              /* out of memory */
};

/* ---- reading (arenas.c) ---- */

bool walk_read(struct walk *w, uint64_t address, void *buf, size_t len);
uint64_t walk_word(struct walk *w, uint64_t address); /* 0 where there is none */
bool walk_in_memory(const struct walk *w, uint64_t address); /* may be a heap's */

/* A header through the window, which one walk over a heap reads at most once. */
struct chunk {
	uint64_t prev_size, size; /* size with its flags */
};
bool walk_chunk(struct walk *w, uint64_t address, struct chunk *ret);
void walk_forget(struct walk *w);

static inline uint64_t chunk_bytes(const struct chunk *c)
{
	return c->size & ~(uint64_t)CHUNK_FLAGS;
}

/* ---- finding (arenas_find.c) ---- */

/* The main arena, the layout, the parameters. */
bool walk_find(struct walk *w);

/* ---- one heap (arenas_heap.c) ---- */

/* Walks [start, end), whose last block begins at `top` where that is in it. Sums are added to the arena. */
struct heap_piece {
	uint64_t start, first, end, top;
	uint32_t arena; /* index */
};
void walk_heap(struct walk *w, const struct heap_piece *piece);

/* ---- lists (arenas_lists.c) ---- */

void walk_fast_bins(struct walk *w, uint32_t arena);
void walk_unsorted(struct walk *w, uint32_t arena);
void walk_thread_caches(struct walk *w);

/* ---- large blocks (arenas_mapped.c) ---- */

void walk_mapped(struct walk *w);

static inline uint32_t size_class(uint64_t size)
{
	uint32_t n = size ? 63u - (uint32_t)__builtin_clzll(size) : 0;

	return n < ARENAS_CLASSES ? n : ARENAS_CLASSES - 1;
}

#endif
