/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which of asyncio's locks a suspended task holds: docs/heuristics/await-chain.md.
 *
 * asyncio.Lock has no owner. But whoever is inside of `async with lock:` has its __aexit__ on the value stack of that frame,
 * to call it at the end: a bound method up to 3.13, from 3.14 on the function and, above it, the lock. Who still waits
 * to get in has it as well, and then __aenter__ is among its frames.
 */
#include "python/tasks_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "python/text.h"

/* Slots of one frame that are looked at; `with` blocks are nested at most 20 deep, but loops lie between. */
#define MOST_SLOTS 256u

static bool is_exit(struct python *p, uint64_t function)
{
	uint64_t name;
	struct buf text = {0};
	bool is;

	if (!python_is(p, function, "function") ||
		!python_read_u64(p, function + p->layout.function.qualname, &name) ||
		!python_str(p, name, 200, &text, NULL))
		return false;
	is = text.len >= 9 && !memcmp(text.data + text.len - 9, "__aexit__", 9);
	buf_release(&text);
	return is;
}

uint64_t task_lock(struct python *p, uint64_t object)
{
	const struct python_type *type = python_type_of_object(p, object);

	if (!type)
		return 0;
	if (python_derives(p, type, "asyncio.locks.Condition"))
		return python_attribute(p, object, "_lock");
	return python_derives(p, type, "asyncio.locks.Lock") || python_derives(p, type, "asyncio.locks.Semaphore")
		? object
		: 0;
}

/* What the slot's __aexit__ is of; 0: it is none. */
static uint64_t exit_of(struct python *p, uint64_t value, uint64_t above)
{
	uint64_t function, self;

	if (p->minor >= 14)
		return is_exit(p, value) ? above : 0;
	if (!python_is(p, value, "method") || !python_read_u64(p, value + p->layout.method.function, &function) ||
		!is_exit(p, function) || !python_read_u64(p, value + p->layout.method.self, &self))
		return 0;
	return self;
}

int task_holds_in(struct tasks_look *look, uint64_t frame, uint64_t stack, uint64_t top)
{
	uint64_t slots[MOST_SLOTS + 1] = {0}, count = (top - stack) / 8;

	if (top <= stack)
		return 0;
	if (count > MOST_SLOTS)
		count = MOST_SLOTS;
	if (!python_read(look->p, stack, slots, count * 8))
		return 0;
	for (uint64_t i = 0; i < count; i++) {
		uint64_t value = slots[i], above = slots[i + 1], lock;

		if (look->p->minor >= 14) {
			value &= ~PYTHON_REFERENCE_TAGS;
			above &= ~PYTHON_REFERENCE_TAGS;
		}
		value = python_pointer_ok(value) ? exit_of(look->p, value, above) : 0;
		lock = value ? task_lock(look->p, value) : 0;
		if (lock && vec_push(&look->held, (struct held){lock, frame}))
			return -ENOMEM;
	}
	return 0;
}

/* Whether it is the task's own __aenter__ that waits for the lock. */
static bool is_entering(struct tasks_look *look, const struct python_task *task, uint64_t lock)
{
	for (size_t i = 0; i < task->frame_count; i++) {
		const struct python_frame *f = &look->ret->frames.data[task->first_frame + i];
		const char *dot = strrchr(f->code->name, '.');

		if (is_asyncio(f, "locks.py") && !strcmp(dot ? dot + 1 : f->code->name, "__aenter__"))
			return task_lock(look->p, python_local(look->p, f, "self")) == lock;
	}
	return false;
}

static size_t frame_index(struct tasks_look *look, const struct python_task *task, uint64_t at)
{
	size_t i = task->first_frame;

	while (i < task->first_frame + task->frame_count && look->ret->frames.data[i].at != at)
		i++;
	return i;
}

int task_holds_end(struct tasks_look *look, const struct python_task *task)
{
	/* The innermost link was read last. */
	for (size_t i = 0; i < look->held.len; i++) {
		const struct held *h = &look->held.data[i];
		struct python_hold hold = {
			.task = (uint32_t)look->ret->tasks.len,
			.lock = h->lock,
			.frame = frame_index(look, task, h->frame),
		};
		bool last = true;

		for (size_t k = i + 1; k < look->held.len; k++)
			last &= look->held.data[k].lock != h->lock;
		if (hold.frame >= task->first_frame + task->frame_count ||
			(last && is_entering(look, task, h->lock)))
			continue;
		if (vec_push(&look->ret->holds, hold))
			return -ENOMEM;
	}
	return 0;
}

static int by_lock(const void *a, const void *b)
{
	const struct python_hold *x = (const struct python_hold *)a, *y = (const struct python_hold *)b;

	if (x->lock != y->lock)
		return (x->lock > y->lock) - (x->lock < y->lock);
	return (x->task > y->task) - (x->task < y->task);
}

const struct python_hold *python_tasks_holds(const struct python_tasks *t, uint64_t lock, size_t *ret_count)
{
	size_t low = 0, high = t->holds.len, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->holds.data[middle].lock < lock)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < t->holds.len && t->holds.data[end].lock == lock;)
		end++;
	*ret_count = end - low;
	return end > low ? &t->holds.data[low] : NULL;
}

void task_holds_sort(struct tasks_look *look)
{
	if (look->ret->holds.len)
		qsort(look->ret->holds.data, look->ret->holds.len, sizeof(*look->ret->holds.data), by_lock);
}
