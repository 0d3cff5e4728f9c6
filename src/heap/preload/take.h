/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing calls of the allocator down. A hook whose call is of interest does
 *
 *	if (!take_begin_sampled(t, size))
 *		return the real function's value;
 *	... the real function, and what take_...() is told of it
 *	take_end(t);
 *
 * Between the two all other calls of the thread pass through unseen: those that the allocator itself makes, and those of
 * signal handlers, which are counted as lost.
 */
#ifndef SONDE_HEAP_PRELOAD_TAKE_H
#define SONDE_HEAP_PRELOAD_TAKE_H

#include "heap/preload/clock.h"
#include "heap/preload/preload.h"
#include "heap/preload/ring.h"
#include "heap/preload/sample.h"

/* The slow parts: whatever is not as usual; a thread's first allocation. */
bool take_unusual(struct thread *t);
bool take_first(struct thread *t, uint64_t size);

/* False: nothing is to be written, and there is no take_end. */
static inline bool take_begin(struct thread *t)
{
	if (unlikely(t->busy)) {
		preload_lost(SHARE_LOST_REENTERED);
		return false;
	}
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	/* A thread with a generation has seen that all is set up. */
	if (unlikely(!t->generation || *preload.alive != t->generation || preload.memory.header->stop ||
		    preload.state != PRELOAD_ON) &&
		!take_unusual(t))
		return false;
	if (preload.mode == SHARE_EXACT)
		t->left = 0;
	return true;
}

/* In between: is the block of `size` bytes that has just been counted a sampled one? */
static inline bool take_sampled(struct thread *t, uint64_t size)
{
	return t->left <= 0 && (preload.mode == SHARE_EXACT || likely(t->random) || take_first(t, size));
}

/* The slow part: a distance is drawn, a borrowed ring is given back. */
void take_end_otherwise(struct thread *t);

static inline void take_end(struct thread *t)
{
	if (unlikely(preload.mode != SHARE_EXACT || preload.options & SHARE_OPTION_TIMES || t->ended))
		take_end_otherwise(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}

/* For allocations: it begins when the block is a sampled one. */
static inline bool take_begin_sampled(struct thread *t, uint64_t size)
{
	if (!take_begin(t))
		return false;
	if (likely(take_sampled(t, size)))
		return true;
	take_end(t);
	return false;
}

/* The stack of the thread from `here` on, as a node; when it has to be walked by the collector, that stands in the ring,
 * for the event that comes next, and there is no node. */
uint32_t stack_take(struct thread *t, const struct walk_start *here);

/* While there is one ring, its order is the order of everything, and a time may be some instructions early. */
static inline uint64_t take_time(void)
{
	if (__atomic_load_n(&preload.memory.header->ring_count, __ATOMIC_RELAXED) > 1)
		return clock_after(preload.clock);
	return clock_before(preload.clock);
}

void take_allocated_otherwise(struct thread *t, void *block, uint64_t size, const struct walk_start *here);
void take_freed_otherwise(struct thread *t, void *block, const struct walk_start *here);

/* A block is there, from a call of the function that `here` is in. */
static inline void take_allocated(struct thread *t, void *block, uint64_t size, const struct walk_start *here)
{
	uint32_t node;
	uint64_t *e;

	if (unlikely(!block))
		return;
	if (unlikely(preload.mode != SHARE_EXACT || size >= SHARE_LARGE)) {
		take_allocated_otherwise(t, block, size, here);
		return;
	}
	node = stack_take(t, here);
	e = ring_reserve(t, 24);
	if (unlikely(!e))
		return;
	e[0] = take_time();
	e[1] = SHARE_WORD(SHARE_ALLOC, (uintptr_t)block);
	e[2] = (uint64_t)node << 32 | size;
	ring_commit(t, 24);
}

/* The allocator is asked what it has made of `size` bytes, the first time that it is asked for so many. */
void take_size(struct thread *t, void *block, uint64_t size, size_t (*usable_size)(void *));

/* A block is about to be freed. */
static inline void take_freed(struct thread *t, void *block, const struct walk_start *here)
{
	uint64_t *e;

	if (unlikely(preload.mode != SHARE_EXACT || preload.options & SHARE_OPTION_FREE_STACKS)) {
		take_freed_otherwise(t, block, here);
		return;
	}
	e = ring_reserve(t, 16);
	if (unlikely(!e))
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(SHARE_FREE, (uintptr_t)block);
	ring_commit(t, 16);
}

/* The same in one piece, where nothing is special. False: it was not written, take_begin() and the others have to look. */
static inline bool take_freed_plainly(struct thread *t, void *block)
{
	uint64_t *e;

	if (unlikely(!preload.plain || t->busy || !t->generation || *preload.alive != t->generation || !t->chunk ||
		    t->used + 16 > SHARE_CHUNK_ROOM || t->ended || preload.memory.header->stop))
		return false;
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	e = (uint64_t *)(void *)((uint8_t *)(t->chunk + 1) + t->used);
	e[0] = clock_before(SHARE_CLOCK_COUNTER);
	e[1] = SHARE_WORD(SHARE_FREE, (uintptr_t)block);
	ring_commit(t, 16);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
	return true;
}

/* A block is about to be moved or resized: with `new` not of interest it is as freed. Then what became of it: NULL: it
 * stands as it was. */
void take_moving(struct thread *t, void *block);
void take_moved(struct thread *t, void *block, uint64_t size, bool sampled, const struct walk_start *here);

/*
 * An exported function is two: itself, which jumps to its slow half, and that one, which stands in the stack right above
 * the program's own frame. In there this is its caller.
 */
#define HERE()                                                                                     \
	{                                                                                          \
		.pc = (uintptr_t)__builtin_extract_return_addr(__builtin_return_address(0)),       \
		.sp = (uintptr_t)__builtin_dwarf_cfa(),                                            \
		.fp = *(const uint64_t *)__builtin_frame_address(0)                                \
	}

#if __has_attribute(noipa)
#define SLOW static __attribute__((noipa))
#else
#define SLOW static __attribute__((noinline))
#endif

#endif
