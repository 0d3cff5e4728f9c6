/* SPDX-License-Identifier: BSD-2-Clause */
/* Spends about 3/4 of its time in hot_inlined(), inlined into hot(), and 1/4 in cold(). The
 * argument is how long, in ms of CPU time. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static volatile uint64_t sink;

static inline __attribute__((always_inline)) void hot_inlined(unsigned rounds)
{
	for (unsigned i = 0; i < rounds; i++)
		sink = sink * 31 + i;
}

static __attribute__((noinline)) void hot(void)
{
	hot_inlined(30000);
	sink++;
}

static __attribute__((noinline)) void cold(void)
{
	for (unsigned i = 0; i < 10000; i++)
		sink = sink * 17 + i;
	sink++;
}

int main(int argc, char **argv)
{
	clock_t end =
		(clock_t)(strtol(argc > 1 ? argv[1] : "500", NULL, 10) * (CLOCKS_PER_SEC / 1000));

	while (clock() < end) {
		hot();
		cold();
	}
	printf("%llu\n", (unsigned long long)sink);
	return 0;
}
