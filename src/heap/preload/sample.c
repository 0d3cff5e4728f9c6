/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/sample.h"

#include <stdbool.h>

#include "heap/share.h"

/* Longer distances are cut: nothing gets there. */
#define DISTANCE_MOST 0x1p62

uint64_t sample_random(uint64_t *random)
{
	uint64_t x = *random;

	x ^= x >> 12;
	x ^= x << 25;
	x ^= x >> 27;
	*random = x;
	return x * 0x2545f4914f6cdd1du;
}

uint64_t sample_seed(uint64_t word)
{
	uint64_t z = word + 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	z ^= z >> 31;
	return z ? z : 1;
}

double sample_log(double x)
{
	union {
		double number;
		uint64_t bits;
	} u = {.number = x};
	int exponent = (int)(u.bits >> 52 & 0x7ff) - 1023;
	double s, q;

	/* x = m * 2^exponent, m from sqrt(1/2) to sqrt(2); ln m = 2 atanh((m - 1) / (m + 1)). */
	u.bits = (u.bits & 0xfffffffffffffu) | 0x3ff0000000000000u;
	if (u.number > 0x1.6a09e667f3bcdp0) {
		u.number *= 0.5;
		exponent++;
	}
	s = (u.number - 1) / (u.number + 1);
	q = s * s;
	return exponent * 0x1.62e42fefa39efp-1 +
		2 * s * (1 + q * (1.0 / 3 + q * (1.0 / 5 + q * (1.0 / 7 + q * (1.0 / 9 + q * (1.0 / 11 + q / 13))))));
}

/* Exp(1): of a number that is even in (0, 1]. */
static double exponential(uint64_t *random)
{
	return -sample_log((double)((sample_random(random) >> 11) + 1) * 0x1p-53);
}

static int64_t distance(double x)
{
	int64_t n;

	if (x >= DISTANCE_MOST)
		return (int64_t)DISTANCE_MOST;
	n = (int64_t)x;
	n += (double)n < x;
	return n < 1 ? 1 : n;
}

int64_t sample_draw_bytes(uint64_t *random, uint64_t rate)
{
	if (rate <= 1)
		return 1;
	return distance(exponential(random) * (double)rate);
}

int64_t sample_draw_calls(uint64_t *random, uint64_t rate)
{
	double mean = (double)rate;

	if (rate <= 1)
		return 1;
	/* -1 / ln(1 - 1/rate), which is rate - 1/2 - 1/(12 rate) - ... */
	mean = rate < 4096 ? -1 / sample_log(1 - 1 / mean) : mean - 0.5;
	return distance(exponential(random) * mean);
}

uint64_t sample_told[1u << SAMPLE_TOLD_BITS] __attribute__((visibility("hidden")));

void sample_mark(uint8_t *counts, uint64_t address)
{
	uint8_t *count = counts + share_filter_slot(address);
	uint8_t old = __atomic_load_n(count, __ATOMIC_RELAXED);

	if (sample_free_is_told(address))
		__atomic_store_n(sample_told_slot(address), 0, __ATOMIC_RELAXED);
	while (old != UINT8_MAX &&
		!__atomic_compare_exchange_n(count, &old, old + 1, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}
