/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CPU's counter as a clock: x86-64's time stamp counter, aarch64's virtual counter. Whoever uses it has made sure that it
 * counts evenly and is the same on all CPUs. How fast it is is measured against CLOCK_MONOTONIC, again and again, because that
 * one is corrected while it runs.
 */
#ifndef SONDE_HEAP_COUNTER_H
#define SONDE_HEAP_COUNTER_H

#include <stdint.h>

#define COUNTER_MARKS 8u

/* Both clocks at one moment. */
struct counter_mark {
	uint64_t counter, ns;
};

struct counter {
	struct counter_mark now;                  /* the last one */
	struct counter_mark marks[COUNTER_MARKS]; /* older ones, at least COUNTER_MARK_NS apart; newest first */
	uint32_t count;
	uint64_t ns_by_2_32;                      /* of one count; from the oldest mark to `now` */
};

uint64_t counter_read(void);

/* Reads both clocks. The first time it waits for COUNTER_FIRST_NS, until there is something to measure. */
void counter_update(struct counter *c);

/* For tests: as counter_update(), with these readings. Readings that go backwards are not taken. */
void counter_update_to(struct counter *c, uint64_t counter, uint64_t ns);

/* CLOCK_MONOTONIC when the counter stood at `at`; before and after `now`, too. Never falls with rising `at`, until the
 * next update. Near `now` it is as good as the reading, some 100 ns; far before it, as good as the rate. */
static inline uint64_t counter_ns(const struct counter *c, uint64_t at)
{
	if (at >= c->now.counter) {
		unsigned __int128 more = (unsigned __int128)(at - c->now.counter) * c->ns_by_2_32 >> 32;

		return more > UINT64_MAX - c->now.ns ? UINT64_MAX : c->now.ns + (uint64_t)more;
	}

	unsigned __int128 less = (unsigned __int128)(c->now.counter - at) * c->ns_by_2_32 >> 32;

	return less > c->now.ns ? 0 : c->now.ns - (uint64_t)less;
}

#endif
