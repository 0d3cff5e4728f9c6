/* SPDX-License-Identifier: BSD-2-Clause */
/* What a call of libsonde-capture takes, recorded or not: ns a call, the best of some rounds. */
#include <sonde/capture.h>

#include <stdio.h>

#define ROUNDS 9
#define CALLS 200000

static uint32_t counter, pool;

static void nothing(int i)
{
	__asm__ volatile("" : : "r"(i) : "memory");
}

static void clock_alone(int i)
{
	nothing((int)sonde_clock() + i);
}

static void value(int i)
{
	sonde_counter_set(counter, i);
}

static void mark(int i)
{
	sonde_mark((uint64_t)i, 1, "group", "name", "message");
}

static void scope(int i)
{
	uint64_t begin = sonde_mark_begin();

	nothing(i);
	sonde_mark_end(begin, "group", "name", "message");
}

static void block(int i)
{
	sonde_alloc(pool, (const void *)(uintptr_t)(4096 + i), 64);
	sonde_free(pool, (const void *)(uintptr_t)(4096 + i));
}

static void measure(const char *name, void (*volatile call)(int))
{
	uint64_t best = UINT64_MAX;

	for (int round = 0; round < ROUNDS; round++) {
		uint64_t begin = sonde_clock(), took;

		for (int i = 0; i < CALLS; i++)
			call(i);
		took = sonde_clock() - begin;
		best = took < best ? took : best;
	}
	printf("  %-22s %7.2f ns\n", name, (double)best / CALLS);
}

int main(void)
{
	printf("%s\n", sonde_is_recording() ? "recorded" : "nobody records");
	/* Numbers as if somebody had recorded when they were defined: else calls end at once for want of them. */
	counter = sonde_counter_define("bench", "counter", "", SONDE_COUNTER_INT64) | 2;
	pool = sonde_pool_define("bench") | 1;
	measure("an empty function", nothing);
	measure("the clock", clock_alone);
	measure("counter", value);
	measure("mark", mark);
	measure("mark_begin, mark_end", scope);
	measure("alloc, free", block);
	return 0;
}
