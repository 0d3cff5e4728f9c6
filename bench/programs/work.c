/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * work ROUNDS: a fixed amount of work under stacks of 10 to 60 frames; prints the CPU time it took
 * in ns. With ROUNDS 0 it goes on until it is killed.
 */
#include <inttypes.h>
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

int main(int argc, char **argv)
{
	uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 0, x = 1;
	struct timespec cpu;

	puts("ready");
	fflush(stdout);
	for (uint64_t i = 0; !rounds || i < rounds; i++)
		x = left(10 + i % 50, x);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
	printf("%" PRIu64 "\n", (uint64_t)cpu.tv_sec * 1000000000u + (uint64_t)cpu.tv_nsec);
	return x == 0;
}
