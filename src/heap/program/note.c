/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/program/note.h"

#include <string.h>

#include "heap/preload/clock.h"
#include "heap/preload/ring.h"

_Static_assert(sizeof(struct share_note) + 3 * SHARE_TEXT_MOST + 8 <= SHARE_CHUNK_ROOM, "any note finds room");

uint32_t note_text_bytes(const char *text)
{
	size_t n = text ? strnlen(text, SHARE_TEXT_MOST + 1) : 0;

	if (n <= SHARE_TEXT_MOST)
		return (uint32_t)n;
	/* The first byte that is left out begins a character, or the one that it belongs to is left out as well. */
	for (n = SHARE_TEXT_MOST; n > SHARE_TEXT_MOST - 4 && ((uint8_t)text[n] & 0xc0) == 0x80;)
		n--;
	return (uint32_t)n;
}

uint32_t note_measure(const struct note *note, struct share_note *ret)
{
	uint64_t bytes = sizeof(*ret);

	*ret = (struct share_note){.word = SHARE_WORD(note->type, note->address), .value = note->value};
	for (int i = 0; i < 3; i++) {
		ret->text_bytes[i] = note_text_bytes(note->text[i]);
		bytes += ret->text_bytes[i];
	}
	ret->bytes = (bytes + 7) & ~7ull;
	return (uint32_t)ret->bytes;
}

void note_write(const struct note *note, const struct share_note *measured, uint64_t time_ns, void *at)
{
	struct share_note *to = at;
	char *text = (char *)(to + 1);

	/* First, so that what pads the texts is zero. */
	*(uint64_t *)(void *)((char *)at + measured->bytes - 8) = 0;
	*to = *measured;
	to->time = time_ns;
	for (int i = 0; i < 3; i++) {
		if (note->text[i])
			memcpy(text, note->text[i], measured->text_bytes[i]);
		text += measured->text_bytes[i];
	}
}

void note_put(struct thread *t, const struct note *note)
{
	struct share_note measured;
	uint32_t bytes = note_measure(note, &measured);
	uint64_t *e = ring_reserve(t, bytes);

	if (!e)
		return;
	note_write(note, &measured, clock_before(preload.clock), e);
	ring_commit(t, bytes);
}
