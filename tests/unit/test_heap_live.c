/* SPDX-License-Identifier: BSD-2-Clause */
/* The table of live blocks (src/heap/live.h) against a list of them. */
#include <stdlib.h>

#include "heap/live.h"
#include "test.h"

#define BLOCKS 50000u
#define STEP (1ull << 20) /* of the times of old blocks */

struct list {
	struct live live;
	struct live_block *blocks; /* by number; address 0: not live */
	size_t count;
	uint64_t state, now_ns;
};

static uint64_t draw(struct list *l, uint64_t below)
{
	l->state ^= l->state << 13;
	l->state ^= l->state >> 7;
	l->state ^= l->state << 17;
	return (l->state >> 11) % below;
}

/* Each number has an address of its own, one in 20 of them beyond 48 bits. */
static uint64_t address_of(uint32_t number)
{
	return 0x7f0000000000 + number * 16ull + (number % 20 ? 0 : 1ull << 52);
}

static struct live_block new_block(struct list *l, uint32_t number)
{
	bool odd = draw(l, 40) == 0;

	return (struct live_block){
		.address = address_of(number),
		.time_ns = l->now_ns,
		.size = odd ? draw(l, 1ull << 40) : draw(l, 1u << 24),
		.rate = draw(l, 30) ? 0 : 7,
		.site = (uint32_t)draw(l, draw(l, 50) ? 1u << 20 : UINT32_MAX),
		.tid = draw(l, 30) ? LIVE_TID_OF_SITE : 1234,
	};
}

static void same(const struct list *l, const struct live_block *got, const struct live_block *want)
{
	uint64_t age = l->now_ns - want->time_ns;

	check_u64(got->address, want->address);
	check_u64(got->size, want->size);
	check_u64(got->rate, want->rate);
	check_u64(got->site, want->site);
	check_u64(got->tid, want->tid);
	check(got->time_ns <= want->time_ns);
	check(want->time_ns - got->time_ns < (age > 3000000000 ? STEP : 64));
}

static void put(struct list *l, uint32_t number)
{
	struct live_block b = new_block(l, number), old;

	check(!live_put(&l->live, &b, &old));
	if (l->blocks[number].address)
		same(l, &old, &l->blocks[number]);
	else
		check_u64(old.address, 0);
	l->count += !l->blocks[number].address;
	l->blocks[number] = b;
}

static void take(struct list *l, uint32_t number)
{
	bool there = l->blocks[number].address != 0;
	struct live_block b;

	check(live_has(&l->live, address_of(number)) == there);
	check(live_take(&l->live, address_of(number), &b) == there);
	if (there)
		same(l, &b, &l->blocks[number]);
	l->count -= there;
	l->blocks[number].address = 0;
}

static uint64_t sum_of(const struct live_block *b)
{
	return b->size * 31 + b->site * 7 + b->rate + b->address * 3;
}

static void compare(const struct list *l)
{
	struct live_walk walk = {0};
	struct live_block b;
	uint64_t sum = 0, walked = 0;
	size_t count = 0;

	for (; live_next(&l->live, &walk, &b); count++)
		walked += sum_of(&b);
	for (uint32_t i = 0; i < BLOCKS; i++)
		sum += l->blocks[i].address ? sum_of(&l->blocks[i]) : 0;
	check_u64(count, l->count);
	check_u64(l->live.count, l->count);
	check_u64(walked, sum);
}

/* Fills up, and becomes empty again, with times that go on by `step_ns`. */
static void fill_and_empty(uint64_t seed, uint64_t step_ns)
{
	struct list l = {.live.seed = seed * 0x9e3779b97f4a7c15u, .state = seed, .now_ns = 100 * seed};

	l.blocks = calloc(BLOCKS, sizeof(*l.blocks));
	for (unsigned phase = 0; phase < 8; phase++) {
		for (uint32_t i = 0; i < BLOCKS; i++) {
			l.now_ns += draw(&l, step_ns);
			if (draw(&l, 8) < (phase < 4 ? 6 : 1))
				put(&l, (uint32_t)draw(&l, BLOCKS));
			else
				take(&l, (uint32_t)draw(&l, BLOCKS));
		}
		live_fit(&l.live);
		compare(&l);
	}
	for (uint32_t i = 0; i < BLOCKS; i++)
		take(&l, i);
	compare(&l);
	live_fit(&l.live);
	check(live_bytes(&l.live) < 200000);
	live_release(&l.live);
	free(l.blocks);
}

TEST(random_blocks)
{
	for (uint64_t seed = 1; seed <= 3; seed++)
		fill_and_empty(seed, 1000);
}

/* Hours: times get their other form, more than once. */
TEST(long_times)
{
	fill_and_empty(4, 100000000);
}

/* What is said of memory: at most 24 bytes a block, whatever their number. */
TEST(memory)
{
	struct live l = {.seed = 0x123456789abcdef};
	struct live_block b = {.time_ns = 1000, .size = 32, .tid = LIVE_TID_OF_SITE}, old;

	for (uint32_t i = 1; i <= 1000000; i++) {
		b.address = 0x550000000000 + i * 48ull;
		check(!live_put(&l, &b, &old) && !old.address);
		if (i > 100000)
			check(live_bytes(&l) <= 24ull * i);
	}
	check_u64(l.count, 1000000);
	live_release(&l);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(random_blocks), T(long_times), T(memory));
}
