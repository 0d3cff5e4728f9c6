/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libsonde-capture: the functions of sonde/capture.h.
 *
 * How a process meets its collector, and how events come into the ring of a thread, is the preload's code, compiled
 * once more (names.h). The library has memory of its own, also in a process with the preload.
 */
#include <sonde/capture.h>

#include <pthread.h>

#include "heap/preload/clock.h"
#include "heap/preload/preload.h"
#include "heap/preload/ring.h"
#include "heap/preload/take.h"
#include "heap/program/note.h"

#pragma weak pthread_key_delete

#define LONGEST_NS ((1ull << 56) - 1) /* what has room beside the type of an event */

_Static_assert(SONDE_TEXT_MOST == SHARE_TEXT_MOST, "as the header says");

/* Generations whose definitions were told, and whose first stack was waited for. */
static uint32_t told, waited;

static inline bool nobody(void)
{
	return likely(__atomic_load_n(&preload.state, __ATOMIC_ACQUIRE) == PRELOAD_OFF);
}

static void end(struct thread *t)
{
	if (unlikely(t->ended))
		thread_release(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}

/* Not as usual: nobody has looked for a collector, or this is a forked child, or a new thread, or it is over. */
static bool begin_anew(struct thread *t)
{
	uint32_t before;

	if (!preload_ready(t)) {
		end(t);
		return false;
	}
	before = __atomic_exchange_n(&told, preload.generation, __ATOMIC_RELAXED);
	if (before != preload.generation)
		defined_tell(t);
	return true;
}

/* False: nothing is to be written, and there is no end(). */
static bool begin(struct thread *t)
{
	if (unlikely(t->busy)) {
		if (__atomic_load_n(&preload.state, __ATOMIC_RELAXED) == PRELOAD_ON)
			preload_lost(SHARE_LOST_REENTERED);
		return false;
	}
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	if (likely(__atomic_load_n(&preload.state, __ATOMIC_ACQUIRE) == PRELOAD_ON && *preload.alive &&
		    !preload.memory.header->stop && t->generation == preload.generation))
		return true;
	return begin_anew(t);
}

static void say(const struct note *note)
{
	struct thread *t = &thread;

	if (!begin(t))
		return;
	note_put(t, note);
	end(t);
}

/* What stays true in forked children. */
static uint32_t define(struct note *note)
{
	struct thread *t = &thread;
	uint32_t number;

	if (!begin(t))
		return 0;
	number = defined_keep(note);
	if (number)
		note_put(t, note);
	else
		preload_lost(SHARE_LOST_CHUNK);
	end(t);
	return number;
}

/* ---- time ---- */

int sonde_is_recording(void)
{
	struct thread *t = &thread;

	if (nobody())
		return 0;
	if (t->busy)
		return __atomic_load_n(&preload.state, __ATOMIC_ACQUIRE) == PRELOAD_ON;
	if (!begin(t))
		return 0;
	end(t);
	return 1;
}

uint64_t sonde_clock(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/* ---- marks and messages ---- */

void sonde_mark(uint64_t begin_ns, uint64_t duration_ns, const char *group, const char *name, const char *message)
{
	struct note note = {
		.type = SHARE_MARK,
		.address = duration_ns < LONGEST_NS ? duration_ns : LONGEST_NS,
		.value = begin_ns,
		.text = {group, name, message},
	};

	if (!nobody())
		say(&note);
}

uint64_t sonde_mark_begin(void)
{
	return sonde_is_recording() ? sonde_clock() : 0;
}

void sonde_mark_end(uint64_t begin_ns, const char *group, const char *name, const char *message)
{
	uint64_t now;

	if (!begin_ns || nobody())
		return;
	now = sonde_clock();
	sonde_mark(begin_ns, now > begin_ns ? now - begin_ns : 0, group, name, message);
}

void sonde_log(const char *domain, enum sonde_severity severity, const char *message)
{
	struct note note = {
		.type = SHARE_LOG,
		.value = severity >= SONDE_DEBUG && severity <= SONDE_ERROR ? severity : SONDE_MESSAGE,
		.text = {domain, message},
	};

	if (!nobody())
		say(&note);
}

/* ---- counters ---- */

/* The program's number of a counter has its kind in the lowest bit. */
uint32_t sonde_counter_define(
	const char *group, const char *name, const char *description, enum sonde_counter_kind kind)
{
	uint32_t is_double = kind == SONDE_COUNTER_DOUBLE;
	struct note note = {.type = SHARE_COUNTER, .value = is_double, .text = {group, name, description}};
	uint32_t number = nobody() ? 0 : define(&note);

	return number ? number << 1 | is_double : 0;
}

static void set(uint32_t counter, uint64_t value)
{
	struct thread *t = &thread;
	uint64_t *e;

	if (!begin(t))
		return;
	e = ring_reserve(t, 24);
	if (e) {
		e[0] = clock_before(preload.clock);
		e[1] = SHARE_WORD(SHARE_VALUE, counter >> 1);
		e[2] = value;
		ring_commit(t, 24);
	}
	end(t);
}

static uint64_t bits_of(double value)
{
	union {
		double value;
		uint64_t bits;
	} both = {.value = value};

	return both.bits;
}

void sonde_counter_set(uint32_t counter, int64_t value)
{
	if (counter && !nobody())
		set(counter, counter & 1 ? bits_of((double)value) : (uint64_t)value);
}

static int64_t nearest(double value)
{
	if (value != value)
		return 0;
	if (value >= 9223372036854775808.0)
		return INT64_MAX;
	return value <= -9223372036854775808.0 ? INT64_MIN : (int64_t)value;
}

void sonde_counter_set_double(uint32_t counter, double value)
{
	if (counter && !nobody())
		set(counter, counter & 1 ? bits_of(value) : (uint64_t)nearest(value));
}

/* ---- pools ---- */

uint32_t sonde_pool_define(const char *name)
{
	struct note note = {.type = SHARE_POOL, .text = {name}};

	return nobody() ? 0 : define(&note);
}

SLOW void own_alloc(uint32_t pool, const void *address, size_t size)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	uint32_t node, words = 4 + (size >= SHARE_LARGE);
	uint64_t *e;

	if (!begin(t))
		return;
	if (__atomic_exchange_n(&waited, preload.generation, __ATOMIC_RELAXED) != preload.generation)
		preload_wait(SHARE_WAIT_START_MS);
	node = stack_take(t, &here);
	e = ring_reserve(t, words * 8);
	if (e) {
		e[0] = clock_before(preload.clock);
		e[1] = SHARE_WORD(SHARE_OWN_ALLOC, (uintptr_t)address);
		e[2] = SHARE_STACK_AND_SIZE(node, size);
		if (words == 5)
			e[3] = size;
		e[words - 1] = pool;
		ring_commit(t, words * 8);
	}
	end(t);
}

void sonde_alloc(uint32_t pool, const void *address, size_t size)
{
	if (nobody() || !pool || !address)
		return;
	own_alloc(pool, address, size);
}

SLOW void own_free(uint32_t pool, const void *address)
{
	struct thread *t = &thread;
	uint64_t *e;

	if (!begin(t))
		return;
	e = ring_reserve(t, 24);
	if (e) {
		e[0] = clock_before(preload.clock);
		e[1] = SHARE_WORD(SHARE_OWN_FREE, (uintptr_t)address);
		e[2] = pool;
		ring_commit(t, 24);
	}
	end(t);
}

void sonde_free(uint32_t pool, const void *address)
{
	if (nobody() || !pool || !address)
		return;
	own_free(pool, address);
}

/* ---- generated code ---- */

void sonde_jit_map(const void *address, size_t size, const char *name, const char *file)
{
	struct note note = {
		.type = SHARE_CODE, .address = (uintptr_t)address, .value = size, .text = {name, file}};

	if (!nobody() && address && size)
		say(&note);
}

/* The object that this copy stands in may be unloaded: threads that end later must not be told here. Whoever still has
 * something to say at the end of the process may do so. */
__attribute__((destructor)) static void forget_threads(void)
{
	if (preload.has_key && pthread_key_delete)
		pthread_key_delete(preload.key);
	preload.has_key = false;
}
