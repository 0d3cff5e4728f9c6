/* SPDX-License-Identifier: BSD-2-Clause */
/* What the views of tasks share. */
#ifndef SONDE_VIEW_TASKS_PRIV_H
#define SONDE_VIEW_TASKS_PRIV_H

#include "view/tasks.h"
#include "view/why_priv.h"

/* NULL: not known. */
const struct task_thread *task_thread(const struct tasks_view *v, uint64_t state);

bool task_is_shown(const struct tasks_view *v, const struct python_task *task);

/* What is left of a sleep; false: it is none, or that is not known. */
bool task_left_ns(const struct tasks_view *v, const struct python_task *task, uint64_t *ret);

/* Why its frames are not all there are; NULL: they are. */
const char *task_hole(const struct python_task *task);

#endif
