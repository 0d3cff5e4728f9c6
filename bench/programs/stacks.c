/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * stacks THREADS MS same|new: THREADS threads use MS ms of CPU time each, under stacks of 10 to 60
 * frames: from one and the same few paths ("same"), or each time by another path ("new": at every
 * level one of two functions, by chance).
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spin.h"

static uint64_t each_ms;
static int always_new;

static NOINLINE uint64_t left(unsigned depth, uint64_t way);

static NOINLINE uint64_t leaf(uint64_t way)
{
	spin_until(spin_cpu_ns() + 200000);
	NOT_A_TAIL_CALL;
	return way;
}

static NOINLINE uint64_t right(unsigned depth, uint64_t way)
{
	uint64_t x = !depth ? leaf(way)
		: way & 1   ? left(depth - 1, way >> 1)
			    : right(depth - 1, way >> 1);

	NOT_A_TAIL_CALL;
	return x + 1;
}

static NOINLINE uint64_t left(unsigned depth, uint64_t way)
{
	uint64_t x = !depth ? leaf(way)
		: way & 1   ? left(depth - 1, way >> 1)
			    : right(depth - 1, way >> 1);

	NOT_A_TAIL_CALL;
	return x ^ 1;
}

static void *run(void *arg)
{
	uint64_t random = (uintptr_t)arg, end = spin_cpu_ns() + each_ms * 1000000;

	for (unsigned i = 0; spin_cpu_ns() < end; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		spin_sink = left(10 + i % 50, always_new ? random >> 4 : 0x5555555555555555u);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	unsigned count = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1;
	pthread_t threads[64];

	each_ms = argc > 2 ? strtoull(argv[2], NULL, 10) : 1000;
	always_new = argc > 3 && !strcmp(argv[3], "new");
	puts("ready");
	fflush(stdout);
	for (unsigned i = 0; i < count && i < 64; i++)
		pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)(i + 1));
	for (unsigned i = 0; i < count && i < 64; i++)
		pthread_join(threads[i], NULL);
	return 0;
}
