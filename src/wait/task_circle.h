/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks of asyncio that wait for each other in a circle. docs/heuristics/python-locks.md. */
#ifndef SONDE_WAIT_TASK_CIRCLE_H
#define SONDE_WAIT_TASK_CIRCLE_H

#include "python/tasks.h"

/* A task of a circle. */
struct task_link {
	uint32_t task;
	uint64_t lock; /* that it waits for and the next task has; 0: it waits for the end of the next task */
	size_t frame;  /* of a lock: in struct python_tasks.frames, the next task's, whose block it is */
};

/* The first circle that there is; how many tasks are in it, of which at most `limit` are told. 0: there is none, or no
 * memory to look for it. */
size_t task_circle(const struct python_tasks *tasks, struct task_link *ret, size_t limit);

#endif
