/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Choosing how many bytes there are between two samples, again and again, from what the last ones have cost and told:
 * docs/heuristics/heap-rate.md.
 */
#ifndef SONDE_HEAP_RATE_H
#define SONDE_HEAP_RATE_H

#include <stdint.h>

#define HEAP_RATE_FIRST (64u << 10) /* where it begins */
#define HEAP_RATE_LEAST 512u
#define HEAP_RATE_MOST (1u << 30)
/* CPU time that a sample takes from the program, with a stack of usual depth. */
#define HEAP_SAMPLE_COST_NS 2500u

/* What is wished; 0: nothing. Fractions: 0.01 is one percent. Of both, the larger rate is taken. */
struct heap_rate_wish {
	double overhead; /* CPU time of samples by that of the program */
	double error;    /* half of the 95 % interval of what is live, by what is live */
};

/* What was seen since the last choice, and of `live` and its variance what there is now. */
struct heap_rate_seen {
	uint64_t samples, cpu_ns;
	double live_bytes, variance;
};

/* The rate that comes after `rate`: at most twice or half of that, so that chance does not throw it about. */
uint64_t heap_rate_next(const struct heap_rate_wish *wish, const struct heap_rate_seen *seen, uint64_t rate);

#endif
