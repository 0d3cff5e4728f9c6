/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a walk inside a watched program costs (src/heap/preload/walk.h): ns a call of walk_stack() from 15 functions deep, by
 * how many of them are others than at the last walk; what calling those functions costs is taken off.
 *
 *	heap_walk [CALLS]
 *
 * Built twice, with frame pointers (heap_walk_fp) and without. Reach: 20 to 40 ns when only the innermost frames change.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/own_tables.h"

#define DEPTH 15
#define PASSES 40

static struct own own;
static struct walk_state *state;
static bool walking;
static uint64_t results[4];
static volatile uint64_t sink;

OWN_HOOK static void hook(void)
{
	uint32_t node;

	if (!walking)
		return;

	struct walk_start start = own_start();

	results[walk_stack(&own.memory, state, &start, &node)]++;
}

struct plan {
	unsigned same;  /* the outermost functions that are called once for all walks */
	uint64_t walks; /* in the loop of that function */
};

typedef void (*level)(const struct plan *, unsigned depth, uint64_t turn);
static level levels[2][DEPTH];

/* From `same` on, each turn goes through other functions than the turn before. */
static inline __attribute__((always_inline)) void go_on(const struct plan *p, unsigned depth, uint64_t turn)
{
	uint64_t turns = depth == p->same ? p->walks : 1;

	for (uint64_t i = 0; i < turns; i++) {
		uint64_t side = depth == p->same ? i & 1 : turn;

		if (depth >= DEPTH)
			hook();
		else
			levels[side][depth](p, depth + 1, side);
	}
}

/* Functions that do something with registers that they have to keep. */
#define LEVEL(side, n)                                                                             \
	__attribute__((noinline)) static void level_##side##_##n(                                  \
		const struct plan *p, unsigned depth, uint64_t turn)                               \
	{                                                                                          \
		uint64_t a = turn * 3 + n, b = depth ^ side;                                       \
                                                                                                   \
		go_on(p, depth, turn);                                                             \
		sink = a + b + turn;                                                               \
	}
#define LEVELS(side)                                                                               \
	LEVEL(side, 0) LEVEL(side, 1) LEVEL(side, 2) LEVEL(side, 3) LEVEL(side, 4)                 \
	LEVEL(side, 5) LEVEL(side, 6) LEVEL(side, 7) LEVEL(side, 8) LEVEL(side, 9)                 \
	LEVEL(side, 10) LEVEL(side, 11) LEVEL(side, 12) LEVEL(side, 13) LEVEL(side, 14)
LEVELS(0)
LEVELS(1)

#define NAMES(side)                                                                                \
	{                                                                                          \
		level_##side##_0, level_##side##_1, level_##side##_2, level_##side##_3,            \
			level_##side##_4, level_##side##_5, level_##side##_6, level_##side##_7,    \
			level_##side##_8, level_##side##_9, level_##side##_10, level_##side##_11,  \
			level_##side##_12, level_##side##_13, level_##side##_14                    \
	}
static level levels[2][DEPTH] = {NAMES(0), NAMES(1)};

static double run_ns(const struct plan *p, bool walk)
{
	uint64_t best = UINT64_MAX;

	for (int pass = 0; pass < PASSES; pass++) {
		uint64_t began = clock_own_cpu_ns(), spent;

		walking = walk;
		go_on(p, 0, 0);
		spent = clock_own_cpu_ns() - began;
		if (spent < best)
			best = spent;
	}
	return (double)best / (double)p->walks;
}

static void measure(const char *words, unsigned changed, uint64_t walks)
{
	struct plan p = {.same = DEPTH - changed, .walks = walks};
	double with = run_ns(&p, true), without = run_ns(&p, false);

	printf("%-34s %6.1f ns a walk (calls alone %.1f)\n", words, with - without, without);
}

int main(int argc, char **argv)
{
	uint64_t walks = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;

	own_init(&own);
	if (own_publish(&own, UINT64_MAX))
		return 1;
	state = own_state();
	measure("same stack", 0, walks);
	measure("innermost frame changed", 1, walks);
	measure("2 frames changed", 2, walks);
	measure("4 frames changed", 4, walks);
	measure("8 frames changed", 8, walks);
	measure("all 15 changed", 15, walks);
	printf("%" PRIu64 " whole, %" PRIu64 " cut, %" PRIu64 " raw; %u nodes\n", results[WALK_WHOLE], results[WALK_CUT],
		results[WALK_RAW], own.memory.header->node_count);
	own_release(&own);
	return 0;
}
