/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/take.h"

#include <time.h>

#include "heap/preload/probes.h"

bool take_unusual(struct thread *t)
{
	if (preload_ready(t))
		return true;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
	return false;
}

/* ---- sampling ---- */

static void draw(struct thread *t)
{
	t->rate = __atomic_load_n(&preload.memory.header->rate, __ATOMIC_RELAXED);
	t->left = preload.mode == SHARE_SAMPLED ? sample_draw_bytes(&t->random, t->rate)
						: sample_draw_calls(&t->random, t->rate);
	t->drawn = t->left;
}

bool take_first(struct thread *t, uint64_t size)
{
	static uint64_t threads;

	/* Other threads, other processes and other runs draw other numbers. */
	t->random = sample_seed(preload.memory.header->began ^ (uint64_t)preload.memory.header->pid << 40 ^
		(uintptr_t)t ^ sample_seed(__atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED)));
	draw(t);
	t->left -= sample_cost(size, preload.size_mask);
	return t->left <= 0;
}

void take_end_otherwise(struct thread *t)
{
	if (preload.mode != SHARE_EXACT && t->left <= 0 && t->random)
		draw(t);
	if (t->last_left == INT64_MIN)
		t->last_left = t->left;
	if (preload.options & SHARE_OPTION_TIMES)
		t->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	if (t->ended)
		thread_release(t);
}

/* ---- events ---- */

/* The rate that the following sampled blocks were drawn with. */
static void tell_rate(struct thread *t)
{
	uint64_t *e;

	if (t->told_rate == t->rate && t->chunk)
		return;
	e = ring_reserve(t, 24);
	if (!e)
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(SHARE_RATE, 0);
	e[2] = t->rate;
	ring_commit(t, 24);
	t->told_rate = t->rate;
}

/* CPU time of the thread and calls since its last sampled call. */
static void put_call(struct thread *t, uint64_t *e)
{
	e[0] = preload.options & SHARE_OPTION_TIMES ? clock_ns(CLOCK_THREAD_CPUTIME_ID) - t->cpu_ns : 0;
	e[1] = (uint64_t)(t->drawn - t->left);
}

/* An event with a stack and a size. */
static void put(struct thread *t, enum share_event type, uint64_t address, uint32_t node, uint64_t size)
{
	uint32_t words = 3 + (size >= SHARE_LARGE), bytes = (words + (type == SHARE_CALL ? 2 : 0)) * 8;
	uint64_t *e = ring_reserve(t, bytes);

	if (unlikely(!e))
		return;
	e[0] = take_time();
	e[1] = SHARE_WORD(type, address);
	e[2] = SHARE_STACK_AND_SIZE(node, size);
	if (words == 4)
		e[3] = size;
	if (type == SHARE_CALL)
		put_call(t, e + words);
	ring_commit(t, bytes);
}

/* Before what the collector is told of it: from then on its free will be looked at. */
static void mark(struct thread *t, uint64_t address)
{
	sample_mark(preload.filter_counts, address);
	t->last = address;
	t->last_left = INT64_MIN;
}

void take_allocated_otherwise(struct thread *t, void *block, uint64_t size, const struct walk_start *here)
{
	uint32_t node;

	if (preload.mode != SHARE_EXACT)
		tell_rate(t);
	node = stack_take(t, here);
	if (preload.mode == SHARE_SAMPLED)
		mark(t, (uintptr_t)block);
	put(t, preload.mode == SHARE_EVERY ? SHARE_CALL : SHARE_ALLOC, (uintptr_t)block, node, size);
	if (preload.mode == SHARE_SAMPLED && probe_alloc_wanted())
		probe_alloc(block, size, t->rate);
}

/* Sizes that were told last, by their hash: 1 + size, and above it the generation. One that another pushes out is told again. */
#define TOLD_BITS 10
#define GENERATION_SHIFT 56
static uint64_t told[1u << TOLD_BITS];

void take_size(struct thread *t, void *block, uint64_t size, size_t (*usable_size)(void *))
{
	uint64_t *slot = &told[size * 0x9e3779b97f4a7c15u >> (64 - TOLD_BITS)];
	uint64_t is = (size + 1) ^ (uint64_t)preload.generation << GENERATION_SHIFT, usable;
	uint64_t *e;

	if (likely(__atomic_load_n(slot, __ATOMIC_RELAXED) == is) || !block)
		return;
	usable = usable_size(block);
	/* Some do not know it before all constructors have run. */
	if (usable < size)
		return;
	e = ring_reserve(t, 24);
	if (unlikely(!e))
		return;
	e[0] = take_time();
	e[1] = SHARE_WORD(SHARE_USABLE, usable);
	e[2] = size;
	ring_commit(t, 24);
	__atomic_store_n(slot, is, __ATOMIC_RELEASE);
}

/* A free without a stack: nearly all of them. */
static void put_free(struct thread *t, void *block, enum share_event type)
{
	uint64_t *e = ring_reserve(t, 16);

	if (unlikely(!e))
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(type, (uintptr_t)block);
	ring_commit(t, 16);
}

void take_freed_otherwise(struct thread *t, void *block, const struct walk_start *here)
{
	uint32_t node;
	uint64_t *e;
	bool last;

	if (preload.mode == SHARE_EVERY) {
		tell_rate(t);
		put(t, SHARE_CALL, 0, stack_take(t, here), 0);
		return;
	}
	if (preload.mode == SHARE_SAMPLED && probe_free_wanted())
		probe_free(block);
	last = preload.mode == SHARE_SAMPLED && t->last == (uintptr_t)block && t->last_left == t->left;
	if (likely(!(preload.options & SHARE_OPTION_FREE_STACKS))) {
		put_free(t, block, last ? SHARE_FREE_LAST : SHARE_FREE);
		if (preload.mode == SHARE_SAMPLED)
			sample_tell_free((uintptr_t)block);
		return;
	}
	node = stack_take(t, here);
	e = ring_reserve(t, 24);
	if (!e)
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(last ? SHARE_FREE_STACK_LAST : SHARE_FREE_STACK, (uintptr_t)block);
	e[2] = node;
	ring_commit(t, 24);
	if (preload.mode == SHARE_SAMPLED)
		sample_tell_free((uintptr_t)block);
}

void take_moving(struct thread *t, void *block)
{
	if (preload.mode != SHARE_EVERY)
		put_free(t, block, SHARE_REALLOC);
	if (preload.mode == SHARE_SAMPLED && probe_free_wanted())
		probe_free(block);
}

void take_moved(struct thread *t, void *block, uint64_t size, bool sampled, const struct walk_start *here)
{
	uint32_t node = SHARE_STACK_NONE;

	if (preload.mode == SHARE_EVERY) {
		take_allocated(t, block, size, here);
		return;
	}
	if (block) {
		if (preload.mode != SHARE_EXACT)
			tell_rate(t);
		node = sampled ? stack_take(t, here) : SHARE_STACK_UNSAMPLED;
		if (preload.mode == SHARE_SAMPLED && sampled)
			mark(t, (uintptr_t)block);
	}
	put(t, SHARE_REALLOC_DONE, (uintptr_t)block, node, block ? size : 0);
	if (block && sampled && preload.mode == SHARE_SAMPLED && probe_alloc_wanted())
		probe_alloc(block, size, t->rate);
}
