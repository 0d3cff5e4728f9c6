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

/* Its frames as lines, the innermost first, then `hole` unless that is NULL. */
void task_frames(const struct tasks_view *v, const struct python_frame *frames, size_t count, const char *hole,
	size_t indent, struct buf *out);

/* {"function":...} */
void task_frame_json(const struct python_frame *f, struct buf *out);

/* greenlets.c: those that are shown, with what is above them. */
int view_greenlets(const struct tasks_view *v, struct buf *out);
/* "greenlets":[...] and what was not recognised. */
void view_greenlets_json(const struct tasks_view *v, struct buf *out);

/* -1, 0, 1 */
int task_compare_frames(const struct python_frame *a, size_t a_count, const struct python_frame *b, size_t b_count);

/* Why its frames are not all there are; NULL: they are. */
const char *task_hole(const struct python_task *task);

#endif
