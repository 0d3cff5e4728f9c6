/* SPDX-License-Identifier: BSD-2-Clause */
/* The times of events: by the clock that the collector has chosen (enum share_clock). */
#ifndef SONDE_HEAP_PRELOAD_CLOCK_H
#define SONDE_HEAP_PRELOAD_CLOCK_H

#include <stdint.h>
#include <time.h>

#include "heap/share.h"

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec ts = {0};

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* A moment that is not after the next store of this thread that others can see. */
static inline uint64_t clock_before(uint32_t clock)
{
#if defined(__x86_64__)
	if (clock == SHARE_CLOCK_COUNTER)
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	if (clock == SHARE_CLOCK_COUNTER) {
		uint64_t count;

		__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(count) : : "memory");
		return count;
	}
#endif
	return clock_ns(CLOCK_MONOTONIC);
}

/* A moment that is not before what this thread has read until now: the counter is not read ahead of it. */
static inline uint64_t clock_after(uint32_t clock)
{
#if defined(__x86_64__)
	if (clock == SHARE_CLOCK_COUNTER) {
		__asm__ volatile("lfence" : : : "memory");
		return __builtin_ia32_rdtsc();
	}
#endif
	return clock_before(clock);
}

#endif
