/* SPDX-License-Identifier: BSD-2-Clause */
/* Between running.c (perf, and what to do when) and running_stop.c (ptrace). */
#ifndef SONDE_SAMPLE_SNAPSHOT_RUNNING_PRIV_H
#define SONDE_SAMPLE_SNAPSHOT_RUNNING_PRIV_H

#include "sample/snapshot/running.h"

/* Copies what `stack` points to. 0 or -ENOMEM. */
int running_keep(struct running_samples *ret, const struct running_thread *thread, uint64_t time_ns,
	const struct raw_stack *stack);

/* Chains of Python frames of the sample that was kept last, as python_stopped_copy() wrote them. */
void running_keep_chains(struct running_samples *ret, const void *copied, size_t bytes);

/* One thread, by stopping it. As running_sample(). */
int running_stop(const struct running_thread *thread, struct python_stopped *python,
	struct running_samples *ret, struct running_cost *cost, struct err *err);

#endif
