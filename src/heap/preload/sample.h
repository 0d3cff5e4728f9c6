/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which calls are sampled. A thread counts down bytes (or calls), and the call that reaches 0 is sampled; then the next
 * distance is drawn.
 *
 *	bytes   Exp(mean rate), rounded up: a block of S bytes is sampled with 1 - exp(-S / rate), whatever came before it
 *	calls   geometric with mean rate: each call is sampled with 1 / rate
 *
 * A block of 0 bytes counts as one of 1 byte.
 */
#ifndef SONDE_HEAP_PRELOAD_SAMPLE_H
#define SONDE_HEAP_PRELOAD_SAMPLE_H

#include <stdint.h>

/* *random: anything but 0. */
uint64_t sample_random(uint64_t *random);
/* A start for it that is not 0, different for different words. */
uint64_t sample_seed(uint64_t word);

/* Natural logarithm of a positive, normal number; error below 1e-10. */
double sample_log(double x);

/* Distances, >= 1. Rates 0 and 1: always 1. */
int64_t sample_draw_bytes(uint64_t *random, uint64_t rate);
int64_t sample_draw_calls(uint64_t *random, uint64_t rate);

/* Counters of the filter, which other threads and the collector change too: one that is at 255 stays there. */
void sample_mark(uint8_t *counts, uint64_t address);

/* What a block of `size` bytes costs. `mask`: all ones when bytes count, 0 when calls do. The top bit is left out, so that
 * sizes nobody can allocate do not count backwards. */
#define SAMPLE_BYTES_MASK (UINT64_MAX >> 2)

static inline int64_t sample_cost(uint64_t size, uint64_t mask)
{
	uint64_t cost = size & mask;

	return (int64_t)(cost + (cost == 0));
}

#endif
