/* SPDX-License-Identifier: BSD-2-Clause */
/* What all hooks of an allocator ask before they look closer. */
#ifndef SONDE_HEAP_PRELOAD_HOOKS_H
#define SONDE_HEAP_PRELOAD_HOOKS_H

#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/sample.h"
#include "heap/preload/take.h"

/* An allocation of `size` bytes: is it to be looked at? */
static inline bool counts(size_t size)
{
	int64_t left = thread.left - sample_cost(size, preload.size_mask);

	thread.left = left;
	return left <= 0;
}

/* What is freed: not when the filter knows that it is of no interest. */
static inline bool of_interest(const void *block)
{
	const uint8_t *filter = __atomic_load_n(&preload.filter, __ATOMIC_RELAXED);

	return !filter || (filter[share_filter_slot((uintptr_t)block)] && !sample_free_is_told((uintptr_t)block)) ||
		pool_has(block);
}

/* A block that is about to be freed, and may be of interest. */
static inline void freed(void *block, const struct walk_start *here)
{
	struct thread *t = &thread;
	bool call = preload.mode == SHARE_EVERY;

	if (call && !counts(0))
		return;
	if (!(call ? take_begin_sampled(t, 0) : take_begin(t)))
		return;
	take_freed(t, block, here);
	take_end(t);
}

#endif
