/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The main arena is a variable of the C library's that is in no symbol table. Its bins are known by what they are: heads of empty
 * lists that point at themselves, or lists whose ends point back at them, 127 in a row, of which the last one is always empty.
 */
#include <stdlib.h>
#include <string.h>

#include "heap/arenas_priv.h"

#define MOST_DATA ((uint64_t)64 << 20) /* of one range */
#define LEAST_SURE 96u /* of 127 bins; the others may be changing */
#define BIN_BYTES 16u

struct data {
	const uint8_t *bytes;
	uint64_t start, len;
};

static uint64_t word(const struct data *d, uint64_t at)
{
	uint64_t v = 0;

	if (at + sizeof(v) <= d->len)
		memcpy(&v, d->bytes + at, sizeof(v));
	return v;
}

static uint32_t half(const struct data *d, uint64_t at)
{
	uint32_t v = 0;

	if (at + sizeof(v) <= d->len)
		memcpy(&v, d->bytes + at, sizeof(v));
	return v;
}

/* ---- bins ---- */

/* An empty bin: both links are its address as a block, of which the links are the third and fourth word. */
static bool is_empty_bin(const struct data *d, uint64_t at)
{
	uint64_t self = d->start + at - CHUNK_HEADER;

	return word(d, at) == self && word(d, at + 8) == self;
}

/* A bin with blocks: the first and the last of them point back. Of a program that runs it may just be changing. */
static bool is_linked(struct walk *w, const struct data *d, uint64_t at)
{
	uint64_t self = d->start + at - CHUNK_HEADER;

	return walk_word(w, word(d, at) + 24) == self && walk_word(w, word(d, at + 8) + 16) == self;
}

/* Whether all 127 bins can begin at `at`: each empty, or with links to blocks and its bit in the map. */
static bool are_bins(struct walk *w, const struct data *d, uint64_t first)
{
	uint32_t sure = 0, i;
	uint64_t at = first;

	/* The last one is never used. */
	if (!is_empty_bin(d, first + (BINS - 1) * BIN_BYTES))
		return false;
	for (i = 1; i < BINS; i++, at += BIN_BYTES) {
		uint64_t fd = word(d, at), bk = word(d, at + 8);

		if (is_empty_bin(d, at))
			continue;
		if (!fd || !bk || fd % CHUNK_ALIGN || bk % CHUNK_ALIGN)
			return false;
		/* The unsorted blocks, bin 1, have no bit. */
		if (i > 1 && !(half(d, first + BINS * BIN_BYTES + i / 32 * 4) & 1u << i % 32))
			return false;
	}
	for (i = 1, at = first; i <= BINS; i++, at += BIN_BYTES)
		sure += is_empty_bin(d, at) || is_linked(w, d, at);
	return sure >= LEAST_SURE;
}

/* Arenas are linked in a ring. */
static bool is_ring(struct walk *w, uint64_t main)
{
	uint64_t at = main;

	for (uint32_t i = 0; i < MOST_ARENAS; i++) {
		at = walk_word(w, at + ARENA_NEXT_AT(&w->layout));
		if (at == main)
			return true;
		if (!at || at % 16 || !walk_in_memory(w, at))
			return false;
	}
	return false;
}

/* How much memory an arena has got is more than threads use it. */
#define MORE_THAN_THREADS 65536u

static bool take_arena(struct walk *w, const struct data *d, uint64_t bins)
{
	static const struct arenas_layout layouts[] = {{16, MOST_FAST_BINS, true}, {8, MOST_FAST_BINS, true}, {8, 0, true}};

	for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
		uint64_t main, threads;

		w->layout = layouts[i];
		if (bins < ARENA_BINS_AT(&w->layout))
			continue;
		main = d->start + bins - ARENA_BINS_AT(&w->layout);
		if (main % 8 || !is_ring(w, main))
			continue;
		threads = walk_word(w, main + ARENA_THREADS_AT(&w->layout));
		w->layout.threads = threads < MORE_THAN_THREADS;
		w->main = main;
		return true;
	}
	return false;
}

/* A bin that is empty is seen first; which of the 127 it is shows where all of them fit. */
static bool find_arena(struct walk *w, const struct data *d)
{
	for (uint64_t at = 0; at + BIN_BYTES <= d->len; at += 8) {
		if (!is_empty_bin(d, at))
			continue;
		for (uint64_t back = 0; back < BINS && back * BIN_BYTES <= at; back++)
			if (are_bins(w, d, at - back * BIN_BYTES) && take_arena(w, d, at - back * BIN_BYTES))
				return true;
	}
	return false;
}

/* ---- parameters ---- */

/*
 * struct malloc_par: trim_threshold, top_pad, mmap_threshold, arena_test, arena_max; since 2.35 thp_pagesize,
 * hp_pagesize and the int hp_flags, in 2.43 one word more before them; the ints n_mmaps, n_mmaps_max, max_n_mmaps, no_dyn_threshold; mmapped_mem,
 * max_mmapped_mem; before 2.24 max_total_mem, which is 0; sbrk_base.
 */
#define ARENA_TEST_AT 24u
#define ARENA_TEST 8u /* what it begins as, on 64 bit */
#define MMAP_THRESHOLD_AT 16u
#define LEAST_THRESHOLD 1024u
#define PARAMETERS_BYTES 112u

static const struct {
	uint32_t counts, bytes; /* where n_mmaps is, and mmapped_mem */
} parameters[] = {{60, 80}, {40, 56}, {68, 88}};

static bool are_counts(const struct data *d, uint64_t at, uint64_t bytes_at, uint64_t page)
{
	uint32_t n = half(d, at), most = half(d, at + 4), peak = half(d, at + 8), fixed = half(d, at + 12);
	uint64_t bytes = word(d, bytes_at), peak_bytes = word(d, bytes_at + 8);

	return most && n <= most && n <= peak && fixed <= 1 && !(bytes % page) && !(peak_bytes % page) &&
		bytes <= peak_bytes && !n == !bytes;
}

static bool take_parameters(struct walk *w, const struct data *d, uint64_t at)
{
	for (size_t i = 0; i < sizeof(parameters) / sizeof(parameters[0]); i++) {
		uint64_t counts = at + parameters[i].counts, bytes = at + parameters[i].bytes, first = word(d, bytes + 16);

		if (!are_counts(d, counts, bytes, w->places->page_bytes))
			continue;
		if (!first)
			first = word(d, bytes + 24);
		if (first && !walk_in_memory(w, first))
			continue;
		w->first = (first + CHUNK_ALIGN - 1) & ~(uint64_t)(CHUNK_ALIGN - 1);
		w->ret->parameters = true;
		w->ret->trim_threshold = word(d, at);
		w->ret->mmap_threshold = word(d, at + MMAP_THRESHOLD_AT);
		w->ret->mapped_said = (struct arenas_sum){word(d, bytes), half(d, counts)};
		return true;
	}
	return false;
}

static void find_parameters(struct walk *w, const struct data *d)
{
	for (uint64_t at = 0; at + PARAMETERS_BYTES <= d->len; at += 8)
		if (word(d, at + ARENA_TEST_AT) == ARENA_TEST && word(d, at + MMAP_THRESHOLD_AT) >= LEAST_THRESHOLD &&
			take_parameters(w, d, at))
			return;
}

bool walk_find(struct walk *w)
{
	for (size_t i = 0; i < w->places->data_count; i++) {
		const struct arenas_range *range = &w->places->data[i];
		uint64_t len = range->end - range->start;
		uint8_t *bytes = len && len <= MOST_DATA ? malloc(len) : NULL;
		struct data d = {.bytes = bytes, .start = range->start};
		bool found = false;

		if (bytes)
			d.len = w->ops->read(w->ctx, range->start, bytes, len);
		if (bytes && d.len <= len && find_arena(w, &d)) {
			find_parameters(w, &d);
			found = true;
		}
		free(bytes);
		if (found)
			return true;
	}
	return false;
}
