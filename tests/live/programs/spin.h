/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Using a known amount of CPU time, for programs whose profile is known beforehand.
 *
 * Time is the thread's own CPU time, so a busy machine does not change the answer. The clock is a
 * system call, so it is asked once in some 10 us of arithmetic.
 */
#ifndef SONDE_TESTS_SPIN_H
#define SONDE_TESTS_SPIN_H

#include <stdint.h>
#include <time.h>

#define NOINLINE __attribute__((noinline))
/* Keeps the call before it from becoming a jump. */
#define NOT_A_TAIL_CALL __asm__ volatile("" ::: "memory")

static inline uint64_t spin_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static volatile uint64_t spin_sink;

/* Returns at `until_ns` of the thread's CPU time. */
static NOINLINE void spin_until(uint64_t until_ns)
{
	uint64_t x = until_ns | 1;

	while (spin_cpu_ns() < until_ns) {
		for (int i = 0; i < 6000; i++)
			x = x * 6364136223846793005u + 1442695040888963407u;
		spin_sink = x;
	}
}

static inline void spin_ms(uint64_t ms)
{
	spin_until(spin_cpu_ns() + ms * 1000000u);
}

#endif
