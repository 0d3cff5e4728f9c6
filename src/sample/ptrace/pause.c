/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/ptrace/pause.h"

/* Below PAUSE_STEPS the number itself; then the four bits after the highest one. */
static unsigned bucket_of(uint64_t ns)
{
	unsigned power;

	if (ns < PAUSE_STEPS)
		return (unsigned)ns;
	power = 63 - (unsigned)__builtin_clzll(ns);
	return (power - 3) * PAUSE_STEPS + ((unsigned)(ns >> (power - 4)) & (PAUSE_STEPS - 1));
}

static uint64_t upper_bound(unsigned bucket)
{
	unsigned power = bucket / PAUSE_STEPS + 3;

	if (bucket < PAUSE_STEPS)
		return bucket;
	return ((PAUSE_STEPS + (uint64_t)(bucket % PAUSE_STEPS) + 1) << (power - 4)) - 1;
}

void pauses_add(struct pauses *p, uint64_t ns)
{
	p->count++;
	p->buckets[bucket_of(ns)]++;
	if (ns > p->max_ns)
		p->max_ns = ns;
}

uint64_t pauses_permille(const struct pauses *p, unsigned permille)
{
	uint64_t want = (p->count * permille + 999) / 1000, seen = 0;

	for (unsigned i = 0; i < PAUSE_BUCKETS; i++) {
		seen += p->buckets[i];
		if (seen && seen >= want)
			return upper_bound(i) < p->max_ns ? upper_bound(i) : p->max_ns;
	}
	return p->max_ns;
}
