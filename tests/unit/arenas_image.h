/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Heaps of glibc that never were, in the layout of each version: a main arena with its heap, one of a thread with two
 * heaps, caches, fastbins and large blocks; and what is in them.
 */
#ifndef SONDE_TESTS_ARENAS_IMAGE_H
#define SONDE_TESTS_ARENAS_IMAGE_H

#include <stdlib.h>
#include <string.h>

#include "heap/arenas.h"

#define IMAGE_SEGMENTS 5u
#define DATA_AT 0x600000ull
#define DATA_BYTES 0x4000ull
#define BRK_AT 0x1000000ull
#define BRK_BYTES 0x20000ull
#define HEAP_AT 0x7f0004000000ull  /* a multiple of 64 MiB */
#define HEAP_BYTES 0x8000ull
#define HEAP2_AT 0x7f0008000000ull
#define MAPPED_AT 0x7f0100000000ull
#define MAPPED_BYTES 0x10000ull

struct image_version {
	const char *name;
	uint32_t header;      /* of malloc_state, before its fastbins */
	uint32_t fast_bins;
	bool threads;         /* attached_threads */
	uint32_t heap_header; /* sizeof(heap_info) */
	uint32_t cache;       /* bytes of a tcache_perthread_struct, 0: none */
	bool masked;
	uint32_t counts, mapped; /* malloc_par: where n_mmaps and mmapped_mem are */
	bool total;           /* max_total_mem */
};

static const struct image_version image_versions[] = {
	{"2.17", 8, 10, false, 0x20, 0, false, 40, 56, true},
	{"2.23", 8, 10, true, 0x20, 0, false, 40, 56, true},
	{"2.24", 8, 10, true, 0x20, 0, false, 40, 56, false},
	{"2.26", 8, 10, true, 0x20, 576, false, 40, 56, false},
	{"2.27", 16, 10, true, 0x20, 576, false, 40, 56, false},
	{"2.30", 16, 10, true, 0x20, 640, false, 40, 56, false},
	{"2.32", 16, 10, true, 0x20, 640, true, 40, 56, false},
	{"2.35", 16, 10, true, 0x30, 640, true, 60, 80, false},
	{"2.43", 8, 0, true, 0x30, 760, true, 68, 88, false},
};
#define IMAGE_VERSIONS (sizeof(image_versions) / sizeof(image_versions[0]))

struct image {
	const struct image_version *v;
	struct {
		uint64_t start, bytes;
		uint8_t *memory;
	} segments[IMAGE_SEGMENTS];
	uint64_t main, other;
	struct arenas_sum said[ARENAS_STATES]; /* by ops.part and ops.move */
	uint64_t begun, ended, mapped;
	struct arenas_range memory[3], data, brk;
};

/* ---- memory ---- */

static inline uint8_t *image_at(struct image *m, uint64_t address, uint64_t *ret_left)
{
	for (size_t i = 0; i < IMAGE_SEGMENTS; i++)
		if (address >= m->segments[i].start && address - m->segments[i].start < m->segments[i].bytes) {
			*ret_left = m->segments[i].bytes - (address - m->segments[i].start);
			return m->segments[i].memory + (address - m->segments[i].start);
		}
	*ret_left = 0;
	return NULL;
}

static inline void image_put(struct image *m, uint64_t address, uint64_t value)
{
	uint64_t left;
	uint8_t *at = image_at(m, address, &left);

	if (at && left >= sizeof(value))
		memcpy(at, &value, sizeof(value));
}

static inline void image_put32(struct image *m, uint64_t address, uint32_t value)
{
	uint64_t left;
	uint8_t *at = image_at(m, address, &left);

	if (at && left >= sizeof(value))
		memcpy(at, &value, sizeof(value));
}

static inline uint64_t image_get(struct image *m, uint64_t address)
{
	uint64_t left, value = 0;
	uint8_t *at = image_at(m, address, &left);

	if (at && left >= sizeof(value))
		memcpy(&value, at, sizeof(value));
	return value;
}

static inline size_t image_read(void *ctx, uint64_t address, void *buf, size_t len)
{
	uint64_t left;
	uint8_t *at = image_at((struct image *)ctx, address, &left);

	if (!at)
		return 0;
	if (left < len)
		len = left;
	memcpy(buf, at, len);
	return len;
}

/* ---- what the walk tells ---- */

static inline uint64_t image_next(void *ctx, uint64_t address)
{
	(void)ctx;
	return address;
}

static inline uint64_t image_resident(void *ctx, uint64_t start, uint64_t end)
{
	(void)ctx;
	return end - start;
}

static inline void image_begin(void *ctx, uint64_t start, uint64_t end)
{
	(void)start;
	(void)end;
	((struct image *)ctx)->begun++;
}

static inline void image_part(void *ctx, uint64_t start, uint64_t end, enum arenas_state state)
{
	struct image *m = (struct image *)ctx;

	m->said[state].bytes += end - start;
	m->said[state].count++;
}

static inline void image_move(
	void *ctx, uint64_t start, uint64_t end, enum arenas_state from, enum arenas_state to)
{
	struct image *m = (struct image *)ctx;

	m->said[from].bytes -= end - start;
	m->said[from].count--;
	image_part(ctx, start, end, to);
}

static inline void image_end(void *ctx, bool keep)
{
	struct image *m = (struct image *)ctx;

	m->ended += keep;
}

static inline void image_mapped(void *ctx, uint64_t start, uint64_t end)
{
	((struct image *)ctx)->mapped += end - start;
}

static const struct arenas_ops image_ops = {
	.read = image_read,
	.next = image_next,
	.resident = image_resident,
	.begin = image_begin,
	.part = image_part,
	.move = image_move,
	.end = image_end,
	.mapped = image_mapped,
};

/* ---- building ---- */

static inline uint64_t image_link(const struct image *m, uint64_t stands_at, uint64_t to)
{
	return m->v->masked ? to ^ stands_at >> 12 : to;
}

static inline uint64_t image_top_at(const struct image_version *v)
{
	return v->header + 8 * v->fast_bins;
}

/* As a block. */
static inline uint64_t image_cache_bytes(const struct image_version *v)
{
	return v->cache ? (v->cache + 8 + 15) & ~15ull : 0;
}

static inline uint64_t image_arena_end(const struct image *m)
{
	return image_top_at(m->v) + 16 + 2032 + 16 + 16 + (m->v->threads ? 8 : 0) + 16;
}

static inline void image_arena(struct image *m, uint64_t a, uint64_t next, uint64_t top, uint64_t system)
{
	uint64_t at = a + image_top_at(m->v);

	image_put(m, at, top);
	at += 16;
	for (uint32_t i = 0; i < 127; i++, at += 16) {
		image_put(m, at, at - 16);
		image_put(m, at + 8, at - 16);
	}
	at += 16;
	image_put(m, at, next);
	at += 16;
	if (m->v->threads) {
		image_put(m, at, 1);
		at += 8;
	}
	image_put(m, at, system);
	image_put(m, at + 8, system);
}

/* A block, and in the next one's header whether it is in use. Returns where the next one is. */
static inline uint64_t image_chunk(struct image *m, uint64_t at, uint64_t bytes, bool in_use, bool other)
{
	image_put(m, at + 8, (image_get(m, at + 8) & 1) | bytes | (other && in_use ? 4 : 0));
	image_put(m, at + bytes + 8, in_use ? 1 : 0);
	if (!in_use)
		image_put(m, at + bytes, bytes);
	return at + bytes;
}

/* The only block in that bin (1: unsorted). */
static inline void image_bin(struct image *m, uint64_t arena, uint32_t bin, uint64_t chunk)
{
	uint64_t bins = arena + image_top_at(m->v) + 16, at = bins + (bin - 1) * 16, map = bins + 127 * 16 + bin / 32 * 4;

	image_put(m, chunk + 16, at - 16);
	image_put(m, chunk + 24, at - 16);
	image_put(m, at, chunk);
	image_put(m, at + 8, chunk);
	if (bin > 1)
		image_put32(m, map, (uint32_t)image_get(m, map) | 1u << bin % 32);
}

/* A cache with `count` blocks of 0x30 bytes, the first of which is at `chunk`, each 0x30 behind the other. */
static inline void image_cache(struct image *m, uint64_t cache, uint64_t chunk, uint32_t count)
{
	uint64_t memory = cache + 16, bins = m->v->cache == 760 ? 76 : 64, first = memory + (m->v->cache - bins * 8);

	/* Of 16 there may be in each list, as many are missing. */
	for (uint64_t i = 0; i < 76 && m->v->cache == 760; i += 4)
		image_put(m, memory + 2 * i, 0x0010001000100010ull - (i ? 0 : (uint64_t)count << 16));
	if (m->v->cache == 760)
		image_put(m, first + 8, chunk + 16);
	else if (m->v->cache == 640)
		image_put(m, memory, (uint64_t)count << 16);
	else
		image_put(m, memory, (uint64_t)count << 8);
	image_put(m, first + 8, chunk + 16);
	for (uint32_t i = 0; i < count; i++, chunk += 0x30)
		image_put(m, chunk + 16, image_link(m, chunk + 16, i + 1 < count ? chunk + 0x30 + 16 : 0));
}

/*
 * cache struct, 0x40 used, 0x80 free in its bin, 0x20 used, three of 0x30 cached, two of 0x40 in a fastbin, 0x1010 used,
 * 0x2000 unsorted, 0x20 used. Returns where the rest begins.
 */
static inline uint64_t image_blocks(struct image *m, uint64_t arena, uint64_t at, bool other)
{
	uint64_t cache = at, fast;

	image_put(m, at + 8, image_get(m, at + 8) | 1);
	if (m->v->cache)
		at = image_chunk(m, at, image_cache_bytes(m->v), true, other);
	at = image_chunk(m, at, 0x40, true, other);
	image_bin(m, arena, 8, at);
	at = image_chunk(m, at, 0x80, false, other);
	at = image_chunk(m, at, 0x20, true, other);
	if (m->v->cache)
		image_cache(m, cache, at, 3);
	for (int i = 0; i < 3; i++)
		at = image_chunk(m, at, 0x30, true, other);
	fast = at;
	at = image_chunk(m, at, 0x40, true, other);
	at = image_chunk(m, at, 0x40, true, other);
	if (m->v->fast_bins)
		image_put(m, arena + m->v->header + 2 * 8, fast);
	image_put(m, fast + 16, image_link(m, fast + 16, fast + 0x40));
	image_put(m, fast + 0x40 + 16, image_link(m, fast + 0x40 + 16, 0));
	at = image_chunk(m, at, 0x1010, true, other);
	image_bin(m, arena, 1, at);
	at = image_chunk(m, at, 0x2000, false, other);
	return image_chunk(m, at, 0x20, true, other);
}

static inline void image_parameters(struct image *m)
{
	uint64_t at = DATA_AT + 0x200;

	image_put(m, at, 0x20000);
	image_put(m, at + 8, 0x20000);
	image_put(m, at + 16, 0x21000);
	image_put(m, at + 24, 8);
	image_put32(m, at + m->v->counts, 2);
	image_put32(m, at + m->v->counts + 4, 65536);
	image_put32(m, at + m->v->counts + 8, 3);
	image_put32(m, at + m->v->counts + 12, 0);
	image_put(m, at + m->v->mapped, 0x5000);
	image_put(m, at + m->v->mapped + 8, 0x9000);
	image_put(m, at + m->v->mapped + (m->v->total ? 24 : 16), BRK_AT);
}

static inline void image_other(struct image *m)
{
	uint64_t first = HEAP_AT + m->v->heap_header, end, top = HEAP2_AT + m->v->heap_header;

	m->other = first;
	first = (first + image_arena_end(m) + 15) & ~15ull;
	image_arena(m, m->other, m->main, top, 2 * HEAP_BYTES);
	for (int i = 0; i < 2; i++) {
		uint64_t heap = i ? HEAP2_AT : HEAP_AT;

		image_put(m, heap, m->other);
		image_put(m, heap + 8, i ? HEAP_AT : 0);
		image_put(m, heap + 16, HEAP_BYTES);
		image_put(m, heap + 24, HEAP_BYTES);
	}
	end = image_blocks(m, m->other, first, true);
	end = image_chunk(m, end, HEAP_AT + HEAP_BYTES - 32 - end, true, true);
	/* The first heap is full: two stubs. */
	image_put(m, end + 8, 16 | 1);
	image_put(m, end + 16 + 8, 0 | 1);
	image_put(m, top + 8, (HEAP2_AT + HEAP_BYTES - top) | 1);
}

static inline void image_release(struct image *m)
{
	for (size_t i = 0; i < IMAGE_SEGMENTS; i++)
		free(m->segments[i].memory);
}

static inline bool image_make(struct image *m, const struct image_version *v)
{
	static const uint64_t places[IMAGE_SEGMENTS][2] = {{DATA_AT, DATA_BYTES}, {BRK_AT, BRK_BYTES},
		{HEAP_AT, HEAP_BYTES}, {HEAP2_AT, HEAP_BYTES}, {MAPPED_AT, MAPPED_BYTES}};
	uint64_t top;

	*m = (struct image){.v = v};
	for (size_t i = 0; i < IMAGE_SEGMENTS; i++) {
		m->segments[i].start = places[i][0];
		m->segments[i].bytes = places[i][1];
		m->segments[i].memory = calloc(1, places[i][1]);
		if (!m->segments[i].memory)
			return false;
		if (i >= 2)
			m->memory[i - 2] = (struct arenas_range){places[i][0], places[i][0] + places[i][1]};
	}
	m->data = (struct arenas_range){DATA_AT, DATA_AT + DATA_BYTES};
	m->brk = (struct arenas_range){BRK_AT, BRK_AT + BRK_BYTES};
	/* Bins are aligned to 16 in one layout and 8 off in the other. */
	m->main = DATA_AT + 0xc60;
	image_parameters(m);
	image_arena(m, m->main, HEAP_AT + v->heap_header, 0, BRK_BYTES);
	top = image_blocks(m, m->main, BRK_AT, false);
	image_put(m, m->main + image_top_at(v), top);
	image_put(m, top + 8, (BRK_AT + BRK_BYTES - top) | 1);
	image_other(m);
	/* Two large blocks, the second aligned to 256. */
	image_put(m, MAPPED_AT + 0x1000 + 8, (v->fast_bins ? 0x2000 : 0x1ff0) | 2);
	image_put(m, MAPPED_AT + 0x3000 + 0xf0, 0xf0);
	image_put(m, MAPPED_AT + 0x3000 + 0xf0 + 8, (0x3000 - 0xf0) | 2);
	return true;
}

static inline int image_walk(struct image *m, struct arenas *ret, struct err *err)
{
	struct arenas_places places = {.data = &m->data, .data_count = 1, .memory = m->memory, .memory_count = 3,
		.brk = m->brk, .page_bytes = 4096};

	return arenas_walk(&places, &image_ops, m, ret, err);
}

#endif
