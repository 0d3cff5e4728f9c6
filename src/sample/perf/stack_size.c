/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/perf/stack_size.h"

#include "os/perf_event.h"

/* Cut more often than one in 32, and not by chance. */
#define CUT_LEAST 8u
#define CUT_SHARE 32u
/* What is longer ago counts half. */
#define REMEMBERED 512u
#define SHALLOW_LEAST 512u

uint32_t stack_size_bytes(unsigned level)
{
	return level >= STACK_SIZE_MOST ? PERF_MAX_STACK_BYTES : 8192u << level;
}

uint8_t stack_size_level(uint32_t bytes)
{
	uint8_t level = STACK_SIZE_FIRST;

	while (level < STACK_SIZE_MOST && stack_size_bytes(level) < bytes)
		level++;
	return level;
}

static bool move(struct stack_size *s, unsigned level)
{
	s->level = (uint8_t)level;
	s->seen = s->cut = s->shallow = 0;
	return true;
}

static bool grow(struct stack_size *s, enum stack_room room)
{
	if (s->level == STACK_SIZE_MOST || room != STACK_ROOM)
		return false;
	s->kept = s->shrunk;
	return move(s, s->level + 1u);
}

bool stack_size_note(struct stack_size *s, struct stack_seen seen, enum stack_room room)
{
	if (room == STACK_ROOM_OVER && s->level > STACK_SIZE_FIRST)
		return move(s, s->level - 1u);
	if (s->seen == REMEMBERED) {
		s->seen /= 2;
		s->cut /= 2;
	}
	s->seen++;
	s->cut += seen.cut;
	if (s->cut >= CUT_LEAST && s->cut * CUT_SHARE > s->seen)
		return grow(s, room);
	if (seen.cut || s->level == STACK_SIZE_FIRST || s->kept ||
		seen.needed > stack_size_bytes(s->level - 1u) / 2) {
		s->shallow = 0;
		return false;
	}
	if (++s->shallow < SHALLOW_LEAST)
		return false;
	s->shrunk = true;
	return move(s, s->level - 1u);
}

enum stack_room stack_room_at(uint64_t bytes_per_s)
{
	if (bytes_per_s > STACK_RATE_BYTES_S / 4 * 5)
		return STACK_ROOM_OVER;
	return bytes_per_s > STACK_RATE_BYTES_S ? STACK_ROOM_NONE : STACK_ROOM;
}
