/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the tasks of asyncio are doing while a session records: some times a second all of them are read
 * (python/tasks.h), and those of one loop that are in the same place become one RECORD_TASK_TIME.
 *
 * Nothing is stopped. A look at many tasks takes long: then there are fewer of them, so that this takes no more than
 * TASK_TIMES_SHARE of a CPU, and each stands for more time.
 */
#ifndef SONDE_SAMPLE_PYTHON_TASK_TIMES_H
#define SONDE_SAMPLE_PYTHON_TASK_TIMES_H

#include "sample/session.h"

#define TASK_TIMES_NS (50 * 1000000ULL) /* between two looks */
#define TASK_TIMES_SHARE 0.1

struct task_times; /* of a session, which is borrowed */
int task_times_new(struct session *s, struct task_times **ret, struct err *err);
void task_times_free(struct task_times *t);

/* When the next look is due. */
uint64_t task_times_next_ns(const struct task_times *t);

/* Looks, where that is due. */
void task_times_step(struct task_times *t, uint64_t now_ns);

struct task_times_stats {
	uint64_t looks, tasks;    /* tasks: in all looks together */
	uint64_t elapsed_ns;      /* that looking took */
	uint64_t torn, lost;      /* tasks whose frames did not hold, that were gone */
	uint64_t failed;          /* looks at a process that came to nothing; the last reason is */
	char why[200];
};
const struct task_times_stats *task_times_stats(const struct task_times *t);

#endif
