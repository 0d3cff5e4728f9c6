/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/rate.h"

#include <math.h>

#define HALF_WIDTH 1.96 /* of a 95 % interval, in standard deviations */
/* With less CPU time than this nothing can be said of a share of it. */
#define LEAST_CPU_NS 1000000u

/* By how much the rate should be larger for the wished overhead. */
static double factor_of_overhead(double wish, const struct heap_rate_seen *seen)
{
	double most = wish * (double)seen->cpu_ns / HEAP_SAMPLE_COST_NS;

	return seen->cpu_ns < LEAST_CPU_NS ? 1 : ((double)seen->samples + 1) / (most + 1);
}

/* The variance of a sum of small blocks is proportional to the rate. */
static double factor_of_error(double wish, const struct heap_rate_seen *seen)
{
	double now = seen->live_bytes > 0 ? HALF_WIDTH * sqrt(seen->variance) / seen->live_bytes : 0;

	return now > 0 ? wish / now * (wish / now) : 1;
}

uint64_t heap_rate_next(const struct heap_rate_wish *wish, const struct heap_rate_seen *seen, uint64_t rate)
{
	double factor = 0, next;

	if (wish->overhead > 0)
		factor = factor_of_overhead(wish->overhead, seen);
	if (wish->error > 0)
		factor = fmax(factor, factor_of_error(wish->error, seen));
	next = (double)rate * fmin(fmax(factor, 0.5), 2);
	return (uint64_t)fmin(fmax(next, HEAP_RATE_LEAST), HEAP_RATE_MOST);
}
