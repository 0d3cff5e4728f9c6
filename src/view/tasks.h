/* SPDX-License-Identifier: BSD-2-Clause */
/* Pictures of the tasks of a CPython process: who awaits whom, and what they wait for. 0 or -ENOMEM. */
#ifndef SONDE_VIEW_TASKS_H
#define SONDE_VIEW_TASKS_H

#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/term.h"
#include "python/greenlets.h"
#include "python/tasks.h"

struct core;

struct task_thread {
	uint64_t state;   /* its PyThreadState */
	pid_t tid;        /* as we know it */
	const char *name;
};
VEC_TYPE(task_threads, struct task_thread);

struct tasks_view {
	const struct python_tasks *tasks;
	const struct python_greenlets *greenlets;
	const struct task_threads *threads;
	const bool *loops;    /* of tasks->loops: whether its tasks are to be shown; NULL: all are */
	const bool *greenlet; /* the same of greenlets->greenlets */
	const char *version;  /* of CPython */
	uint64_t now_ns;      /* CLOCK_MONOTONIC where the process is; 0: not known, and what is left of sleeps is not told */
	const struct core *core; /* NULL: it lives */
	struct term term;     /* for text */
};

/* A tree for each loop: tasks that nobody awaits, and below each those that it waits for. Then the stacks of greenlets that
 * are switched out. Those that are in the same place for the same reason are shown once. */
int view_tasks(const struct tasks_view *v, struct buf *out, struct err *err);

/* One object: docs/JSON.md. */
int view_tasks_json(const struct tasks_view *v, struct buf *out, struct err *err);

#endif
