/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work ROUNDS [THREADS]: a fixed amount of work under stacks of 10 to 60 frames; prints the CPU time it took
 * in ns. With ROUNDS 0 it goes on until it is killed, in so many threads.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static __attribute__((noinline)) uint64_t left(unsigned depth, uint64_t x);

static __attribute__((noinline)) uint64_t leaf(uint64_t x)
{
	for (int i = 0; i < 2000; i++)
		x = x * 6364136223846793005u + 1442695040888963407u;
	sink = x;
	return x;
}

static __attribute__((noinline)) uint64_t right(unsigned depth, uint64_t x)
{
	volatile uint64_t local[8] = {x};

	return (depth ? left(depth - 1, x) : leaf(x)) + local[0];
}

static __attribute__((noinline)) uint64_t left(unsigned depth, uint64_t x)
{
	volatile uint64_t local[4] = {x};

	return (depth ? right(depth - 1, x) : leaf(x)) ^ local[0];
}

static void *work(void *rounds)
{
	uint64_t x = 1;

	for (uint64_t i = 0; !rounds || i < (uintptr_t)rounds; i++)
		x = left(10 + i % 50, x);
	return (void *)(uintptr_t)x;
}

int main(int argc, char **argv)
{
	uintptr_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0;
	long threads = argc > 2 ? strtol(argv[2], NULL, 10) : 1;
	struct timespec cpu;

	puts("ready");
	fflush(stdout);
	for (pthread_t other; threads > 1; threads--)
		if (pthread_create(&other, NULL, work, (void *)rounds))
			return 1;
	work((void *)rounds);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	printf("%" PRIu64 "\n", (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
	return 0;
}
