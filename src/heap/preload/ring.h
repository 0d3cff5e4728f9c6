/* SPDX-License-Identifier: BSD-2-Clause */
/* Appending events to the calling thread's ring. */
#ifndef SONDE_HEAP_PRELOAD_RING_H
#define SONDE_HEAP_PRELOAD_RING_H

#include "heap/preload/preload.h"

/* The slow part of ring_reserve. */
uint64_t *ring_grow(struct thread *t, uint32_t bytes);

/* Room for an event of so many bytes, a multiple of 8 and at most SHARE_CHUNK_ROOM. NULL: there is none, that is counted. */
static inline uint64_t *ring_reserve(struct thread *t, uint32_t bytes)
{
	if (unlikely(!t->chunk || t->used + bytes > SHARE_CHUNK_ROOM))
		return ring_grow(t, bytes);
	return (uint64_t *)(void *)((uint8_t *)(t->chunk + 1) + t->used);
}

/* The collector has read what was here before: its lines are in another CPU's cache, and are fetched before they are
 * written. Beyond the chunk's end that does no harm. */
static inline void ring_fetch_ahead(const void *at)
{
#if defined(__x86_64__)
	__asm__ volatile("prefetchw 256(%0)" : : "r"(at));
#elif defined(__aarch64__)
	__asm__ volatile("prfm pstl1keep, [%0, #256]" : : "r"(at));
#endif
}

/* What was written to the last room, or its beginning, is an event from now on. */
static inline void ring_commit(struct thread *t, uint32_t bytes)
{
	t->used += bytes;
	ring_fetch_ahead((const uint8_t *)t->chunk + t->used);
	__atomic_store_n(&t->chunk->used, t->used, __ATOMIC_RELEASE);
}

#endif
