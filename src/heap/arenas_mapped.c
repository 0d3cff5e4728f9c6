/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Large blocks have a mapping each, which the kernel joins with its neighbours. One begins at a page with a header that
 * says so, and ends at a page; of one that was asked for at an alignment the header stands further in, and says how far.
 */
#include <string.h>

#include "heap/arenas_priv.h"

#define MOST_PAGE 65536u
#define MOST_BLOCKS (1u << 20)

/* What the size leaves out at the end: nothing, or from 2.43 on the next block's header, which there is none of. */
static const uint32_t left_out[] = {0, CHUNK_HEADER};

static bool is_mapped_at(const uint8_t *page, uint64_t at, uint64_t page_bytes, uint64_t left, uint64_t *ret_bytes)
{
	uint64_t prev, size;

	memcpy(&prev, page + at, sizeof(prev));
	memcpy(&size, page + at + 8, sizeof(size));
	if (prev != at || (size & CHUNK_FLAGS) != CHUNK_MAPPED)
		return false;
	size &= ~(uint64_t)CHUNK_FLAGS;
	if (size < CHUNK_LEAST || size > left)
		return false;
	for (size_t i = 0; i < sizeof(left_out) / sizeof(left_out[0]); i++) {
		*ret_bytes = at + size + left_out[i];
		if (*ret_bytes <= left && !(*ret_bytes % page_bytes))
			return true;
	}
	return false;
}

/* How many bytes the block has that begins with this page; 0: none does. */
static uint64_t mapped_bytes(struct walk *w, uint64_t address, uint64_t end, uint8_t *page)
{
	uint64_t page_bytes = w->places->page_bytes, bytes;

	if (w->ops->read(w->ctx, address, page, page_bytes) != page_bytes)
		return 0;
	for (uint64_t at = 0; at + CHUNK_HEADER <= page_bytes; at += CHUNK_ALIGN)
		if (is_mapped_at(page, at, page_bytes, end - address, &bytes))
			return bytes;
	return 0;
}

/* Memory that belongs to a heap holds none. */
static uint64_t behind_heaps(const struct walk *w, uint64_t address)
{
	bool moved = true;

	while (moved) {
		moved = false;
		vec_each(&w->heaps, h)
			if (address >= h->start && address < h->end) {
				address = h->end;
				moved = true;
			}
	}
	return (address + w->places->page_bytes - 1) & ~(w->places->page_bytes - 1);
}

static void walk_range(struct walk *w, const struct arenas_range *range)
{
	uint8_t page[MOST_PAGE];
	uint64_t at = range->start;

	while (at < range->end && w->ret->mapped.count < MOST_BLOCKS) {
		uint64_t bytes, next = w->ops->next(w->ctx, at);

		next = next == UINT64_MAX ? range->end : behind_heaps(w, next);
		if (next > at) {
			at = next;
			continue;
		}
		bytes = mapped_bytes(w, at, range->end, page);
		if (bytes) {
			w->ret->mapped.bytes += bytes;
			w->ret->mapped.count++;
			w->ops->mapped(w->ctx, at, at + bytes);
		}
		at += bytes ? bytes : w->places->page_bytes;
	}
}

void walk_mapped(struct walk *w)
{
	if (w->places->page_bytes > MOST_PAGE)
		return;
	for (size_t i = 0; i < w->places->memory_count; i++)
		walk_range(w, &w->places->memory[i]);
}
