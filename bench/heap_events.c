/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an event of a watched program costs its collector: made-up rings are filled, and reading and adding them up is
 * timed (src/heap/reader.h, src/heap/model.h). Filling them is not.
 *
 *	heap_events [PAIRS [LIVE [THREADS [STACKS]]]]     20 million pairs, 100,000 live blocks, 4 threads, 1,024 stacks
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "heap/model.h"
#include "heap/reader.h"
#include "tests/unit/heap_writer.h"

#define ROUND 20000u  /* pairs between two drains */

struct bench {
	struct heap_readers *set;
	struct heap_model *m;
	uint32_t *stacks; /* by node: the collector looks that up, too */
	uint64_t events;
};

static void read_only(void *ctx, const struct heap_event *events, size_t count)
{
	struct bench *b = ctx;

	(void)events;
	b->events += count;
}

static void add_up(void *ctx, const struct heap_event *events, size_t count)
{
	struct bench *b = ctx;

	for (size_t i = 0; i < count; i++)
		heap_model_prefetch(b->m, &events[i]);
	for (size_t i = 0; i < count; i++)
		heap_model_take(b->m, &events[i], b->stacks[events[i].node]);
	b->events += count;
}

struct load {
	uint64_t *live;
	uint64_t count, next, state;
	uint32_t threads, stacks;
};

static uint64_t random_below(struct load *l, uint64_t below)
{
	l->state ^= l->state << 13;
	l->state ^= l->state >> 7;
	l->state ^= l->state << 17;
	return (l->state >> 11) % below;
}

/* A block more and one less: of four allocations one is freed at once, the others take the place of any block of the thread. */
static void pair(struct load *l, struct writer *writers)
{
	/* Threads run for a while, two at a time. */
	uint32_t thread = (uint32_t)((l->next / 10000 * 2 + (l->next & 1)) % l->threads);
	struct writer *w = &writers[thread];
	uint64_t address = 0x7f0000000000 + 16 * (l->next++ * 61 % (l->count * 8));
	uint64_t at = random_below(l, l->count / l->threads) * l->threads + thread;

	writer_alloc(w, clock_monotonic_ns(), address, SHARE_STACK_FIRST + (uint32_t)random_below(l, l->stacks),
		16 + random_below(l, 2000));
	if (l->next % 4) {
		uint64_t old = l->live[at];

		l->live[at] = address;
		address = old;
	}
	writer_free(w, clock_monotonic_ns(), address);
}

static double run(const struct heap_reader_ops *ops, uint64_t pairs, uint64_t live, uint32_t threads, uint32_t stacks,
	bool with_model)
{
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct bench b = {.stacks = calloc(SHARE_STACK_FIRST + stacks, sizeof(*b.stacks))};
	struct load l = {.live = calloc(live, sizeof(uint64_t)), .count = live, .state = 88172645463325252ull, .threads = threads,
		.stacks = stacks};
	struct writer *w = calloc(threads, sizeof(*w));
	struct heap_totals totals;
	uint32_t number;
	uint64_t ns = 0;

	if (heap_readers_new(ops, &b, &b.set, NULL) || heap_model_new(&b.m, NULL) ||
		heap_readers_add(b.set, dup(s.fd), 1, &number, NULL) || heap_model_process(b.m, number, 1, HEAP_EXACT, NULL))
		exit(1);
	for (uint32_t i = 0; i < stacks; i++)
		b.stacks[SHARE_STACK_FIRST + i] = i;
	for (uint32_t i = 0; i < threads; i++)
		w[i] = writer_claim(&s, 100 + i);
	for (uint64_t i = 0; i < live; i++) {
		l.live[i] = 0x100000000 + i * 32;
		writer_alloc(&w[i % threads], clock_monotonic_ns(), l.live[i], SHARE_STACK_FIRST + (uint32_t)(i % stacks), 32);
	}
	while (heap_readers_drain(b.set, SIZE_MAX))
		;
	b.events = 0;
	for (uint64_t i = 0; i < pairs; i++) {
		pair(&l, w);
		if (i % ROUND == ROUND - 1 || i + 1 == pairs) {
			uint64_t began = clock_own_cpu_ns();

			while (heap_readers_drain(b.set, SIZE_MAX))
				;
			ns += clock_own_cpu_ns() - began;
		}
	}
	heap_model_totals(b.m, &totals);
	printf("%-22s %7.1f ns an event, %6.1f a pair; ", with_model ? "read and added up:" : "read:", (double)ns / (double)b.events,
		2 * (double)ns / (double)b.events);
	printf("%llu events, %llu live, %u sites, %.1f MB of model\n", (unsigned long long)b.events,
		(unsigned long long)totals.live_blocks, totals.sites, (double)totals.bytes / 1e6);
	heap_readers_free(b.set);
	heap_model_free(b.m);
	free(b.stacks);
	free(l.live);
	free(w);
	shared_free(&s);
	return (double)ns;
}

static uint64_t argument(int argc, char **argv, int at, uint64_t otherwise)
{
	return argc > at ? strtoull(argv[at], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	static const struct heap_reader_ops reading = {.events = read_only}, adding = {.events = add_up};
	uint64_t pairs = argument(argc, argv, 1, 20000000), live = argument(argc, argv, 2, 100000);
	uint32_t threads = (uint32_t)argument(argc, argv, 3, 4), stacks = (uint32_t)argument(argc, argv, 4, 1024);

	run(&reading, pairs, live, threads, stacks, false);
	run(&adding, pairs, live, threads, stacks, true);
	return 0;
}
