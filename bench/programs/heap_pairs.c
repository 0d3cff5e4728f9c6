/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * heap_pairs THREADS PAIRS [BLOCKS]: allocates and frees PAIRS blocks in each thread, from 1,024 different stacks 15
 * calls deep. Sizes are mixed, 16 bytes to 64 KiB and 950 on average; one block in four is freed at once, the others
 * once as many are live as BLOCKS says (1,000).
 *
 * Prints what a pair took, in ns: "cpu N wall N", of all threads together; then "allocated BYTES live BLOCKS".
 */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spin.h"

#define BITS 10 /* of a stack's number */

struct work {
	pthread_t thread;
	uint64_t random, cpu_ns, bytes;
	void **live;
	long pairs, blocks;
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec ts;

	clock_gettime(clock, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

static uint64_t draw(struct work *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return w->random;
}

/* Most are small: every power of two is drawn half as often as the one below it, nearly. */
static size_t draw_size(struct work *w)
{
	uint64_t r = draw(w);
	unsigned power = 4;

	while (power < 15 && (r & 15) < 10) {
		r >>= 4;
		power++;
	}
	return ((size_t)1 << power) + (draw(w) & (((size_t)1 << power) - 1));
}

NOINLINE static void *get(struct work *w)
{
	size_t size = draw_size(w);
	char *block = malloc(size);

	if (!block)
		abort();
	block[0] = block[size - 1] = 1;
	w->bytes += size;
	return block;
}

static void *left(struct work *w, unsigned bits, unsigned depth);
static void *right(struct work *w, unsigned bits, unsigned depth);

static void *next(struct work *w, unsigned bits, unsigned depth)
{
	if (!depth)
		return get(w);
	return bits & 1 ? left(w, bits >> 1, depth - 1) : right(w, bits >> 1, depth - 1);
}

NOINLINE static void *left(struct work *w, unsigned bits, unsigned depth)
{
	void *block = next(w, bits, depth);

	NOT_A_TAIL_CALL;
	return block;
}

NOINLINE static void *right(struct work *w, unsigned bits, unsigned depth)
{
	void *block = next(w, bits, depth);

	NOT_A_TAIL_CALL;
	return block;
}

NOINLINE static void pair(struct work *w, long i)
{
	uint64_t r = draw(w);
	void **slot = &w->live[(size_t)i % (size_t)w->blocks];
	void *block = left(w, (unsigned)(r >> 8) & ((1u << BITS) - 1), BITS);

	if (!(r & 3)) {
		free(block);
		return;
	}
	free(*slot);
	*slot = block;
}

static void *run(void *arg)
{
	struct work *w = arg;
	uint64_t start = now_ns(CLOCK_THREAD_CPUTIME_ID);

	for (long i = 0; i < w->pairs; i++)
		pair(w, i);
	w->cpu_ns = now_ns(CLOCK_THREAD_CPUTIME_ID) - start;
	return NULL;
}

int main(int argc, char **argv)
{
	long threads = argc > 1 ? atol(argv[1]) : 1, pairs = argc > 2 ? atol(argv[2]) : 1000000;
	long blocks = argc > 3 ? atol(argv[3]) : 1000, live = 0;
	struct work *work = calloc((size_t)threads, sizeof(*work));
	uint64_t start = now_ns(CLOCK_MONOTONIC), wall, cpu = 0, bytes = 0;

	for (long i = 0; i < threads; i++) {
		work[i] = (struct work){.random = 88172645463325252u + (uint64_t)i * 7919, .pairs = pairs,
			.blocks = blocks, .live = calloc((size_t)blocks, sizeof(void *))};
		if (threads == 1)
			run(&work[i]);
		else
			pthread_create(&work[i].thread, NULL, run, &work[i]);
	}
	for (long i = 0; i < threads && threads > 1; i++)
		pthread_join(work[i].thread, NULL);
	wall = now_ns(CLOCK_MONOTONIC) - start;
	for (long i = 0; i < threads; i++) {
		cpu += work[i].cpu_ns;
		bytes += work[i].bytes;
		for (long j = 0; j < blocks; j++)
			live += !!work[i].live[j];
	}
	printf("cpu %.1f wall %.1f allocated %llu live %ld\n", (double)cpu / (double)(threads * pairs),
		(double)wall / (double)(threads * pairs), (unsigned long long)bytes, live);
	return 0;
}
