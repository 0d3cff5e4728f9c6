/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <stdlib.h>

#include "sample/perf/early.h"
#include "sample/perf/early_store.h"

static bool put(struct early_store *q, uint64_t position, size_t room)
{
	struct early_entry *e = early_store_reserve(q, room);

	if (!e)
		return false;
	e->position = position;
	e->size = (uint32_t)room;
	for (size_t i = 0; i < room; i++)
		e->bytes[i] = (uint8_t)(position + i);
	early_store_publish(q);
	return true;
}

static bool intact(const struct early_entry *e, size_t room)
{
	for (size_t i = 0; e && i < room; i++)
		if (e->bytes[i] != (uint8_t)(e->position + i))
			return false;
	return e && e->size == room;
}

TEST(store_keeps_what_was_put)
{
	struct early_store q;

	check(!early_store_init(&q));
	check(!early_store_find(&q, 8));
	check(put(&q, 8, 100) && put(&q, 16, 1) && put(&q, 24, 4096));
	check(intact(early_store_find(&q, 16), 1));
	check(intact(early_store_find(&q, 24), 4096));
	early_store_drop(&q, 16);
	check(!early_store_find(&q, 8) && !early_store_find(&q, 16));
	check(intact(early_store_find(&q, 24), 4096));
	/* Reserved, but not published: not there. */
	check(early_store_reserve(&q, 10));
	early_store_drop(&q, 1000);
	check(q.head == q.tail && !early_store_find(&q, 24));
	early_store_release(&q);
}

/* Sizes that do not divide the store: every way of reaching its end. */
TEST(store_goes_round)
{
	struct early_store q;
	uint64_t position = 8;

	check(!early_store_init(&q));
	for (int i = 0; i < 2000; i++) {
		size_t room = (size_t)(i * 7919 % 40000);

		check(put(&q, position, room));
		check(intact(early_store_find(&q, position), room));
		if (i % 3 == 2)
			early_store_drop(&q, position);
		position += 8;
	}
	early_store_release(&q);
}

TEST(store_is_full_at_some_time)
{
	struct early_store q;
	uint64_t count = 0;

	check(!early_store_init(&q));
	check(!early_store_is_filling(&q));
	while (put(&q, 8 * (count + 1), 10000))
		count++;
	check(early_store_is_filling(&q));
	check(count > EARLY_STORE_BYTES / 10100 - 2 && count <= EARLY_STORE_BYTES / 10000);
	check(intact(early_store_find(&q, 8), 10000));
	early_store_drop(&q, 8);
	check(put(&q, 8 * (count + 1), 10000));
	check(!early_store_reserve(&q, EARLY_STORE_BYTES));
	early_store_release(&q);
}

/* Those of a bunch come youngest first: the order of the queue is not that of the positions. */
TEST(store_out_of_order)
{
	struct early_store q;

	check(!early_store_init(&q));
	check(put(&q, 32, 10) && put(&q, 16, 10) && put(&q, 48, 10));
	early_store_drop(&q, 16);
	check(intact(early_store_find(&q, 32), 10) && early_store_find(&q, 48));
	early_store_drop(&q, 32);
	check(!early_store_find(&q, 32) && !early_store_find(&q, 16) && early_store_find(&q, 48));
	early_store_release(&q);
}

TEST(wants_follow_the_stacks)
{
	static struct early_wants w;
	size_t first = early_wants_get(&w, 77), deep;

	check(first > 0);
	early_wants_note(&w, 77, 50000, false, false);
	deep = early_wants_get(&w, 77);
	check(deep >= 50000 && deep < 60000);
	/* A thread that fits is forgotten slowly, and then costs nothing. */
	early_wants_note(&w, 77, 0, false, false);
	check(early_wants_get(&w, 77) > 48000);
	for (int i = 0; i < 300; i++)
		early_wants_note(&w, 77, 0, false, false);
	check_u64(early_wants_get(&w, 77), 0);
	/* What was cut needs more than there was. */
	early_wants_note(&w, 77, 0, true, false);
	check(early_wants_get(&w, 77) >= first);
	for (int i = 0; i < 10; i++)
		early_wants_note(&w, 77, 0, true, false);
	check(early_wants_get(&w, 77) >= 4 * first && early_wants_get(&w, 77) <= 8 * first);
	/* Another thread in the same slot knows nothing. */
	check_u64(early_wants_get(&w, 77 + EARLY_WANTS), first);
}

/* A thread that runs on two stacks in turn is looked at for a while. */
TEST(wants_remember_another_stack)
{
	static struct early_wants w;

	check(!early_wants_other(&w, 77));
	early_wants_note(&w, 77, 20000, false, true);
	check(early_wants_other(&w, 77) && early_wants_get(&w, 77) >= 20000);
	for (int i = 0; i < 200; i++)
		early_wants_note(&w, 77, 0, false, false);
	check(early_wants_other(&w, 77) && !early_wants_other(&w, 77 + EARLY_WANTS));
	for (int i = 0; i < 100; i++)
		early_wants_note(&w, 77, 0, false, false);
	check(!early_wants_other(&w, 77));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(store_keeps_what_was_put), T(store_goes_round),
		T(store_is_full_at_some_time), T(store_out_of_order), T(wants_follow_the_stacks),
		T(wants_remember_another_stack));
}
