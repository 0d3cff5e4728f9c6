/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/counter.h"

#include <string.h>

#include "base/clock.h"

/* The rate is that of the last COUNTER_MARKS of these: an error of 100 ns in a reading makes it wrong by 0.1 millionths. */
#define COUNTER_MARK_NS (NS_PER_S / 4)
#define COUNTER_FIRST_NS (200 * NS_PER_US)
#define READINGS 5

uint64_t counter_read(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	__asm__ volatile("isb; mrs %0, cntvct_el0" : "=r"(v)::"memory");
	return v;
#else
	return clock_monotonic_ns();
#endif
}

/* Of some readings the one that took the shortest: nothing came between. */
static struct counter_mark read_both(void)
{
	struct counter_mark best = {0};
	uint64_t best_width = UINT64_MAX;

	for (int i = 0; i < READINGS; i++) {
		uint64_t before = clock_monotonic_ns();
		uint64_t counter = counter_read();
		uint64_t width = clock_monotonic_ns() - before;

		if (width < best_width) {
			best_width = width;
			best = (struct counter_mark){.counter = counter, .ns = before + width / 2};
		}
	}
	return best;
}

static void measure(struct counter *c)
{
	const struct counter_mark *first = &c->marks[c->count - 1];
	uint64_t counts = c->now.counter - first->counter;

	if (counts)
		c->ns_by_2_32 = (uint64_t)(((unsigned __int128)(c->now.ns - first->ns) << 32) / counts);
}

void counter_update_to(struct counter *c, uint64_t counter, uint64_t ns)
{
	if (counter <= c->now.counter || ns <= c->now.ns)
		return;
	c->now = (struct counter_mark){counter, ns};
	if (c->count)
		measure(c);
	if (c->count && ns - c->marks[0].ns < COUNTER_MARK_NS)
		return;
	if (c->count < COUNTER_MARKS)
		c->count++;
	memmove(&c->marks[1], &c->marks[0], (c->count - 1) * sizeof(c->marks[0]));
	c->marks[0] = c->now;
}

void counter_update(struct counter *c)
{
	struct counter_mark both = read_both();

	if (!c->count) {
		counter_update_to(c, both.counter, both.ns);
		do
			both = read_both();
		while (both.ns - c->now.ns < COUNTER_FIRST_NS);
	}
	counter_update_to(c, both.counter, both.ns);
}
