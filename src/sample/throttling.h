/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whether threads that waited for a CPU were held back because their cgroup had used up its bandwidth.
 *
 * The kernel tells of that only in sums, so they are looked at before and after: at long waits, and from
 * time to time. docs/heuristics/off-cpu-state.md.
 */
#ifndef SONDE_SAMPLE_THROTTLING_H
#define SONDE_SAMPLE_THROTTLING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct throttling;

int throttling_new(struct throttling **ret, struct err *err);
void throttling_free(struct throttling *t);

/* From now on the sums of the process's cgroups are known. */
void throttling_watch(struct throttling *t, pid_t pid, uint64_t now_ns);

/* Looks at the sums of all that are watched, when that was not done for a second. */
void throttling_refresh(struct throttling *t, uint64_t now_ns);

/* A thread of `pid` could run and did not, all of [from, to), which is over. */
bool throttling_covers(struct throttling *t, pid_t pid, uint64_t from_ns, uint64_t to_ns);

#endif
