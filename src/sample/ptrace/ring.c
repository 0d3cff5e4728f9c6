/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A record is its size (8 bytes, a multiple of 8) and its bytes. One that does not fit before the
 * end of the memory begins at its start; WRAP stands where it would have been.
 */
#include "sample/ptrace/ring.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SIZE_BYTES sizeof(uint64_t)
#define WRAP UINT64_MAX

int note_ring_init(struct note_ring *r, size_t size)
{
	memset(r, 0, sizeof(*r));
	r->bytes = malloc(size);
	r->size = size;
	if (!r->bytes)
		return -ENOMEM;
	memset(r->bytes, 0, size); /* no page fault while a thread stands stopped */
	return 0;
}

void note_ring_release(struct note_ring *r)
{
	free(r->bytes);
	r->bytes = NULL;
}

static size_t whole(size_t bytes)
{
	return SIZE_BYTES + ((bytes + 7) & ~(size_t)7);
}

static uint64_t *size_at(const struct note_ring *r, uint64_t position)
{
	return (uint64_t *)(void *)(r->bytes + (position & (r->size - 1)));
}

void *note_ring_reserve(struct note_ring *r, size_t bytes)
{
	uint64_t head = atomic_load_explicit(&r->head, memory_order_relaxed);
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_acquire);
	size_t need = whole(bytes), at = head & (r->size - 1);
	size_t skipped = at + need > r->size ? r->size - at : 0;

	if (need > r->size / 2 || head + skipped + need - tail > r->size)
		return NULL;
	r->wraps = skipped;
	return r->bytes + (skipped ? 0 : at) + SIZE_BYTES;
}

/*
 * Head and tail are stored and then the other one is loaded, on both sides, in one order for all:
 * either the reader sees the record, or the writer sees that the reader had seen all before it.
 */
bool note_ring_commit(struct note_ring *r, size_t bytes)
{
	uint64_t from = atomic_load_explicit(&r->head, memory_order_relaxed), head = from;

	if (r->wraps) {
		*size_at(r, head) = WRAP;
		head += r->size - (head & (r->size - 1));
	}
	*size_at(r, head) = whole(bytes);
	atomic_store(&r->head, head + whole(bytes));
	return atomic_load(&r->tail) == from;
}

const void *note_ring_peek(struct note_ring *r)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	if (tail == atomic_load(&r->head))
		return NULL;
	if (*size_at(r, tail) == WRAP) {
		tail += r->size - (tail & (r->size - 1));
		atomic_store(&r->tail, tail);
	}
	return (const uint8_t *)size_at(r, tail) + SIZE_BYTES;
}

void note_ring_pop(struct note_ring *r)
{
	uint64_t tail = atomic_load_explicit(&r->tail, memory_order_relaxed);

	atomic_store(&r->tail, tail + *size_at(r, tail));
}
