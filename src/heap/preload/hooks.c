/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that programs call in place of their allocator's.
 *
 * Each is two: the exported one counts down and jumps to the real function, or to its slow half. Both are jumps, so the
 * slow half stands in the stack right above the program's own frame, and the real function's caller is the program. The
 * slow half writes down: an allocation after it was made, a free before.
 */
#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#include "heap/preload/hooks.h"
#include "heap/preload/own.h"

static void *none(void)
{
	errno = ENOMEM;
	return NULL;
}

/* ---- allocating ---- */

SLOW void *malloc_slow(size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;

	if (!real_ready(t))
		return pool_take(0, size);
	if (!take_begin_sampled(t, size))
		return real.malloc(size);
	block = real.malloc(size);
	if (unlikely(preload.tells_sizes))
		take_size(t, block, size, real.usable_size);
	take_allocated(t, block, size, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *malloc(size_t size)
{
	return unlikely(counts(size)) ? malloc_slow(size) : real.malloc(size);
}

SLOW void *calloc_slow(size_t count, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	size_t bytes;
	void *block;

	if (__builtin_mul_overflow(count, size, &bytes))
		return real_ready(t) ? real.calloc(count, size) : none();
	if (!real_ready(t))
		return pool_take(0, bytes);
	if (!take_begin_sampled(t, bytes))
		return real.calloc(count, size);
	block = real.calloc(count, size);
	if (unlikely(preload.tells_sizes))
		take_size(t, block, bytes, real.usable_size);
	take_allocated(t, block, bytes, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *calloc(size_t count, size_t size)
{
	if (unlikely(real.nests))
		return real.calloc(count, size);
	/* What overflows costs something, and the slow half does not write it down. */
	return unlikely(counts(count * size)) ? calloc_slow(count, size) : real.calloc(count, size);
}

SLOW void *memalign_slow(size_t alignment, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;

	if (!real_ready(t))
		return pool_take(alignment, size);
	if (!real.memalign)
		return none();
	if (!take_begin_sampled(t, size))
		return real.memalign(alignment, size);
	block = real.memalign(alignment, size);
	take_allocated(t, block, size, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *memalign(size_t alignment, size_t size)
{
	return unlikely(counts(size)) ? memalign_slow(alignment, size) : real.memalign(alignment, size);
}

SLOW void *aligned_alloc_slow(size_t alignment, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;

	if (!real_ready(t))
		return pool_take(alignment, size);
	if (!real.aligned_alloc)
		return none();
	if (!take_begin_sampled(t, size))
		return real.aligned_alloc(alignment, size);
	block = real.aligned_alloc(alignment, size);
	take_allocated(t, block, size, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *aligned_alloc(size_t alignment, size_t size)
{
	return unlikely(counts(size)) ? aligned_alloc_slow(alignment, size) : real.aligned_alloc(alignment, size);
}

SLOW int posix_memalign_slow(void **ret, size_t alignment, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;
	int error;

	if (!real_ready(t)) {
		block = pool_take(alignment, size);
		if (!block)
			return ENOMEM;
		*ret = block;
		return 0;
	}
	if (!real.posix_memalign)
		return ENOMEM;
	if (!take_begin_sampled(t, size))
		return real.posix_memalign(ret, alignment, size);
	error = real.posix_memalign(ret, alignment, size);
	take_allocated(t, error ? NULL : *ret, size, &here);
	take_end(t);
	return error;
}

PRELOAD_EXPORT int posix_memalign(void **ret, size_t alignment, size_t size)
{
	return unlikely(counts(size)) ? posix_memalign_slow(ret, alignment, size)
				      : real.posix_memalign(ret, alignment, size);
}

SLOW void *valloc_slow(size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;

	if (!real_ready(t))
		return pool_take(4096, size);
	if (!real.valloc)
		return none();
	if (!take_begin_sampled(t, size))
		return real.valloc(size);
	block = real.valloc(size);
	take_allocated(t, block, size, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *valloc(size_t size)
{
	return unlikely(counts(size)) ? valloc_slow(size) : real.valloc(size);
}

SLOW void *pvalloc_slow(size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *block;

	if (!real_ready(t))
		return pool_take(4096, size);
	if (!real.pvalloc)
		return none();
	if (!take_begin_sampled(t, size))
		return real.pvalloc(size);
	block = real.pvalloc(size);
	take_allocated(t, block, size, &here);
	take_end(t);
	return block;
}

PRELOAD_EXPORT void *pvalloc(size_t size)
{
	return unlikely(counts(size)) ? pvalloc_slow(size) : real.pvalloc(size);
}

/* ---- freeing ---- */

SLOW void free_slow(void *block)
{
	struct walk_start here = HERE();

	if (pool_has(block) || !real_ready(&thread))
		return;
	freed(block, &here);
	real.free(block);
}

SLOW void free_plainly(void *block)
{
	if (likely(!pool_has(block) && take_freed_plainly(&thread, block)))
		real.free(block);
	else
		free_slow(block);
}

PRELOAD_EXPORT void free(void *block)
{
	if (!block)
		return;
	if (of_interest(block))
		free_plainly(block);
	else
		real.free(block);
}

PRELOAD_EXPORT void cfree(void *block);
PRELOAD_EXPORT void cfree(void *block)
{
	if (block)
		free_slow(block);
}

SLOW void free_sized_slow(void *block, size_t size)
{
	struct walk_start here = HERE();

	if (pool_has(block) || !real_ready(&thread))
		return;
	freed(block, &here);
	if (real.free_sized)
		real.free_sized(block, size);
	else
		real.free(block);
}

PRELOAD_EXPORT void free_sized(void *block, size_t size);
PRELOAD_EXPORT void free_sized(void *block, size_t size)
{
	if (block)
		free_sized_slow(block, size);
}

SLOW void free_aligned_sized_slow(void *block, size_t alignment, size_t size)
{
	struct walk_start here = HERE();

	if (pool_has(block) || !real_ready(&thread))
		return;
	freed(block, &here);
	if (real.free_aligned_sized)
		real.free_aligned_sized(block, alignment, size);
	else
		real.free(block);
}

PRELOAD_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size);
PRELOAD_EXPORT void free_aligned_sized(void *block, size_t alignment, size_t size)
{
	if (block)
		free_aligned_sized_slow(block, alignment, size);
}

/* ---- resizing ---- */

/* A block of the pool becomes one of the allocator. */
static void *realloc_pool(struct thread *t, uint8_t *block, size_t size)
{
	size_t old = pool_size(block);
	uint8_t *fresh = real_ready(t) ? real.malloc(size) : pool_take(0, size);

	for (size_t i = 0; fresh && i < size && i < old; i++)
		fresh[i] = block[i];
	return fresh;
}

/* To 0 bytes: it is freed, and what comes back, if anything, is a new block. */
static void *realloc_to_nothing(struct thread *t, void *block, bool may_be_sampled, bool sampled,
	const struct walk_start *here)
{
	void *fresh;

	if (may_be_sampled)
		take_freed(t, block, here);
	fresh = real.realloc(block, 0);
	if (sampled)
		take_allocated(t, fresh, 0, here);
	return fresh;
}

SLOW void *realloc_slow(void *block, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	bool sampled, old;
	void *fresh;

	if (pool_has(block))
		return realloc_pool(t, block, size);
	if (!real_ready(t))
		return block ? none() : pool_take(0, size);
	if (!take_begin(t))
		return real.realloc(block, size);
	sampled = take_sampled(t, size);
	old = block && preload.mode != SHARE_EVERY && of_interest(block);
	if (block && !size) {
		fresh = realloc_to_nothing(t, block, old, sampled, &here);
	} else {
		if (old)
			take_moving(t, block);
		fresh = real.realloc(block, size);
		if (old)
			take_moved(t, fresh, size, sampled, &here);
		else if (sampled)
			take_allocated(t, fresh, size, &here);
	}
	take_end(t);
	return fresh;
}

PRELOAD_EXPORT void *realloc(void *block, size_t size)
{
	bool counted = counts(size);

	if (unlikely(counted || (block && of_interest(block))))
		return realloc_slow(block, size);
	return real.realloc(block, size);
}

PRELOAD_EXPORT void *reallocarray(void *block, size_t count, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(count, size, &bytes))
		return none();
	if (unlikely(counts(bytes) || (block && of_interest(block))))
		return realloc_slow(block, bytes);
	return real.realloc(block, bytes);
}

/* ---- asking ---- */

PRELOAD_EXPORT size_t malloc_usable_size(void *block)
{
	if (!block)
		return 0;
	if (pool_has(block))
		return pool_size(block);
	return real_ready(&thread) && real.usable_size ? real.usable_size(block) : 0;
}

/* ---- for programs that are attached to ---- */

OWN_ALIAS(malloc);
OWN_ALIAS(free);
OWN_ALIAS(calloc);
OWN_ALIAS(realloc);
OWN_ALIAS(reallocarray);
OWN_ALIAS(memalign);
OWN_ALIAS(posix_memalign);
OWN_ALIAS(aligned_alloc);
OWN_ALIAS(valloc);
OWN_ALIAS(pvalloc);
OWN_ALIAS(cfree);
OWN_ALIAS(free_sized);
OWN_ALIAS(free_aligned_sized);
