/* SPDX-License-Identifier: BSD-2-Clause */
/* The memory of calls that come while the real allocator is looked for. */
#include "heap/preload/real.h"

#include <pthread.h>
#include <string.h>

#include "heap/preload/preload.h"
#include "test.h"

/* In order: the pool is one for the process and gives nothing back. */
TEST(blocks_are_aligned_and_zero)
{
	static const size_t alignments[] = {0, 1, 16, 64, 4096};
	uint8_t *last_end = pool;

	for (int i = 0; i < 5; i++) {
		uint8_t *p = pool_take(alignments[i], 100);

		check(p && p >= last_end && pool_has(p) && pool_has(p + 99));
		if (!p)
			return;
		check((uintptr_t)p % (alignments[i] > 16 ? alignments[i] : 16) == 0);
		check_u64(pool_size(p), 100);
		for (int k = 0; k < 100; k++)
			check(p[k] == 0);
		memset(p, 0xff, 100);
		last_end = p + 100;
	}
	check(!pool_has((void *)((uintptr_t)pool - 1)) && !pool_has(pool + POOL_BYTES) && !pool_has(NULL));
}

TEST(what_it_cannot_give_it_refuses)
{
	check(!pool_take(24, 10));
	check(!pool_take(8192, 10));
	check(!pool_take(0, POOL_BYTES + 1));
	check(!pool_take(0, SIZE_MAX));
	check(!pool_take(0, SIZE_MAX - 8));
}

static uint8_t owner[POOL_BYTES];

static void *take_some(void *number)
{
	for (int i = 0; i < 200; i++) {
		uint8_t *p = pool_take(0, 32);

		for (int k = 0; p && k < 32; k++)
			__atomic_fetch_add(&owner[p - pool + k], 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

TEST(blocks_do_not_overlap)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		check(!pthread_create(&threads[i], NULL, take_some, NULL));
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < POOL_BYTES; i++)
		check(owner[i] <= 1);
}

TEST(it_ends)
{
	int n = 0;

	while (pool_take(0, 1000) && n < 1000)
		n++;
	check(n > 0 && n < 66);
	check(!pool_take(0, 1000));
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(blocks_are_aligned_and_zero), T(what_it_cannot_give_it_refuses),
		T(blocks_do_not_overlap), T(it_ends));
}
