/* SPDX-License-Identifier: BSD-2-Clause */
/* How long threads were stopped: a histogram with 16 steps a power of two, so within 6 %. */
#ifndef SONDE_SAMPLE_PTRACE_PAUSE_H
#define SONDE_SAMPLE_PTRACE_PAUSE_H

#include <stdint.h>

#define PAUSE_STEPS 16u
#define PAUSE_BUCKETS (61u * PAUSE_STEPS)

struct pauses {
	uint64_t count, max_ns;
	uint32_t buckets[PAUSE_BUCKETS];
};

void pauses_add(struct pauses *p, uint64_t ns);

/* So many of a thousand were not longer; the upper bound of its step. 0 when there were none. */
uint64_t pauses_permille(const struct pauses *p, unsigned permille);

#endif
