/* SPDX-License-Identifier: BSD-2-Clause */
/* What is read of allocations from recordings, and what follows from it. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "alloc_fail.h"
#include "small_heap.h"

static bool is_near(double got, double want, double part)
{
	if (fabs(got - want) <= fabs(want) * part + 1e-9)
		return true;
	printf("%.10g is not %.10g\n", got, want);
	return false;
}

static const struct heap_spot *spot_named(const struct profile *p, const struct heap_spots *s, const char *name)
{
	for (size_t i = 0; i < s->spots.len; i++)
		if (!strcmp(p->functions.data[s->spots.data[i].function].name, name))
			return &s->spots.data[i];
	return NULL;
}

TEST(sums_are_those_of_the_recording)
{
	struct profile *p = heap_profile_of(false, END_TARGET_EXITED, NULL);
	const struct profile_heap *h = p ? p->heap : NULL;

	check(h != NULL);
	if (!h)
		return;
	check_u64(h->sites.len, 6);
	check_u64(h->moments.len, 61);
	check_u64(h->totals.len, 61);
	check_u64(h->sum.live, 240 + 5120 + 1);
	check_u64(h->sum.live_bytes, 240 * 4096 + 5120 * 4096 + 200);
	check_u64(h->sum.leaked_bytes, h->sum.live_bytes);
	check_u64(h->peak_bytes, 30 * 16384 + (20 << 20) + (32 << 20) + 200);
	check_u64(h->peak_ns, SMALL_START_NS + 30 * NS_PER_S);
	check_u64(h->sum.number[HEAP_TEMPORARY], 60000);
	check_u64(h->sum.number[HEAP_ALLOCATED], 240 + 5120 + 60000 + 1 + 1200 + 600);
	check_u64(h->sum.number[HEAP_CROSS_FREED], 600);
	check(!h->sampled && !h->range && !h->filtered);
	check_u64(h->processes.len, 1);
	check_str(h->processes.data[0].name, "server");
	check_str(h->processes.data[0].allocator, "/lib/libc.so.6");
	check(!h->processes.data[0].uncovered && h->processes.data[0].ended);
	check_u64(h->flows.len, 1);
	check_u64(h->threads.len, 2);
	check_u64(p->quality.losses[LOSS_HEAP_EARLY], 7);
	profile_free(p);
}

TEST(spots_are_named_outside_the_allocator)
{
	struct profile *p = heap_profile_of(false, END_TARGET_EXITED, NULL);
	struct heap_spots s = {0};
	const struct heap_spot *spot;

	check(p && !heap_spots_build(p, HEAP_BY_LIVE, &s, NULL));
	check_u64(s.spots.len, 5); /* parse of both threads is one */
	check_str(p->functions.data[s.spots.data[0].function].name, "fill");
	spot = spot_named(p, &s, "remember");
	check(spot && spot->line == 70 && !strcmp(spot->file, "server.c"));
	check(spot && spot->sum.live == 240 && spot->sum.live_bytes == 983040);
	spot = spot_named(p, &s, "fill");
	check(spot && spot->line == 20 && spot->sum.leaked == 5120);
	spot = spot_named(p, &s, "parse");
	check(spot && spot->count == 2 && spot->sum.number[HEAP_TEMPORARY] == 60000);
	check(spot && spot->sum.number[HEAP_CROSS_FREED] == 600 && spot->sum.live == 0);
	spot = spot_named(p, &s, "burst");
	check(spot && spot->sum.number[HEAP_PEAK_BYTES] == 32 << 20 && spot->sum.live_bytes == 0);
	spot = spot_named(p, &s, "grow");
	check(spot && spot->sum.number[HEAP_REALLOCATED] == 1199 && spot->sum.number[HEAP_MOVED] == 720);
	heap_spots_release(&s);
	profile_free(p);
}

static struct heap_growth growth_of(const struct profile *p, const char *name)
{
	struct heap_spots s = {0};
	struct heap_growth g = {0};
	const struct heap_spot *spot;

	check(!heap_spots_build(p, HEAP_BY_GROWTH, &s, NULL));
	spot = spot_named(p, &s, name);
	if (spot)
		g = spot->growth;
	heap_spots_release(&s);
	return g;
}

TEST(a_leak_grows_and_a_full_cache_does_not)
{
	struct profile *p = heap_profile_of(false, END_DURATION, NULL);
	struct heap_spots s = {0};
	struct heap_growth g = growth_of(p, "remember");

	check_u64(g.trend, HEAP_TREND_GROWS);
	check(is_near(g.rate, 16384, 0.001) && is_near(g.low, 16384, 0.01) && is_near(g.high, 16384, 0.01));
	g = growth_of(p, "fill");
	check_u64(g.trend, HEAP_TREND_FILLED);
	check_u64(growth_of(p, "parse").trend, HEAP_TREND_STEADY);
	check_u64(growth_of(p, "burst").trend, HEAP_TREND_STEADY);
	check(!heap_spots_build(p, HEAP_BY_GROWTH, &s, NULL));
	check_str(p->functions.data[s.spots.data[0].function].name, "remember");
	heap_spots_release(&s);
	profile_free(p);
}

/* A program that runs on: what is older than 6 seconds. */
TEST(what_is_young_has_not_leaked)
{
	struct profile *p = heap_profile_of(false, END_DURATION, NULL);
	struct heap_spots s = {0};
	const struct heap_spot *spot;

	check(p && !p->heap->processes.data[0].ended && !heap_spots_build(p, HEAP_BY_LEAKED, &s, NULL));
	spot = spot_named(p, &s, "fill");
	check(spot && spot->sum.leaked_bytes == 5120 * 4096);
	/* 8.4 to 16.8 s old, as the recording says; but at 54 s there were only so many */
	spot = spot_named(p, &s, "remember");
	check(spot && spot->sum.leaked_bytes == 54 * 16384 && spot->sum.leaked == 216);
	heap_spots_release(&s);
	profile_free(p);
}

TEST(a_range_is_the_difference_of_two_moments)
{
	struct profile_load_options o = {.filter = {.heap_from_ns = 10 * NS_PER_S + 1, .heap_to_ns = 25 * NS_PER_S}};
	struct profile *p = heap_profile_of(false, END_TARGET_EXITED, &o);
	struct heap_spots s = {0};
	const struct heap_spot *spot;

	check(p && p->heap->range && !heap_spots_build(p, HEAP_BY_GROWTH, &s, NULL));
	check_u64(p->heap->from_ns, SMALL_START_NS + 10 * NS_PER_S);
	check_u64(p->heap->to_ns, SMALL_START_NS + 25 * NS_PER_S);
	spot = spot_named(p, &s, "remember");
	check(spot && spot->sum.before_bytes == 10 * 16384 && spot->sum.live_bytes == 25 * 16384);
	check(spot && spot->sum.number[HEAP_ALLOCATED] == 60 && spot->sum.leaked == 0);
	spot = spot_named(p, &s, "fill");
	check(spot && spot->sum.before_bytes == 10 << 20 && spot->sum.live_bytes == 20 << 20);
	check(spot && spot->sum.number[HEAP_PEAK_BYTES] == 0); /* it came later */
	check_u64(p->heap->sum.number[HEAP_TEMPORARY], 15000);
	check_u64(p->heap->peak_bytes, (20 << 20) + 25 * 16384 + 200);
	heap_spots_release(&s);
	profile_free(p);
}

TEST(threads_can_be_left_out)
{
	struct profile_load_options o = {.filter = {.tid = 101}};
	struct profile *p = heap_profile_of(false, END_TARGET_EXITED, &o);

	check(p && p->heap->filtered);
	check_u64(p->heap->sites.len, 1);
	check_u64(p->heap->sum.number[HEAP_ALLOCATED], 600);
	check_u64(p->heap->sum.live, 0);
	check_u64(p->heap->flows.len, 1);
	check(p->heap->flows.data[0].thread == PROFILE_NONE);
	profile_free(p);
	o.filter = (struct profile_filter){.main_only = true};
	p = heap_profile_of(false, END_TARGET_EXITED, &o);
	check_u64(p->heap->sites.len, 5);
	check_u64(p->heap->flows.len, 0);
	profile_free(p);
}

TEST(sites_become_samples_of_their_bytes)
{
	struct profile *p = heap_profile_of(false, END_TARGET_EXITED, NULL);
	struct profile_tree t;

	check(p && !profile_heap_weigh(p, HEAP_BY_PEAK, NULL));
	check_u64(p->mode, PROFILE_HEAP);
	check_u64(p->samples.len, 3);
	check_u64(p->total_weight, (32 << 20) + 5120 * 4096 + 120 * 4096);
	check(!profile_tree_build(p, false, &t, NULL));
	check_u64(t.nodes.data[0].total_weight, p->total_weight);
	profile_tree_release(&t);
	profile_free(p);
}

/* ---- intervals ---- */

TEST(exact_numbers_are_their_own_interval)
{
	struct heap_interval i = heap_interval(1000, 0, 0);

	check(i.low == 1000 && i.high == 1000);
	i = heap_interval(0, 0, 0);
	check(i.low == 0 && i.high == 0);
}

TEST(what_was_never_sampled_may_still_be_there)
{
	struct heap_interval i = heap_interval(0, 0, 1000);

	/* No event of a Poisson number: its 97.5 % limit is 3.69. */
	check(i.low == 0 && is_near(i.high, 3689, 0.02));
}

/* Exact limits of Poisson numbers (Garwood 1936): 10 events, 4.795 to 18.39. */
TEST(few_samples_have_wide_intervals)
{
	struct heap_interval i = heap_interval(10000, 10000000, 1000);

	check(is_near(i.low, 4795, 0.02) && is_near(i.high, 18390, 0.02));
}

/* A generator that gives the same numbers everywhere. */
static uint64_t seed;

static double uniform(void)
{
	seed = hash_u64(seed + 0x9e3779b97f4a7c15u);
	return ((double)(seed >> 11) + 0.5) / 9007199254740992.0;
}

/* Blocks of these sizes, sampled at `rate`: does the interval have the true sum in it? */
static bool covered(const double *sizes, size_t kinds, size_t blocks, double rate)
{
	struct profile_heap h = {.sampled = true, .least_rate = rate};
	struct heap_sum s = {0};
	double truth = 0, variance = 0;
	struct heap_interval i;

	for (size_t b = 0; b < blocks; b++) {
		double size = sizes[b % kinds], p = 1 - exp(-size / rate);

		truth += size;
		if (uniform() >= p)
			continue;
		s.number[HEAP_ALLOCATED] += 1 / p;
		s.number[HEAP_ALLOCATED_BYTES] += size / p;
		variance += size * size * (1 - p) / (p * p);
	}
	i = heap_interval(s.number[HEAP_ALLOCATED_BYTES], variance, heap_weight(&h, &s, true));
	return i.low <= truth && truth <= i.high;
}

TEST(intervals_cover_the_truth)
{
	static const double mixed[] = {16, 48, 64, 200, 1000, 5000, 70000, 2000000}, small[] = {64}, large[] = {300000, 900000};
	static const struct {
		const double *sizes;
		size_t kinds, blocks;
	} cases[] = {
		{mixed, 8, 800}, {mixed, 8, 80000}, {small, 1, 20000}, {small, 1, 300000}, {large, 2, 4}, {large, 2, 100},
	};

	for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
		unsigned hits = 0;

		seed = 1234 + c;
		for (unsigned run = 0; run < 200; run++)
			hits += covered(cases[c].sizes, cases[c].kinds, cases[c].blocks, 524288);
		if (hits < 186)
			printf("case %zu: %u of 200\n", c, hits);
		check(hits >= 186);
	}
}

/* ---- growth of lines that are made up ---- */

#define MOMENTS 60

static struct heap_growth trend_with(const double *line, const double *variance, double weight)
{
	static const double none[MOMENTS];
	uint64_t times[MOMENTS];
	struct profile_heap h = {.to_ns = MOMENTS * NS_PER_S, .sampled = weight > 0, .least_rate = weight};
	struct profile p = {.heap = &h};
	struct heap_sum sum = {.number = {[HEAP_ALLOCATED] = 1000, [HEAP_ALLOCATED_BYTES] = 100000}};

	for (uint64_t i = 0; i < MOMENTS; i++)
		times[i] = i * NS_PER_S;
	h.moments.data = times;
	h.moments.len = MOMENTS;
	return heap_growth_of(&p, line, variance ? variance : none, &sum);
}

static struct heap_growth trend(const double *line, const double *variance)
{
	return trend_with(line, variance, 0);
}

TEST(a_saw_tooth_is_no_leak)
{
	double line[MOMENTS];

	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = 1e6 + 1e5 * (i % 7);
	check_u64(trend(line, NULL).trend, HEAP_TREND_STEADY);
	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = 1e6 + 1e5 * (i % 7) + 17476.0 * i;
	check_u64(trend(line, NULL).trend, HEAP_TREND_GROWS);
	check(trend(line, NULL).low < 17476 && trend(line, NULL).high > 17476);
}

TEST(what_fills_slower_and_slower_is_no_leak)
{
	double line[MOMENTS];

	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = 1e7 * (1 - exp(-(double)i / 8));
	check_u64(trend(line, NULL).trend, HEAP_TREND_FILLED);
	/* Full shortly before the end; what was in it is replaced. */
	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = i < 50 ? 4e4 * i : 2e6 + 1e3 * (i % 3);
	check_u64(trend(line, NULL).trend, HEAP_TREND_FILLED);
	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = i < 30 ? 0 : 1e5 * (i - 30);
	check_u64(trend(line, NULL).trend, HEAP_TREND_GROWS);
	check(is_near(trend(line, NULL).rate, 1e5, 0.05));
	for (unsigned i = 0; i < MOMENTS; i++)
		line[i] = 1e7 - 1e5 * i;
	check_u64(trend(line, NULL).trend, HEAP_TREND_SHRINKS);
}

/* A sampled leak: steps of the sampling rate, at random. The interval has the truth in it, about as often as it says. */
TEST(the_rate_of_a_sampled_leak_is_in_its_interval)
{
	unsigned hits = 0, grows = 0, wrong = 0;

	seed = 99;
	for (unsigned run = 0; run < 200; run++) {
		double line[MOMENTS], variance[MOMENTS], flat[MOMENTS], flat_variance[MOMENTS], samples = 0;
		struct heap_growth g;

		for (unsigned i = 0; i < MOMENTS; i++) {
			for (unsigned k = 0; k < 100; k++)
				samples += uniform() < 0.02; /* 2 a second */
			line[i] = samples * 65536;
			variance[i] = samples * 65536.0 * 65536;
			flat[i] = 0;
			for (unsigned k = 0; k < 1000; k++)
				flat[i] += uniform() < 0.04; /* about 40 live, others each second */
			flat_variance[i] = flat[i] * 65536.0 * 65536;
			flat[i] *= 65536;
		}
		g = trend_with(line, variance, 65536);
		grows += g.trend == HEAP_TREND_GROWS;
		hits += g.low <= 131072 && g.high >= 131072;
		wrong += trend_with(flat, flat_variance, 65536).trend == HEAP_TREND_GROWS;
	}
	check(hits >= 186 && grows >= 180 && wrong <= 6);
}

/* ---- damage and memory ---- */

TEST(numbers_of_damaged_files_stay_numbers)
{
	struct buf payload = {0}, file = {0};
	struct record_heap_site site = {.id = 5, .pid = 1, .tid = 1, .stack = 77};
	struct record_heap_state state = {.site = 5, .time_ns = 2000};
	struct record_heap_total total = {.time_ns = 3000, .live_bytes = -5, .peak_bytes = NAN, .with_sites = 1};
	struct record_heap_flow flow = {.site = 9, .count = 1};
	struct profile *p = NULL;

	for (size_t i = 0; i < HEAP_NUMBERS; i++)
		state.number[i] = i % 2 ? NAN : -INFINITY;
	state.number[HEAP_FREED_BYTES] = 1e300;
	raw_header(&file);
	raw_record(&payload, RECORD_HEAP_SITE, &site, sizeof(site));
	raw_record(&payload, RECORD_HEAP_STATE, &state, sizeof(state));
	state.site = 6;
	raw_record(&payload, RECORD_HEAP_STATE, &state, sizeof(state));
	raw_record(&payload, RECORD_HEAP_FLOW, &flow, sizeof(flow));
	raw_record(&payload, RECORD_HEAP_TOTAL, &total, sizeof(total));
	raw_block(&file, 0, payload.data, payload.len);
	check(!profile_load_memory(file.data, file.len, NULL, &p, NULL));
	check(p && p->heap && p->heap->sites.len == 1 && p->heap->flows.len == 0);
	for (size_t i = 0; p && i < HEAP_NUMBERS; i++)
		check(p->heap->sites.data[0].sum.number[i] == 0);
	check(p && p->heap->peak_bytes == 0 && p->heap->sum.live_bytes == 0);
	check(p && p->heap->sites.data[0].stack == PROFILE_NONE);
	profile_free(p);
	buf_release(&payload);
	buf_release(&file);
}

static void load_and_rank(void)
{
	struct bytes bytes = heap_recording(true, END_DURATION);
	struct heap_spots s = {0};
	struct profile *p = NULL;
	int rc = -ENOMEM;

	for (unsigned n = 0; rc == -ENOMEM && n < 100000; n++) {
		alloc_fail_begin(n);
		rc = profile_load_memory(bytes.data, bytes.len, NULL, &p, NULL);
		alloc_fail_end();
	}
	check(!rc);
	rc = -ENOMEM;
	for (unsigned n = 0; p && rc == -ENOMEM && n < 100000; n++) {
		alloc_fail_begin(n);
		rc = heap_spots_build(p, HEAP_BY_LIVE, &s, NULL);
		alloc_fail_end();
	}
	check(!rc);
	heap_spots_release(&s);
	profile_free(p);
	free(bytes.data);
}

TEST(memory_may_run_out_anywhere)
{
	load_and_rank();
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(sums_are_those_of_the_recording), T(spots_are_named_outside_the_allocator),
		T(a_leak_grows_and_a_full_cache_does_not), T(what_is_young_has_not_leaked),
		T(a_range_is_the_difference_of_two_moments), T(threads_can_be_left_out),
		T(sites_become_samples_of_their_bytes), T(exact_numbers_are_their_own_interval),
		T(what_was_never_sampled_may_still_be_there), T(few_samples_have_wide_intervals),
		T(intervals_cover_the_truth), T(a_saw_tooth_is_no_leak), T(what_fills_slower_and_slower_is_no_leak),
		T(the_rate_of_a_sampled_leak_is_in_its_interval), T(numbers_of_damaged_files_stay_numbers),
		T(memory_may_run_out_anywhere));
}
