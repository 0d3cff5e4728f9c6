/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/histogram.h"

/* 0-15 have a bucket each; from there on the three bits below the highest choose. */
static unsigned bucket_of(uint64_t value)
{
	if (value < 16)
		return (unsigned)value;

	unsigned top = 63 - (unsigned)__builtin_clzll(value);

	return (top - 2) * 8 + (unsigned)(value >> (top - 3) & 7);
}

static uint64_t middle_of(unsigned bucket)
{
	if (bucket < 16)
		return bucket;

	unsigned shift = bucket / 8 - 1;

	return ((uint64_t)(8 + bucket % 8) << shift) + ((1ULL << shift) >> 1);
}

void histogram_add(struct histogram *h, uint64_t value)
{
	h->buckets[bucket_of(value)]++;
	h->count++;
	h->sum += value;
	if (value > h->max)
		h->max = value;
}

uint64_t histogram_mean(const struct histogram *h)
{
	return h->count ? h->sum / h->count : 0;
}

uint64_t histogram_quantile(const struct histogram *h, unsigned permille)
{
	uint64_t want = (h->count * permille + 999) / 1000, seen = 0;

	for (unsigned i = 0; i < HISTOGRAM_BUCKETS && want; i++) {
		seen += h->buckets[i];
		if (seen >= h->count)
			return h->max;
		if (seen >= want)
			return middle_of(i);
	}
	return 0;
}
