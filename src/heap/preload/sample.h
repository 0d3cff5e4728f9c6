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

#include <stdbool.h>
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

/*
 * Addresses whose last free was told, as many as there is room for. Until such a one is marked again its frees are of no
 * interest: allocators like to give out what was freed last, and the collector takes its time to lower the counter.
 */
#define SAMPLE_TOLD_BITS 10
extern uint64_t sample_told[1u << SAMPLE_TOLD_BITS];

static inline uint64_t *sample_told_slot(uint64_t address)
{
	return &sample_told[((address >> 4) * 0x9e3779b97f4a7c15u) >> (64 - SAMPLE_TOLD_BITS)];
}

/* Before the block is given back. */
static inline void sample_tell_free(uint64_t address)
{
	__atomic_store_n(sample_told_slot(address), address, __ATOMIC_RELAXED);
}

static inline bool sample_free_is_told(uint64_t address)
{
	return __atomic_load_n(sample_told_slot(address), __ATOMIC_RELAXED) == address;
}

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
