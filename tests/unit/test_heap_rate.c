/* SPDX-License-Identifier: BSD-2-Clause */
/* The rate that is chosen for a wish, in closed loops over programs that are made up. */
#include "test.h"

#include "heap/rate.h"

#define S_NS 1000000000u

/* A program that allocates so many bytes a second of CPU time, looked at five times a second. */
static uint64_t settle_overhead(double bytes_per_s, double wish, uint64_t rate)
{
	for (unsigned i = 0; i < 60; i++) {
		struct heap_rate_seen seen = {
			.samples = (uint64_t)(bytes_per_s / 5 / (double)rate), .cpu_ns = S_NS / 5};

		rate = heap_rate_next(&(struct heap_rate_wish){.overhead = wish}, &seen, rate);
	}
	return rate;
}

TEST(overhead_is_as_wished)
{
	static const double allocated[] = {1e8, 1e9, 1e10};
	static const double wishes[] = {0.002, 0.01, 0.05};

	for (size_t i = 0; i < 3; i++)
		for (size_t k = 0; k < 3; k++) {
			uint64_t rate = settle_overhead(allocated[i], wishes[k], HEAP_RATE_FIRST);
			double overhead = allocated[i] / (double)rate * HEAP_SAMPLE_COST_NS / S_NS;

			check(rate == HEAP_RATE_LEAST || (overhead > 0.9 * wishes[k] && overhead < 1.1 * wishes[k]));
		}
}

TEST(a_program_that_allocates_little_is_seen_as_well_as_it_goes)
{
	check_u64(settle_overhead(1000, 0.01, HEAP_RATE_FIRST), HEAP_RATE_LEAST);
	check_u64(settle_overhead(1e15, 0.0001, HEAP_RATE_FIRST), HEAP_RATE_MOST);
}

TEST(an_idle_program_changes_nothing)
{
	struct heap_rate_seen seen = {.samples = 3, .cpu_ns = 1000};

	check_u64(heap_rate_next(&(struct heap_rate_wish){.overhead = 0.01}, &seen, 4096), 4096);
	check_u64(heap_rate_next(&(struct heap_rate_wish){.error = 0.1}, &seen, 4096), 4096);
}

/* What is live is 100 MB of small blocks, all of them replaced between two looks. */
TEST(error_is_as_wished)
{
	static const double wishes[] = {0.01, 0.05, 0.2};

	for (size_t k = 0; k < 3; k++) {
		double live = 1e8, error;
		uint64_t rate = HEAP_RATE_FIRST;

		for (unsigned i = 0; i < 60; i++) {
			struct heap_rate_seen seen = {
				.cpu_ns = S_NS, .live_bytes = live, .variance = live * (double)rate};

			rate = heap_rate_next(&(struct heap_rate_wish){.error = wishes[k]}, &seen, rate);
		}
		error = 1.96 * 1.96 * (double)rate / live; /* squared */
		check(error > 0.98 * wishes[k] * wishes[k] && error < 1.02 * wishes[k] * wishes[k]);
	}
}

TEST(overhead_comes_before_error)
{
	struct heap_rate_wish wish = {.overhead = 0.01, .error = 0.001};
	struct heap_rate_seen seen = {.samples = 100000, .cpu_ns = S_NS, .live_bytes = 1e6, .variance = 1e11};

	check_u64(heap_rate_next(&wish, &seen, 4096), 8192);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(overhead_is_as_wished),
		T(a_program_that_allocates_little_is_seen_as_well_as_it_goes), T(an_idle_program_changes_nothing),
		T(error_is_as_wished), T(overhead_comes_before_error));
}
