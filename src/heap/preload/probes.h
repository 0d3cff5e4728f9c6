/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes of the provider otel_memory, for tools that look at sampled allocations by them (USDT, a note of SystemTap's form in
 * .note.stapsdt, https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation):
 *
 *	alloc(pointer, size, weight)  a sampled block; weight: how many bytes it stands for
 *	free(pointer)                 it is about to be freed; now and then also of a block that was not sampled
 *
 * Whoever listens counts a semaphore up; as long as nobody does, it costs a look at that, with a sampled block alone.
 */
#ifndef SONDE_HEAP_PRELOAD_PROBES_H
#define SONDE_HEAP_PRELOAD_PROBES_H

#include <stdint.h>

#include "heap/preload/preload.h"

extern volatile uint16_t otel_memory_alloc_semaphore __attribute__((visibility("hidden")));
extern volatile uint16_t otel_memory_free_semaphore __attribute__((visibility("hidden")));

void probe_alloc(const void *block, uint64_t size, uint64_t rate);
void probe_free(const void *block);

static inline bool probe_alloc_wanted(void)
{
	return unlikely(otel_memory_alloc_semaphore != 0);
}

static inline bool probe_free_wanted(void)
{
	return unlikely(otel_memory_free_semaphore != 0);
}

#endif
