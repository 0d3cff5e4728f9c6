/* SPDX-License-Identifier: BSD-2-Clause */
/* Rings and chunks of watched programs: who owns them, what is in them, with many threads. */
#include "heap/preload/ring.h"

#include <pthread.h>

#include "heap/preload/take.h"
#include "preload_world.h"
#include "test.h"

#define THREADS 8

static bool put_value(uint64_t value)
{
	uint64_t *e = ring_reserve(&thread, 24);

	if (!e)
		return false;
	e[0] = value;
	e[1] = SHARE_WORD(SHARE_VALUE, value);
	e[2] = value;
	ring_commit(&thread, 24);
	return true;
}

/* Events of a ring: values in order; threads' names are skipped. Returns how many values. */
static uint64_t read_ring(uint32_t ring, void (*seen)(uint64_t value))
{
	uint64_t count = 0;

	for (uint32_t c = preload.rings[ring].first; c; c = chunk_at(c)->next) {
		const uint8_t *bytes = (const uint8_t *)(chunk_at(c) + 1);

		check(chunk_at(c)->used <= SHARE_CHUNK_ROOM);
		for (uint32_t at = 0; at < chunk_at(c)->used;) {
			const uint64_t *e = (const uint64_t *)(const void *)(bytes + at);

			if (SHARE_TYPE(e[1]) == SHARE_THREAD) {
				at += 32;
				continue;
			}
			check_u64(SHARE_TYPE(e[1]), SHARE_VALUE);
			if (seen)
				seen(e[2]);
			count++;
			at += 24;
		}
	}
	return count;
}

static uint64_t expected;

static void in_order(uint64_t value)
{
	check_u64(value, expected);
	expected++;
}

TEST(events_stay_in_order_over_chunks)
{
	uint32_t many = 10 * SHARE_CHUNK_ROOM / 24;

	world_begin(SHARE_EXACT, 0);
	for (uint32_t i = 0; i < many; i++)
		check(put_value(i));
	check_u64(preload.memory.header->ring_count, 1);
	check(preload.memory.header->chunk_count >= 10 && preload.memory.header->chunk_count <= 12);
	expected = 0;
	check_u64(read_ring(0, in_order), many);
	world_end();
}

TEST(what_finds_no_chunk_is_counted)
{
	uint64_t *lost, written = 0;

	world_begin(SHARE_EXACT, 0);
	lost = preload.memory.header->lost;
	preload.memory.header->chunk_limit = 3;
	for (uint32_t i = 0; i < 4 * SHARE_CHUNK_ROOM / 24; i++)
		written += put_value(i);
	check_u64(preload.memory.header->chunk_count, 3);
	check_u64(lost[SHARE_LOST_CHUNK] + written, 4 * SHARE_CHUNK_ROOM / 24);
	check_u64(read_ring(0, NULL), written);
	/* As soon as there is one it goes on. */
	preload.memory.header->chunk_limit = 4;
	check(put_value(7));
	check_u64(read_ring(0, NULL), written + 1);
	world_end();
}

TEST(a_ring_is_gone_on_with)
{
	world_begin(SHARE_EXACT, 0);
	put_value(0);
	thread_release(&thread);
	check_u64(preload.rings[0].state, SHARE_RING_RELEASED);
	check_u64(preload.rings[0].tid, 0);
	put_value(1);
	check_u64(preload.memory.header->ring_count, 1);
	/* Its owner was killed between linking a chunk and saying so. */
	preload.rings[0].state = SHARE_RING_RELEASED;
	thread.chunk = NULL;
	chunk_at(preload.rings[0].last)->next = chunk_take();
	put_value(2);
	check_u64(thread.used, 32 + 24);
	expected = 0;
	check_u64(read_ring(0, in_order), 3);
	world_end();
}

TEST(without_a_ring_it_is_counted)
{
	world_begin(SHARE_EXACT, 0);
	preload.memory.header->ring_count = SHARE_RINGS;
	check(!put_value(0));
	check(preload.memory.header->lost[SHARE_LOST_RING] >= 1);
	world_end();
}

/* ---- many threads ---- */

#define LIVES 300
#define EACH 40
static uint8_t came[THREADS * LIVES * EACH];

static void mark_value(uint64_t value)
{
	check(value < sizeof(came));
	if (value < sizeof(came))
		came[value]++;
}

/* As if a thread began and ended, again and again. */
static void *live_often(void *number)
{
	uint64_t base = (uintptr_t)number * LIVES * EACH;

	thread.generation = preload.generation;
	for (uint64_t life = 0; life < LIVES; life++) {
		for (uint64_t i = 0; i < EACH; i++)
			put_value(base + life * EACH + i);
		thread_release(&thread);
	}
	return NULL;
}

static void run_threads(void *(*function)(void *))
{
	pthread_t threads[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, function, (void *)i))
			abort();
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
}

TEST(threads_share_rings_one_after_the_other)
{
	uint64_t total = 0;

	world_begin(SHARE_EXACT, 0);
	memset(came, 0, sizeof(came));
	run_threads(live_often);
	check(preload.memory.header->ring_count <= THREADS);
	for (uint32_t i = 0; i < preload.memory.header->ring_count; i++) {
		total += read_ring(i, mark_value);
		check_u64(preload.rings[i].state, SHARE_RING_RELEASED);
	}
	check_u64(total, sizeof(came));
	for (size_t i = 0; i < sizeof(came); i++)
		check(came[i] == 1);
	world_end();
}

static uint8_t taken[SHARE_CHUNKS];

/* Nobody else may have a chunk while it is taken. */
static void give(uint32_t *slot)
{
	if (!*slot)
		return;
	__atomic_fetch_sub(&taken[*slot], 1, __ATOMIC_RELAXED);
	world_give_back(*slot);
	*slot = 0;
}

static void *take_and_give(void *number)
{
	uint64_t random = sample_seed((uintptr_t)number);
	uint32_t held[8] = {0};

	for (int i = 0; i < 60000; i++) {
		uint32_t *slot = &held[sample_random(&random) % 8];

		if (*slot) {
			give(slot);
			continue;
		}
		*slot = chunk_take();
		if (*slot && __atomic_fetch_add(&taken[*slot], 1, __ATOMIC_RELAXED))
			return (void *)1;
	}
	for (int i = 0; i < 8; i++)
		give(&held[i]);
	return NULL;
}

TEST(a_chunk_has_one_owner)
{
	pthread_t threads[THREADS];
	uint64_t list;
	void *ret;

	world_begin(SHARE_EXACT, 0);
	preload.memory.header->chunk_limit = 40;
	memset(taken, 0, sizeof(taken));
	for (uintptr_t i = 0; i < THREADS; i++)
		if (pthread_create(&threads[i], NULL, take_and_give, (void *)i))
			abort();
	for (uintptr_t i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &ret);
		check(!ret);
	}
	/* All are back, each once. */
	list = preload.memory.header->free_chunks;
	memset(taken, 0, sizeof(taken));
	for (uint32_t c = (uint32_t)list, n = 0; c && n < 100; c = chunk_at(c)->next, n++)
		taken[c]++;
	for (uint32_t c = 1; c < SHARE_CHUNKS; c++)
		check(taken[c] == (c <= preload.memory.header->chunk_count));
	world_end();
}

TEST(a_damaged_list_of_chunks_is_not_followed)
{
	world_begin(SHARE_EXACT, 0);
	preload.memory.header->free_chunks = UINT32_MAX;
	check_u64(chunk_take(), 1);
	preload.memory.header->free_chunks = SHARE_CHUNKS;
	check_u64(chunk_take(), 2);
	world_end();
}

/* ---- what is written ---- */

static const uint64_t *event_at(uint32_t bytes)
{
	return (const uint64_t *)(const void *)((const uint8_t *)(chunk_at(preload.rings[0].first) + 1) + bytes);
}

TEST(sampled_blocks_are_marked_and_their_rate_is_told)
{
	struct walk_start here = {0};
	const uint64_t *e;

	world_begin(SHARE_SAMPLED, 1000);
	world_claim();
	thread.random = 1;
	thread.rate = 500;
	check(take_begin_sampled(&thread, 64));
	take_allocated(&thread, (void *)0x5000, 64, &here);
	take_end(&thread);
	check_u64(preload.filter_counts[share_filter_slot(0x5000)], 1);
	e = event_at(32);
	check_u64(SHARE_TYPE(e[1]), SHARE_RATE);
	check_u64(e[2], 500);
	e = event_at(32 + 24);
	check_u64(SHARE_TYPE(e[1]), SHARE_ALLOC);
	check_u64(SHARE_ADDRESS(e[1]), 0x5000);
	check_u64(e[2], 64);
	/* The next distance is drawn with the new rate. */
	check_u64(thread.rate, 1000);
	check(thread.left >= 1);
	world_end();
}

static uint32_t freed_as(bool other_before)
{
	struct walk_start here = {0};
	uint32_t type;

	world_begin(SHARE_SAMPLED, 1000);
	world_claim();
	preload.size_mask = SAMPLE_BYTES_MASK;
	thread.random = 1;
	thread.rate = 500;
	check(take_begin_sampled(&thread, 64));
	take_allocated(&thread, (void *)0x5000, 64, &here);
	take_end(&thread);
	if (other_before)
		thread.left -= sample_cost(1, preload.size_mask);
	check(take_begin(&thread));
	take_freed(&thread, (void *)0x5000, &here);
	take_end(&thread);
	type = SHARE_TYPE(event_at(32 + 24 + 24)[1]);
	world_end();
	return type;
}

TEST(a_free_right_after_says_so)
{
	check_u64(freed_as(false), SHARE_FREE_LAST);
	check_u64(freed_as(true), SHARE_FREE);
}

TEST(a_large_size_has_a_word_of_its_own)
{
	struct walk_start here = {0};

	world_begin(SHARE_EXACT, 0);
	world_claim();
	check(take_begin_sampled(&thread, 1ull << 33));
	take_allocated(&thread, (void *)0x5000, 1ull << 33, &here);
	take_end(&thread);
	check_u64(event_at(32)[2], SHARE_LARGE);
	check_u64(event_at(32)[3], 1ull << 33);
	check_u64(thread.used, 64);
	world_end();
}

TEST(calls_from_within_are_counted)
{
	world_begin(SHARE_EXACT, 0);
	thread.busy = 1;
	check(!take_begin(&thread));
	check_u64(preload.memory.header->lost[SHARE_LOST_REENTERED], 1);
	check(thread.busy);
	world_end();
}

TEST(failures_are_not_written)
{
	struct walk_start here = {0};

	world_begin(SHARE_EXACT, 0);
	check(take_begin_sampled(&thread, 8));
	take_allocated(&thread, NULL, 8, &here);
	take_end(&thread);
	check_u64(preload.memory.header->ring_count, 0);
	take_begin(&thread);
	take_moving(&thread, (void *)0x5000);
	take_moved(&thread, NULL, 8, true, &here);
	take_end(&thread);
	check_u64(SHARE_TYPE(event_at(32)[1]), SHARE_REALLOC);
	check_u64(event_at(48)[1], SHARE_WORD(SHARE_REALLOC_DONE, 0));
	world_end();
}

/* Nobody reads: the preload gives up once that is certain, and not before. */
TEST(without_a_reader_it_gives_up)
{
	struct share_header *h;

	world_begin(SHARE_EXACT, 0);
	h = preload.memory.header;
	for (uint32_t i = 0; i < 3 * SHARE_CHUNK_ROOM / 24; i++)
		put_value(i);
	check_u64(preload.state, PRELOAD_ON);
	check(preload.idle_since_ns != 0);
	/* As if it had been long, but then something was given back. */
	preload.idle_since_ns -= 2 * SHARE_GIVE_UP_MS * 1000000ull;
	world_give_back(1);
	chunk_take();
	for (uint32_t i = 0; i < 3 * SHARE_CHUNK_ROOM / 24; i++)
		put_value(i);
	check_u64(preload.state, PRELOAD_ON);
	check_u64(h->gave_up, 0);
	preload.idle_since_ns -= 2 * SHARE_GIVE_UP_MS * 1000000ull;
	for (uint32_t i = 0; i < 3 * SHARE_CHUNK_ROOM / 24; i++)
		put_value(i);
	check_u64(preload.state, PRELOAD_OFF);
	check_u64(h->gave_up, 1);
	check(!take_begin(&thread));
	check(thread.left == INT64_MAX);
	world_end();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(events_stay_in_order_over_chunks), T(what_finds_no_chunk_is_counted),
		T(a_ring_is_gone_on_with), T(without_a_ring_it_is_counted), T(threads_share_rings_one_after_the_other),
		T(a_chunk_has_one_owner), T(a_damaged_list_of_chunks_is_not_followed),
		T(sampled_blocks_are_marked_and_their_rate_is_told), T(a_free_right_after_says_so),
		T(a_large_size_has_a_word_of_its_own), T(calls_from_within_are_counted), T(failures_are_not_written), T(without_a_reader_it_gives_up));
}
