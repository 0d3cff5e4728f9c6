/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Estimates from sampled allocations: on average they are what was there, and their 95 % intervals hold it often enough. Programs are
 * made up, with different mixes of sizes; each is run 2,000 times, and which of its blocks are sampled is drawn anew.
 */
#include <math.h>
#include <stdlib.h>

#include "heap/model.h"
#include "profile/heap.h"
#include "test.h"

#define RUNS 2000u
#define ENOUGH 1840u /* 93 %, less what the draw of 2,000 runs may take away */ /* 93 % of them */
#define RATE 32768.0
#define STACKS 4u
#define MOST_BLOCKS 60000u

struct rng {
	uint64_t state;
};

static double uniform(struct rng *r)
{
	r->state ^= r->state << 13;
	r->state ^= r->state >> 7;
	r->state ^= r->state << 17;
	return ((double)(r->state >> 11) + 0.5) / 9007199254740992.0;
}

/* ---- mixes of sizes ---- */

static double evenly(struct rng *r)
{
	return 16 + floor(uniform(r) * 985);
}

static double all_the_same(struct rng *r)
{
	(void)r;
	return 64;
}

static double few_large(struct rng *r)
{
	return uniform(r) < 0.002 ? 1 << 20 : 200;
}

static double long_tail(struct rng *r)
{
	double size = floor(16 * pow(uniform(r), -0.8));

	return size < 4e6 ? size : 4e6;
}

static double about_the_rate(struct rng *r)
{
	return floor(RATE / 4 * (1 + uniform(r) * 8));
}

struct mix {
	const char *name;
	double (*size)(struct rng *r);
	uint32_t blocks;
};

static const struct mix mixes[] = {
	{"evenly", evenly, 20000},
	{"all the same", all_the_same, 50000},
	{"few large ones", few_large, 5000},
	{"long tail", long_tail, 20000},
	{"about the rate", about_the_rate, 200},
	{"hardly any", all_the_same, 3000}, /* six samples of all, three of what is live */
};

/* ---- a run ---- */

struct program {
	double *sizes;
	bool *freed;
	uint32_t *stacks;
	uint32_t blocks;
	double allocated, live, live_count, stack_live[STACKS];
};

static struct program program_new(const struct mix *mix)
{
	struct rng r = {88172645463325252ull};
	struct program p = {.blocks = mix->blocks};

	p.sizes = calloc(MOST_BLOCKS, sizeof(*p.sizes));
	p.freed = calloc(MOST_BLOCKS, sizeof(*p.freed));
	p.stacks = calloc(MOST_BLOCKS, sizeof(*p.stacks));
	for (uint32_t i = 0; i < p.blocks; i++) {
		p.sizes[i] = mix->size(&r);
		p.freed[i] = uniform(&r) < 0.5;
		p.stacks[i] = (uint32_t)(uniform(&r) * STACKS);
		p.allocated += p.sizes[i];
		if (p.freed[i])
			continue;
		p.live += p.sizes[i];
		p.live_count++;
		p.stack_live[p.stacks[i]] += p.sizes[i];
	}
	return p;
}

static void program_free(struct program *p)
{
	free(p->sizes);
	free(p->freed);
	free(p->stacks);
}

struct estimates {
	struct heap_sum all, stacks[STACKS];
};

static void sum_site(void *ctx, const struct record_heap_site *site, const struct record_heap_state *state)
{
	struct estimates *e = ctx;
	struct heap_sum *to[] = {&e->all, &e->stacks[site->stack]};

	for (unsigned k = 0; k < 2; k++) {
		for (size_t i = 0; i < HEAP_NUMBERS; i++)
			to[k]->number[i] += state->number[i];
		for (size_t i = 0; i < HEAP_VARIANCES; i++)
			to[k]->variance[i] += state->variance[i];
	}
}

/* Every byte is a sample with 1 / RATE, and a block is sampled when one of its bytes is. */
static struct estimates run(const struct program *p, uint64_t seed)
{
	struct rng r = {seed * 0x9e3779b97f4a7c15u + 1};
	struct estimates e = {0};
	struct heap_model *m;
	double left;

	for (unsigned i = 0; i < 10; i++)
		uniform(&r);
	left = -RATE * log(uniform(&r));
	check(!heap_model_new(&m, NULL));
	check(!heap_model_process(m, 0, 1, HEAP_SAMPLED, NULL));
	for (uint32_t i = 0; i < p->blocks; i++) {
		struct heap_event event = {.type = SHARE_ALLOC, .time_ns = 2 * i, .tid = 1, .address = (i + 1) * 16ull,
			.size = (uint64_t)p->sizes[i], .rate = (uint64_t)RATE};

		left -= p->sizes[i];
		if (left > 0)
			continue;
		left = -RATE * log(uniform(&r));
		heap_model_take(m, &event, p->stacks[i]);
		event.type = SHARE_FREE;
		if (p->freed[i])
			check(heap_model_take(m, &event, CAPTURE_NONE) == event.address);
	}
	heap_model_each_site(m, sum_site, &e);
	heap_model_free(m);
	return e;
}

/* ---- how often it was right ---- */

static double live_of(const struct heap_sum *s, bool bytes)
{
	return bytes ? s->number[HEAP_ALLOCATED_BYTES] - s->number[HEAP_FREED_BYTES]
		     : s->number[HEAP_ALLOCATED] - s->number[HEAP_FREED];
}

static bool holds(double truth, double value, double variance, const struct heap_sum *sum, bool bytes)
{
	struct profile_heap heap = {.sampled = true, .least_rate = RATE};
	struct heap_interval i = heap_interval(value, variance, heap_weight(&heap, sum, bytes));

	return i.low <= truth && truth <= i.high;
}

static void check_enough(const char *mix, const char *what, unsigned right)
{
	if (right >= ENOUGH)
		return;
	check(false);
	printf("%s: %s is in its interval in %u of %u runs\n", mix, what, right, RUNS);
}

static void check_mean(const char *mix, double sum, double squares, double truth)
{
	double mean = sum / RUNS, error = sqrt((squares / RUNS - mean * mean) / RUNS);

	if (fabs(mean - truth) <= 3.5 * error)
		return;
	check(false);
	printf("%s: %.0f on average, +- %.0f, and it is %.0f\n", mix, mean, error, truth);
}

static void check_mix(const struct mix *mix)
{
	struct program p = program_new(mix);
	unsigned allocated = 0, live = 0, count = 0, stack = 0, stacks = 0;
	double sum = 0, squares = 0;

	for (uint64_t i = 1; i <= RUNS; i++) {
		struct estimates e = run(&p, i);
		double bytes = live_of(&e.all, true);

		sum += bytes;
		squares += bytes * bytes;
		allocated += holds(p.allocated, e.all.number[HEAP_ALLOCATED_BYTES], e.all.variance[HEAP_VAR_ALLOCATED_BYTES], &e.all, true);
		live += holds(p.live, bytes, e.all.variance[HEAP_VAR_LIVE_BYTES], &e.all, true);
		count += holds(p.live_count, live_of(&e.all, false), e.all.variance[HEAP_VAR_LIVE], &e.all, false);
		for (unsigned k = 0; k < STACKS; k++) {
			stack += holds(p.stack_live[k], live_of(&e.stacks[k], true), e.stacks[k].variance[HEAP_VAR_LIVE_BYTES],
				&e.stacks[k], true);
			stacks++;
		}
	}
	check_enough(mix->name, "what was allocated", allocated);
	check_enough(mix->name, "what is live", live);
	check_enough(mix->name, "the number of live blocks", count);
	check_enough(mix->name, "what is live of a stack", stack * RUNS / stacks);
	check_mean(mix->name, sum, squares, p.live);
	program_free(&p);
}

TEST(intervals_hold_the_truth)
{
	for (size_t i = 0; i < sizeof(mixes) / sizeof(mixes[0]); i++)
		check_mix(&mixes[i]);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(intervals_hold_the_truth));
}
