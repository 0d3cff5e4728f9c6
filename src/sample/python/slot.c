/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/slot.h"

#include <stdlib.h>
#include <string.h>

#define PIECE_BYTES 1024u
#define MOST_CANDIDATES 64u

void python_slots_release(struct python_slots *s)
{
	vec_release(&s->candidates);
}

static void take_piece(struct python_slots *s, const uint8_t *bytes, int32_t offset, uint64_t state)
{
	for (uint32_t at = 0; at < PIECE_BYTES; at += sizeof(uint64_t)) {
		uint64_t word;

		memcpy(&word, bytes + at, sizeof(word));
		if (word == state && s->candidates.len < MOST_CANDIDATES)
			vec_push(&s->candidates, (struct python_slot){.offset = offset + (int32_t)at});
	}
}

/* The first thread: every place. */
static void collect(struct python_slots *s, const struct python_memory *memory, uint64_t pointer,
	uint64_t state)
{
	uint8_t bytes[PIECE_BYTES];

	for (int32_t at = -(int32_t)PYTHON_SLOT_BELOW; at < (int32_t)PYTHON_SLOT_ABOVE;
		at += PIECE_BYTES)
		if (memory->read(memory->ctx, pointer + (uint64_t)(int64_t)at, bytes, sizeof(bytes)))
			take_piece(s, bytes, at, state);
}

/* The others: which of these are left. */
static void compare(struct python_slots *s, const struct python_memory *memory, uint64_t pointer,
	uint64_t state)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->candidates.len; i++) {
		struct python_slot slot = s->candidates.data[i];
		uint64_t word;

		if (!memory->read(memory->ctx, pointer + (uint64_t)(int64_t)slot.offset, &word,
			    sizeof(word)) ||
			(word && word != state))
			continue;
		slot.empty |= !word;
		s->candidates.data[kept++] = slot;
	}
	s->candidates.len = kept;
}

void python_slots_see(struct python_slots *s, const struct python_memory *memory, uint64_t pointer,
	uint64_t state)
{
	if (!pointer || pointer % sizeof(uint64_t) || !state)
		return;
	if (s->threads)
		compare(s, memory, pointer, state);
	else
		collect(s, memory, pointer, state);
	s->threads += s->threads || s->candidates.len;
}

/* The C library's own part of what is around the pointer, where the value stays as long as the thread lives. */
static bool is_librarys(const struct python_slot *s)
{
#if defined(__aarch64__)
	return s->offset < 0;
#else
	return s->offset > 0;
#endif
}

static bool is_better(const struct python_slot *a, const struct python_slot *b)
{
	if (a->empty != b->empty)
		return !a->empty;
	if (is_librarys(a) != is_librarys(b))
		return is_librarys(a);
	return abs(a->offset) < abs(b->offset);
}

bool python_slots_best(const struct python_slots *s, int32_t *ret)
{
	const struct python_slot *best = NULL;

	vec_each(&s->candidates, slot)
		if (!best || is_better(slot, best))
			best = slot;
	if (best)
		*ret = best->offset;
	return best;
}

void python_slots_drop(struct python_slots *s, int32_t offset)
{
	for (size_t i = 0; i < s->candidates.len; i++)
		if (s->candidates.data[i].offset == offset) {
			s->candidates.data[i] = s->candidates.data[--s->candidates.len];
			return;
		}
}
