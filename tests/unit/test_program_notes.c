/* SPDX-License-Identifier: BSD-2-Clause */
/* libsonde-capture inside: how what a program says becomes events. Compiled under the library's names. */
#include <sonde/capture.h>

#include "heap/preload/ring.h"
#include "heap/program/note.h"
#include "preload_world.h"
#include "test.h"

#define MOST SHARE_TEXT_MOST

static char *text_of(size_t bytes)
{
	char *text = malloc(bytes + 8);

	if (!text)
		abort();
	memset(text, 'a', bytes);
	text[bytes] = '\0';
	return text;
}

/* The text as so many 'a', then a character of these bytes, then more. */
static uint32_t cut_of(size_t before, const char *character)
{
	char *text = text_of(MOST + 100);
	uint32_t cut;

	memcpy(text + before, character, strlen(character));
	cut = note_text_bytes(text);
	free(text);
	return cut;
}

TEST(texts_are_cut_between_characters)
{
	char *text = text_of(MOST);

	check_u64(note_text_bytes(NULL), 0);
	check_u64(note_text_bytes(""), 0);
	check_u64(note_text_bytes("abc"), 3);
	check_u64(note_text_bytes(text), MOST);
	free(text);
	text = text_of(MOST + 1);
	check_u64(note_text_bytes(text), MOST);
	free(text);
	check_u64(cut_of(MOST - 1, "\xc3\xa9"), MOST - 1);
	check_u64(cut_of(MOST - 2, "\xc3\xa9"), MOST);
	check_u64(cut_of(MOST - 2, "\xe2\x82\xac"), MOST - 2);
	check_u64(cut_of(MOST - 3, "\xe2\x82\xac"), MOST);
	check_u64(cut_of(MOST - 3, "\xf0\x9f\x98\x80"), MOST - 3);
	check_u64(cut_of(MOST - 1, "\xf0\x9f\x98\x80"), MOST - 1);
	check_u64(cut_of(MOST, "\xf0\x9f\x98\x80"), MOST);
	/* What is no text is cut somewhere near. */
	check_u64(cut_of(MOST - 8, "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80"), MOST - 4);
}

static const struct share_note *note_at(uint32_t chunk, uint32_t at)
{
	return (const struct share_note *)(const void *)((const uint8_t *)(chunk_at(chunk) + 1) + at);
}

/* The first event in a new ring is its thread's name. */
#define FIRST 32u

TEST(a_mark_is_an_event_with_three_texts)
{
	const struct share_note *e;

	world_begin(SHARE_PROGRAM, 0);
	sonde_mark(1000, 77, "gr", NULL, "message");
	e = note_at(1, FIRST);
	check_u64(chunk_at(1)->used, FIRST + sizeof(*e) + 16);
	check_u64(SHARE_TYPE(e->word), SHARE_MARK);
	check_u64(SHARE_ADDRESS(e->word), 77);
	check_u64(e->value, 1000);
	check_u64(e->bytes, sizeof(*e) + 16);
	check_u64(e->text_bytes[0], 2);
	check_u64(e->text_bytes[1], 0);
	check_u64(e->text_bytes[2], 7);
	check(!memcmp(e + 1, "grmessage\0\0\0\0\0\0\0", 16));
	check(e->time > 0);
	world_end();
}

TEST(longest_texts_find_room)
{
	char *text = text_of(MOST + 50);
	const struct share_note *e;

	world_begin(SHARE_PROGRAM, 0);
	for (int i = 0; i < 3; i++)
		sonde_mark(5, UINT64_MAX, text, text, text);
	e = note_at(2, 0);
	check_u64(e->bytes, sizeof(*e) + 3 * MOST);
	check_u64(SHARE_ADDRESS(e->word), (1ull << 56) - 1);
	check_u64(chunk_at(3)->used, e->bytes);
	world_end();
	free(text);
}

TEST(what_finds_no_room_is_counted)
{
	world_begin(SHARE_PROGRAM, 0);
	preload.memory.header->chunk_limit = 1;
	for (int i = 0; i < 1000; i++)
		sonde_counter_set(2, i);
	check_u64(chunk_at(1)->used, FIRST + 24 * ((SHARE_CHUNK_ROOM - FIRST) / 24));
	check_u64(preload.memory.header->lost[SHARE_LOST_CHUNK], 1000 - (SHARE_CHUNK_ROOM - FIRST) / 24);
	world_end();
}

TEST(a_handler_inside_is_counted)
{
	world_begin(SHARE_PROGRAM, 0);
	world_claim();
	thread.busy = 1;
	sonde_mark(1, 2, "a", "b", "c");
	sonde_counter_set(2, 5);
	check_u64(sonde_counter_define("a", "b", "c", SONDE_COUNTER_INT64), 0);
	check_u64((uint64_t)sonde_is_recording(), 1);
	check_u64(preload.memory.header->lost[SHARE_LOST_REENTERED], 3);
	check_u64(chunk_at(1)->used, FIRST);
	world_end();
}

TEST(values_have_the_kind_of_their_counter)
{
	const uint64_t *words;
	uint32_t integers, reals;
	double real;

	world_begin(SHARE_PROGRAM, 0);
	integers = sonde_counter_define("g", "n", "", SONDE_COUNTER_INT64);
	reals = sonde_counter_define("g", "m", "", SONDE_COUNTER_DOUBLE);
	check(integers && reals && integers != reals);
	words = (const uint64_t *)(const void *)((uint8_t *)(chunk_at(1) + 1) + chunk_at(1)->used);
	sonde_counter_set(integers, -9);
	sonde_counter_set_double(integers, -9.9);
	sonde_counter_set_double(integers, 1e300);
	sonde_counter_set_double(integers, -1e300);
	sonde_counter_set_double(integers, __builtin_nan(""));
	sonde_counter_set(reals, 3);
	check_u64(SHARE_TYPE(words[1]), SHARE_VALUE);
	check_u64(SHARE_ADDRESS(words[1]), integers >> 1);
	check((int64_t)words[2] == -9);
	check((int64_t)words[5] == -9);
	check((int64_t)words[8] == INT64_MAX);
	check((int64_t)words[11] == INT64_MIN);
	check((int64_t)words[14] == 0);
	memcpy(&real, &words[17], sizeof(real));
	check(real == 3);
	world_end();
}

TEST(nobody_hears)
{
	memset(&preload, 0, sizeof(preload));
	preload.state = PRELOAD_OFF;
	sonde_mark(1, 2, "a", "b", "c");
	sonde_counter_set(4, 2);
	sonde_alloc(1, &preload, 5);
	check_u64(sonde_counter_define("a", "b", "c", SONDE_COUNTER_INT64), 0);
	check_u64(sonde_pool_define("a"), 0);
	check_u64(sonde_mark_begin(), 0);
	sonde_mark_end(0, "a", "b", "c");
	check_u64((uint64_t)sonde_is_recording(), 0);
	check(sonde_clock() > 0);
}

/* Last: it takes all the room that there is. */
TEST(children_hear_definitions_again)
{
	char *text = text_of(MOST);
	uint32_t number = 0, count = 0, at = FIRST;

	world_begin(SHARE_PROGRAM, 0);
	for (uint32_t last; (last = sonde_pool_define(text)) != 0; number = last)
		;
	check(number > 200);
	world_end();
	world_begin(SHARE_PROGRAM, 0);
	world_claim();
	defined_tell(&thread);
	for (uint32_t chunk = 1; chunk; chunk = chunk_at(chunk)->next, at = 0) {
		for (; at < chunk_at(chunk)->used; count++) {
			const struct share_note *e = note_at(chunk, at);

			if (SHARE_TYPE(e->word) == SHARE_POOL && SHARE_ADDRESS(e->word) == number)
				check(!memcmp(e + 1, text, MOST));
			check(e->time > 0 && e->bytes >= sizeof(*e));
			at += (uint32_t)e->bytes;
		}
	}
	check_u64(count, number);
	world_end();
	free(text);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(texts_are_cut_between_characters), T(a_mark_is_an_event_with_three_texts),
		T(longest_texts_find_room), T(what_finds_no_room_is_counted), T(a_handler_inside_is_counted),
		T(values_have_the_kind_of_their_counter), T(nobody_hears), T(children_hear_definitions_again));
}
