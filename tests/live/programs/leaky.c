/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * leaky SECONDS: loses 1 MiB a minute, in blocks of 1747 bytes, ten a second. A cache fills up in the first half, to
 * 4 MiB, and then throws out what it replaces. A buffer goes up and down.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spin.h"

#define STEPS_PER_S 10u
#define LOST_BYTES 1747u
#define CACHE_BLOCKS 4096u
#define CACHE_BYTES 1024u

static void *cache[CACHE_BLOCKS];
static void **lost;

NOINLINE void lose(void)
{
	void **block = malloc(LOST_BYTES);

	*block = lost;
	lost = block;
	NOT_A_TAIL_CALL;
}

NOINLINE void put(unsigned at)
{
	free(cache[at]);
	cache[at] = malloc(CACHE_BYTES + at % 16);
	NOT_A_TAIL_CALL;
}

NOINLINE void *buffer(void *old, unsigned step)
{
	void *bytes = realloc(old, 20000 + step % 7 * 30000);

	NOT_A_TAIL_CALL;
	return bytes;
}

/* Steps at their time, however long they take. */
static void wait_for(const struct timespec *began, unsigned step)
{
	struct timespec at = *began;

	at.tv_sec += step / STEPS_PER_S;
	at.tv_nsec += step % STEPS_PER_S * (1000000000 / STEPS_PER_S);
	if (at.tv_nsec >= 1000000000) {
		at.tv_nsec -= 1000000000;
		at.tv_sec++;
	}
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL);
}

int main(int argc, char **argv)
{
	unsigned steps = argc > 1 ? (unsigned)atoi(argv[1]) * STEPS_PER_S : STEPS_PER_S, put_per_step, next = 0;
	struct timespec began;
	void *bytes = NULL;

	put_per_step = 2 * CACHE_BLOCKS / steps + 1;
	clock_gettime(CLOCK_MONOTONIC, &began);
	for (unsigned step = 0; step < steps; step++) {
		lose();
		for (unsigned i = 0; i < put_per_step; i++)
			put(next++ % CACHE_BLOCKS);
		bytes = buffer(bytes, step);
		wait_for(&began, step + 1);
	}
	return !bytes;
}
