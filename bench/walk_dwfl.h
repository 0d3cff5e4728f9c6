/* SPDX-License-Identifier: BSD-2-Clause */
/* The same samples through libdwfl, as a peer to measure against. */
#ifndef SONDE_BENCH_WALK_DWFL_H
#define SONDE_BENCH_WALK_DWFL_H

#include "bench/samples.h"

struct dwfl_walker;

struct dwfl_walker *dwfl_walker_new(const struct sampled_process *p);
void dwfl_walker_free(struct dwfl_walker *w);

/* Walks one sample; fills pcs[0..limit) and returns how many frames there are. */
size_t dwfl_walker_walk(
	struct dwfl_walker *w, const struct stack_sample *s, uint64_t *pcs, size_t limit);

#endif
