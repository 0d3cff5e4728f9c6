/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How numbers are distributed, in little memory: counts in buckets that are an eighth of a power of
 * two wide, so that a quantile is told to within 7 %. All-zero is the empty histogram.
 */
#ifndef SONDE_BASE_HISTOGRAM_H
#define SONDE_BASE_HISTOGRAM_H

#include <stdint.h>

#define HISTOGRAM_BUCKETS (62 * 8)

struct histogram {
	uint64_t count, sum, max;
	uint64_t buckets[HISTOGRAM_BUCKETS];
};

void histogram_add(struct histogram *h, uint64_t value);
uint64_t histogram_mean(const struct histogram *h); /* 0 when empty */

/* The value that `permille` of 1000 values are not above: the middle of its bucket, the largest one
 * exactly. 0 when empty. */
uint64_t histogram_quantile(const struct histogram *h, unsigned permille);

#endif
