/* SPDX-License-Identifier: BSD-2-Clause */
/* Sampling in watched programs: the distributions are what the estimates of the model suppose. Seeds are fixed. */
#include "heap/preload/sample.h"

#include <math.h>
#include <stdlib.h>

#include "heap/share.h"
#include "test.h"

/* Within 4.5 standard deviations of a binomial share. */
static bool is_share(double got, double p, double n)
{
	return fabs(got / n - p) <= 4.5 * sqrt(p * (1 - p) / n) + 1e-12;
}

TEST(logarithm)
{
	uint64_t random = sample_seed(1);
	double worst = 0;

	for (int i = 0; i < 200000; i++) {
		double x = (double)((sample_random(&random) >> 11) + 1) * 0x1p-53, error = fabs(sample_log(x) - log(x));

		if (error > worst)
			worst = error;
	}
	check(worst < 1e-10);
	check(sample_log(1) == 0);
	check(fabs(sample_log(0x1p-53) - log(0x1p-53)) < 1e-10);
	check(fabs(sample_log(1e18) - log(1e18)) < 1e-10);
}

TEST(a_block_is_sampled_by_its_size)
{
	static const uint64_t sizes[] = {1, 2, 100, 1000, 2000, 5000};
	uint64_t random = sample_seed(2), rate = 1000;
	int n = 400000, hits[6] = {0};

	for (int i = 0; i < n; i++) {
		int64_t distance = sample_draw_bytes(&random, rate);

		check(distance >= 1);
		for (int k = 0; k < 6; k++)
			hits[k] += distance <= (int64_t)sizes[k];
	}
	for (int k = 0; k < 6; k++)
		check(is_share(hits[k], 1 - exp(-(double)sizes[k] / (double)rate), n));
}

/* Bytes and blocks, estimated with 1 / p each, are the truth: within 4.5 standard deviations of the estimator. */
TEST(estimates_are_right)
{
	uint64_t random = sample_seed(3), sizes = sample_seed(4), rate = 4096, truth = 0, samples = 0;
	double bytes = 0, count = 0, variance = 0;
	int64_t left = sample_draw_bytes(&random, rate);
	int n = 2000000;

	for (int i = 0; i < n; i++) {
		uint64_t word = sample_random(&sizes), size = (word & 511) + 1;

		if ((word >> 20) % 256 == 0)
			size *= 64;
		truth += size;
		left -= sample_cost(size, SAMPLE_BYTES_MASK);
		if (left <= 0) {
			double p = 1 - exp(-(double)size / (double)rate);

			bytes += (double)size / p;
			count += 1 / p;
			variance += (double)size * (double)size * (1 - p) / (p * p);
			samples++;
			left = sample_draw_bytes(&random, rate);
		}
	}
	check(samples > 50000);
	check(fabs(bytes - (double)truth) < 4.5 * sqrt(variance));
	check(fabs(count - n) < 0.05 * n);
}

TEST(one_call_in_so_many)
{
	static const uint64_t rates[] = {2, 3, 10, 1000, 5000};
	uint64_t random = sample_seed(5);
	int n = 300000;

	for (int k = 0; k < 5; k++) {
		double sum = 0, rate = (double)rates[k];
		int ones = 0;

		for (int i = 0; i < n; i++) {
			int64_t distance = sample_draw_calls(&random, rates[k]);

			ones += distance == 1;
			sum += (double)distance;
		}
		check(is_share(ones, 1 / rate, n));
		check(fabs(sum / n - rate) < 4.5 * rate / sqrt(n));
	}
	for (int i = 0; i < 100; i++) {
		check(sample_draw_calls(&random, 1) == 1 && sample_draw_calls(&random, 0) == 1);
		check(sample_draw_bytes(&random, 1) == 1 && sample_draw_bytes(&random, 0) == 1);
	}
}

TEST(distances_stay_in_bounds)
{
	uint64_t random = sample_seed(6);

	for (int i = 0; i < 100000; i++) {
		check(sample_draw_bytes(&random, UINT64_MAX) >= 1);
		check(sample_draw_calls(&random, UINT64_MAX) >= 1);
	}
}

TEST(what_a_block_costs)
{
	check(sample_cost(0, SAMPLE_BYTES_MASK) == 1);
	check(sample_cost(1, SAMPLE_BYTES_MASK) == 1);
	check(sample_cost(4096, SAMPLE_BYTES_MASK) == 4096);
	check(sample_cost(UINT64_MAX, SAMPLE_BYTES_MASK) > 0);
	check(sample_cost(0, 0) == 1 && sample_cost(4096, 0) == 1);
}

TEST(seeds_differ)
{
	uint64_t seen[1000];

	for (uint64_t i = 0; i < 1000; i++) {
		seen[i] = sample_seed(i);
		check(seen[i] != 0);
		for (uint64_t k = 0; k < i; k++)
			check(seen[k] != seen[i]);
	}
}

TEST(a_full_counter_stays)
{
	uint8_t *counts = calloc(SHARE_FILTER_SLOTS, 1);
	uint32_t slot = share_filter_slot(0x7f0012345670);

	if (!counts)
		abort();
	for (int i = 0; i < 300; i++)
		sample_mark(counts, 0x7f0012345670);
	check_u64(counts[slot], 255);
	for (uint32_t i = 0; i < SHARE_FILTER_SLOTS; i++)
		check(i == slot || !counts[i]);
	free(counts);
}

TEST(a_free_is_told_once)
{
	uint8_t *counts = calloc(SHARE_FILTER_SLOTS, 1);
	uint64_t block = 0x7f0012345670, other = block + 0x100000;

	if (!counts)
		abort();
	check(!sample_free_is_told(block));
	sample_mark(counts, block);
	check(!sample_free_is_told(block));
	sample_tell_free(block);
	check(sample_free_is_told(block) && !sample_free_is_told(other));
	/* Given out again, and sampled this time. */
	sample_mark(counts, block);
	check(!sample_free_is_told(block));
	/* What others mark does not matter. */
	sample_tell_free(block);
	sample_mark(counts, other);
	check(sample_free_is_told(block));
	free(counts);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(logarithm), T(a_block_is_sampled_by_its_size), T(estimates_are_right),
		T(one_call_in_so_many), T(distances_stay_in_bounds), T(what_a_block_costs), T(seeds_differ),
		T(a_full_counter_stays), T(a_free_is_told_once));
}
