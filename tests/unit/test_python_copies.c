/* SPDX-License-Identifier: BSD-2-Clause */
/* What is copied of Python's frames at the moment of a sample, and where a thread keeps its state. */
#include "test.h"

#include <stdlib.h>
#include <string.h>

#include "sample/python/slot.h"
#include "sample/python/stopped.h"

/* ---- where a thread keeps its state ---- */

#define POINTER 0x100000u /* of the first thread; those of others are 1 MB apart */
#define WORDS_AROUND ((PYTHON_SLOT_BELOW + PYTHON_SLOT_ABOVE) / 8)

struct threads {
	uint64_t words[3][WORDS_AROUND];
};

static uint64_t *word_of(struct threads *t, unsigned thread, int offset)
{
	return &t->words[thread][((int)PYTHON_SLOT_BELOW + offset) / 8];
}

static uint64_t pointer_of(unsigned thread)
{
	return POINTER * (thread + 1ull);
}

static bool read_threads(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct threads *t = ctx;

	for (unsigned i = 0; i < 3; i++) {
		uint64_t start = pointer_of(i) - PYTHON_SLOT_BELOW;

		if (addr < start || addr + len > start + sizeof(t->words[i]))
			continue;
		memcpy(buf, (uint8_t *)t->words[i] + (addr - start), len);
		return true;
	}
	return false;
}

#define STATE 0x7000000u

static void see(struct python_slots *s, struct threads *t, unsigned thread)
{
	struct python_memory memory = {t, read_threads};

	python_slots_see(s, &memory, pointer_of(thread), STATE + thread * 0x1000u);
}

TEST(the_place_that_all_threads_have)
{
	struct threads *t = calloc(1, sizeof(*t));
	struct python_slots s = {0};
	int32_t best = 1;

	for (unsigned i = 0; i < 3; i++)
		*word_of(t, i, -72) = STATE + i * 0x1000u;
	*word_of(t, 0, -8) = STATE; /* by chance */
	*word_of(t, 1, -8) = 5;
	check(!python_slots_best(&s, &best));
	see(&s, t, 0);
	check(python_slots_best(&s, &best));
	check(best == -8);
	see(&s, t, 1);
	check(python_slots_best(&s, &best));
	check(best == -72);
	see(&s, t, 2);
	check(python_slots_best(&s, &best) && best == -72);
	python_slots_drop(&s, -72);
	check(!python_slots_best(&s, &best));
	python_slots_release(&s);
	free(t);
}

TEST(a_place_that_was_empty_comes_last)
{
	struct threads *t = calloc(1, sizeof(*t));
	struct python_slots s = {0};
	int32_t best = 0;

	*word_of(t, 0, -16) = *word_of(t, 0, 800) = STATE;
	*word_of(t, 1, 800) = STATE + 0x1000;
	see(&s, t, 0);
	see(&s, t, 1);
	check_u64(s.candidates.len, 2);
	check(python_slots_best(&s, &best) && best == 800);
	python_slots_drop(&s, 800);
	check(python_slots_best(&s, &best) && best == -16);
	python_slots_release(&s);
	free(t);
}

TEST(memory_that_cannot_be_read_holds_no_place)
{
	struct threads *t = calloc(1, sizeof(*t));
	struct python_memory memory = {t, read_threads};
	struct python_slots s = {0};
	int32_t best;

	python_slots_see(&s, &memory, 0x40000000, STATE);
	python_slots_see(&s, &memory, POINTER + 4, STATE);
	python_slots_see(&s, &memory, 0, STATE);
	check(!python_slots_best(&s, &best));
	python_slots_release(&s);
	free(t);
}

/* ---- records ---- */

struct record {
	struct python_copy_head head;
	uint64_t words[3 * 4 + 2];
};

static struct record record_of(uint16_t links, uint16_t cframes, uint32_t flags)
{
	struct record r = {.head = {.tid = 12, .tgid = 10, .pointer = POINTER, .state = STATE,
				   .flags = flags, .links = links, .cframes = cframes}};

	for (size_t i = 0; i < sizeof(r.words) / sizeof(r.words[0]); i++)
		r.words[i] = 100 + i;
	return r;
}

static size_t bytes_of(const struct record *r)
{
	return sizeof(r->head) + (r->head.links * 4u + r->head.cframes) * sizeof(uint64_t);
}

TEST(a_record_as_a_chain)
{
	struct record r = record_of(3, 2, PYTHON_COPY_GIL | PYTHON_COPY_CUT);
	uint64_t room[PYTHON_COPY_WORDS];
	struct python_copied got;

	check(python_copied_read(&r, bytes_of(&r), room, &got));
	check_u64((uint64_t)got.pid, 10);
	check_u64((uint64_t)got.tid, 12);
	check(got.raw.holds_gil && !got.by_slot);
	check_u64(got.raw.state, STATE);
	check_u64(got.raw.chain.count, 3);
	check_u64(got.raw.chain.links[2].at, 108);
	check_u64(got.raw.chain.links[2].marks, 111);
	check_u64(got.raw.chain.cframe_count, 2);
	check_u64(got.raw.chain.cframes[1], 113);
	check(got.raw.chain.torn == PYTHON_CUT);
}

/* The kernel pads records: bytes may follow. Fewer may not. */
TEST(records_that_make_no_sense)
{
	struct record r = record_of(3, 2, 0);
	uint64_t room[PYTHON_COPY_WORDS];
	struct python_copied got;

	check(python_copied_read(&r, sizeof(r), room, &got));
	for (size_t size = 0; size < bytes_of(&r); size++)
		check(!python_copied_read(&r, size, room, &got));
	r.head.links = PYTHON_COPY_LINKS + 1;
	check(!python_copied_read(&r, sizeof(r), room, &got));
	r.head.links = 0;
	r.head.cframes = UINT16_MAX;
	check(!python_copied_read(&r, sizeof(r), room, &got));
}

TEST(several_chains_in_a_row)
{
	struct record r = record_of(2, 0, 0);
	uint8_t both[2 * sizeof(struct record)];
	uint64_t *room = malloc(PYTHON_STOPPED_ROOM);
	struct raw_chain chains[3];
	size_t bytes = bytes_of(&r);

	memcpy(both, &r, bytes);
	r.head.state++;
	r.words[0] = 7;
	memcpy(both + bytes, &r, bytes);
	check_u64(python_stopped_read(both, 2 * bytes, room, chains, 3), 2);
	check_u64(chains[0].chain.links[0].at, 100);
	check_u64(chains[1].chain.links[0].at, 7);
	check_u64(chains[1].state, STATE + 1);
	check_u64(python_stopped_read(both, 2 * bytes, room, chains, 1), 1);
	check_u64(python_stopped_read(both, 2 * bytes - 8, room, chains, 3), 1);
	free(room);
}

TEST(nobody_is_known_at_first)
{
	struct python_stopped *p = NULL;
	uint64_t *to = malloc(PYTHON_STOPPED_ROOM);

	check(!python_stopped_new(&p, NULL));
	check_u64(python_stopped_copy(p, 1, 1, POINTER, to), 0);
	check(python_copier_without(python_stopped_copier(p), 1) == PYTHON_LIVE);
	python_stopped_free(p);
	free(to);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(the_place_that_all_threads_have),
		T(a_place_that_was_empty_comes_last), T(memory_that_cannot_be_read_holds_no_place),
		T(a_record_as_a_chain), T(records_that_make_no_sense), T(several_chains_in_a_row),
		T(nobody_is_known_at_first));
}
