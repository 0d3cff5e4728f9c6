/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * An event loop of asyncio that has nothing to do, because its tasks wait for each other in a circle. The thread itself
 * waits in epoll_wait() or the like as any loop does; docs/heuristics/python-locks.md.
 */
#include "wait/kinds.h"
#include "wait/pythons.h"
#include "wait/task_circle.h"

#include <string.h>
#include <sys/syscall.h>

#include "base/buf.h"
#include "python/inside.h"
#include "sample/runtime_library.h"

#define MOST_TOLD 4u

struct telling {
	struct python_look *look;
	const struct python_tasks *tasks;
	struct buf words;
};

static bool waits_for_events(const struct wait_look *l)
{
	switch (l->call) {
#if defined(SYS_epoll_wait)
	case SYS_epoll_wait:
#endif
#if defined(SYS_epoll_pwait2)
	case SYS_epoll_pwait2:
#endif
#if defined(SYS_poll)
	case SYS_poll:
#endif
#if defined(SYS_select)
	case SYS_select:
#endif
	case SYS_epoll_pwait:
	case SYS_ppoll:
	case SYS_pselect6:
		return true;
	default:
		return false;
	}
}

static bool runs_asyncio(struct python_look *look, pid_t tid)
{
	const struct python_frames *frames = look_frames(look, tid);

	for (size_t i = 0; i < frames->len; i++)
		if (strstr(frames->data[i].code->file, "/asyncio/"))
			return true;
	return false;
}

/* Where a task is in a program of its own. */
static const char *place_of(struct telling *t, const struct python_task *task)
{
	for (size_t i = 0; i < task->frame_count; i++) {
		const struct python_frame *f = &t->tasks->frames.data[task->first_frame + i];

		if (!python_library(f->code->file))
			return look_place(t->look, f);
	}
	return "";
}

static uint32_t line_of_block(struct telling *t, const struct python_frame *f, uint64_t lock)
{
	struct python_inside insides[PYTHON_MOST_INSIDE];
	size_t count = python_inside(look_python(t->look), f, insides, PYTHON_MOST_INSIDE);

	for (size_t i = 0; i < count; i++)
		if (insides[i].object == lock)
			return insides[i].line;
	return 0;
}

static void tell_name(struct telling *t, const struct python_task *task)
{
	buf_printf(&t->words, "%.40s", *task->name ? task->name : "a task");
}

static void tell_lock(struct telling *t, const struct task_link *link)
{
	const struct python_task *task = &t->tasks->tasks.data[link->task];
	const struct python_type *type = python_type_of_object(look_python(t->look), link->lock);
	char name[96] = "";

	for (size_t i = 0; i < task->frame_count && !*name; i++)
		if (!python_library(t->tasks->frames.data[task->first_frame + i].code->file))
			look_name_in(t->look, &t->tasks->frames.data[task->first_frame + i], link->lock, name,
				sizeof(name));
	buf_printf(&t->words, " waits for asyncio.%s%s%s", type ? type->name : "Lock", *name ? " " : "", name);
}

/* Who waits, for what, and where: "Task-2 waits for asyncio.Lock a in work() (app.py:41), held by ". */
static void tell_link(struct telling *t, const struct task_link *link, const struct task_link *next)
{
	const struct python_task *task = &t->tasks->tasks.data[link->task];
	const struct python_task *holder = &t->tasks->tasks.data[next->task];
	const char *place = place_of(t, task);
	uint32_t line;

	if (link->lock)
		tell_lock(t, link);
	else
		buf_str(&t->words, " awaits");
	if (*place)
		buf_printf(&t->words, " (%s)", place);
	buf_str(&t->words, link->lock ? ", held by " : " ");
	tell_name(t, holder);
	line = link->lock ? line_of_block(t, &t->tasks->frames.data[link->frame], link->lock) : 0;
	if (line)
		buf_printf(&t->words, " (taken at line %u)", line);
}

static void tell_circle(struct telling *t, const struct task_link *links, size_t count, struct wait *ret)
{
	size_t told = count < MOST_TOLD ? count : MOST_TOLD;

	tell_name(t, &t->tasks->tasks.data[links[0].task]);
	for (size_t i = 0; i < told; i++) {
		if (i)
			buf_str(&t->words, ", which");
		tell_link(t, &links[i], &links[(i + 1) % told]);
	}
	if (told < count)
		buf_printf(&t->words, ", and so on for %zu tasks more", count - told);
	if (t->words.data)
		WAIT_SAY(ret->detail, "%s", t->words.data);
	WAIT_SAY(ret->what, "in its event loop, for %zu task%s of asyncio that wait%s for %s", count,
		count == 1 ? "" : "s", count == 1 ? "s" : "", count == 1 ? "itself" : "each other");
	buf_release(&t->words);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct python_threads threads = {0};
	struct python_tasks tasks = {0};
	struct task_link links[MOST_TOLD];
	struct python_look *look;
	size_t count = 0;

	/* Finding all tasks may mean to look at all objects. */
	if (snapshot_asked(l->snapshot)->often || !waits_for_events(l))
		return false;
	look = wait_python(l);
	if (!look || !runs_asyncio(look, l->look->tid))
		return false;
	look_copy_threads(look, &threads);
	if (!python_tasks(look_python(look), &threads, &tasks, NULL))
		count = task_circle(&tasks, links, MOST_TOLD);
	if (count) {
		ret->nature = WAIT_EVENT;
		ret->trouble = WAIT_TASK_CIRCLE;
		ret->grade = WAIT_INFERRED;
		tell_circle(&(struct telling){.look = look, .tasks = &tasks}, links, count, ret);
	}
	python_tasks_release(&tasks);
	vec_release(&threads);
	return count;
}

const struct wait_kind wait_kind_python_tasks = {.name = "python_tasks", .look = look};
