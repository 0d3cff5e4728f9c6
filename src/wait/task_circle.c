/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/task_circle.h"

#include <stdlib.h>
#include <string.h>

/* A walk into the depth, without recursion. */
struct visit {
	bool on_path, done;
	size_t edge; /* the next to follow */
};

struct search {
	const struct python_tasks *tasks;
	struct visit *visits;
	VEC(struct task_link) path;
};

/* One that goes on when any of several has ended is not held up by one. */
static bool waits_for_any(const struct python_tasks *tasks, const struct python_task *t)
{
	for (size_t i = 0; i < t->frame_count; i++) {
		const struct python_code *code = tasks->frames.data[t->first_frame + i].code;
		const char *dot = strrchr(code->name, '.');

		if (strstr(code->file, "asyncio/tasks.py") && !strcmp(dot ? dot + 1 : code->name, "_wait"))
			return t->waits_for.len > 1;
	}
	return false;
}

/* Edge number `index` of a task; false: there are not so many. */
static bool edge_of(const struct search *s, uint32_t from, size_t index, struct task_link *link, uint32_t *ret_to)
{
	const struct python_task *t = &s->tasks->tasks.data[from];
	const struct python_hold *hold;
	size_t count = 0;

	*link = (struct task_link){.task = from};
	if (t->state != PYTHON_TASK_WAITS)
		return false;
	hold = t->wait.kind == PYTHON_WAIT_LOCK || t->wait.kind == PYTHON_WAIT_SEMAPHORE
		? python_tasks_holds(s->tasks, t->wait.object, &count)
		: NULL;
	if (hold && count == 1) {
		link->lock = hold->lock;
		link->frame = hold->frame;
		*ret_to = hold->task;
		return !index && hold->task < s->tasks->tasks.len;
	}
	if (index >= t->waits_for.len || waits_for_any(s->tasks, t))
		return false;
	*ret_to = t->waits_for.data[index];
	return *ret_to < s->tasks->tasks.len;
}

/* True: the path has come back to one of its tasks, which is where the circle begins. */
static bool walk_from(struct search *s, uint32_t first, size_t *ret_begin)
{
	uint32_t to = first;

	s->path.len = 0;
	if (vec_push(&s->path, (struct task_link){.task = first}))
		return false;
	s->visits[first].on_path = true;
	while (s->path.len) {
		struct task_link *last = &s->path.data[s->path.len - 1];
		struct visit *v = &s->visits[last->task];

		if (!edge_of(s, last->task, v->edge++, last, &to)) {
			v->on_path = false;
			v->done = true;
			s->path.len--;
			continue;
		}
		if (s->visits[to].on_path) {
			for (*ret_begin = 0; s->path.data[*ret_begin].task != to; ++*ret_begin)
				;
			return true;
		}
		if (s->visits[to].done)
			continue;
		s->visits[to].on_path = true;
		if (vec_push(&s->path, (struct task_link){.task = to}))
			return false;
	}
	return false;
}

size_t task_circle(const struct python_tasks *tasks, struct task_link *ret, size_t limit)
{
	struct search s = {.tasks = tasks};
	size_t begin = 0, count = 0;

	s.visits = calloc(tasks->tasks.len + 1, sizeof(*s.visits));
	for (size_t i = 0; s.visits && i < tasks->tasks.len && !count; i++)
		if (!s.visits[i].done && walk_from(&s, (uint32_t)i, &begin))
			count = s.path.len - begin;
	for (size_t i = 0; i < count && i < limit; i++)
		ret[i] = s.path.data[begin + i];
	vec_release(&s.path);
	free(s.visits);
	return count;
}
