/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which intervals off the CPU are kept, of a thread that has more of them than are worth a stack.
 *
 * While there is a threshold, an interval that is shorter is kept with the probability of its length
 * by the threshold, and then stands for the threshold; a longer one is always kept, as it is. So the
 * expected weight of every interval is its length, and of two places where a thread waits the one
 * with twice the time has twice the weight. The threshold follows from earlier intervals alone, never
 * from the one that is judged. docs/heuristics/thinning.md.
 *
 * There may also be intervals whose stack nobody has, because copying each would cost too much. They are
 * brief, or their stack would have been read while they lasted; and what they come to is laid on brief intervals
 * with a stack, by length, as time goes on.
 *
 * All-zero is a thread of which everything is kept.
 */
#ifndef SONDE_SAMPLE_THINNING_H
#define SONDE_SAMPLE_THINNING_H

#include <stdint.h>

struct thinning {
	uint64_t threshold_ns;
	uint64_t window_ns;     /* when the current window began */
	uint64_t spent_ns;      /* the sum of the intervals in it */
	uint32_t seen, kept;    /* how many */
	/* of brief intervals: time without a stack that is not laid on others yet; time with one, in this
	 * window and in the one before; what each of those gets on top of its length */
	uint64_t owed_ns, brief_ns;
	double on_top;
};

#define THINNING_BRIEF_NS (5 * 1000000ULL)

/* So many a second may be kept of one thread, about. */
#define THINNING_WINDOW_NS (100 * 1000000ULL)
#define THINNING_MOST 100u /* in a window */
#define THINNING_LEAST 4u

/* The weight of an interval that ends at `end_ns`; 0: it is not kept. `most`: how many of this thread
 * are welcome in a window. `random`: 64 random bits. */
uint64_t thinning_weight(struct thinning *t, uint64_t end_ns, uint64_t duration_ns, uint32_t most,
	uint64_t random);

/* A brief interval without a stack, that would have counted. */
void thinning_missed(struct thinning *t, uint64_t end_ns, uint64_t duration_ns);

#endif
