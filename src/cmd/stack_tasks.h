/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde stack --tasks: what asyncio has to do, instead of threads. */
#ifndef SONDE_CMD_STACK_TASKS_H
#define SONDE_CMD_STACK_TASKS_H

#include "view/why.h"

struct stack_tasks_ask {
	struct snapshot *snapshot;
	struct snapshot_process *process;
	const struct stack_threads *threads; /* tasks of loops that these are in; NULL: all tasks */
	const struct term *term;
	bool json;
};

/* -ENOENT: it has no Python, or no asyncio, in words. */
int stack_tasks(const struct stack_tasks_ask *ask, struct buf *out, struct err *err);

#endif
