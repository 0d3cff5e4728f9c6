/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which tasks there are. asyncio keeps them to answer asyncio.all_tasks():
 *
 *	3.8 to 3.11   asyncio.tasks._all_tasks, a WeakSet
 *	3.12, 3.13    asyncio.tasks._scheduled_tasks, a WeakSet, and _eager_tasks, a set
 *	3.14          these for tasks that are not asyncio's own; its own are in a ring for each thread, and
 *	              one for each interpreter, of those whose thread has ended
 */
#include "python/tasks_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A ring that is changed while it is walked is walked anew, so often. */
#define RING_TRIES 3u
#define CHAIN_TRIES 3u

const char *tasks_text(struct tasks_look *look, const struct buf *text)
{
	uint32_t id = text->failed ? INTERN_NONE : intern_add(&look->ret->texts, text->len ? text->data : "", text->len);

	return id == INTERN_NONE ? NULL : intern_get(&look->ret->texts, id, NULL);
}

/* ---- the stacks of threads ---- */

static int read_stacks(struct tasks_look *look)
{
	struct python_chain chain = {.links = look->links, .limit = PYTHON_MOST_AWAITS};

	vec_each(look->threads, t) {
		struct thread_stack stack = {.thread = t, .first = look->stacks.len};

		python_chain_read(look->p, t->address, &chain);
		if (python_frames(look->p, &chain, &look->stacks))
			return -ENOMEM;
		stack.count = look->stacks.len - stack.first;
		if (vec_push(&look->by_thread, stack))
			return -ENOMEM;
	}
	return 0;
}

/* ---- where they are ---- */

static bool found(void *ctx, uint64_t task)
{
	struct tasks_look *look = (struct tasks_look *)ctx;

	if (look->found.len >= PYTHON_MOST_TASKS) {
		look->ret->cut = true;
		return true;
	}
	return vec_push(&look->found, task);
}

/* False: it is no ring, or not any more. `head` and each node are {next, previous}. */
static bool walk_ring(struct tasks_look *look, uint64_t head)
{
	uint64_t at = head, link[2], previous = 0;

	for (size_t i = 0; i <= PYTHON_MOST_TASKS; i++) {
		if (!python_pointer_ok(at) || !python_read(look->p, at, link, sizeof(link)) ||
			(i && link[1] != previous))
			return false;
		if (i && found(look, at - look->layout.node))
			return true;
		previous = at;
		at = link[0];
		if (at == head)
			return link[1] || i;
	}
	return false;
}

static void read_ring(struct tasks_look *look, uint64_t head)
{
	for (unsigned i = 0; i < RING_TRIES; i++) {
		if (walk_ring(look, head))
			return;
		python_refresh(look->p);
	}
	look->ret->incomplete = true;
}

static int read_interpreter(struct tasks_look *look, uint64_t interpreter)
{
	static const char *const sets[] = {"_all_tasks", "_scheduled_tasks", "_eager_tasks"};
	struct python *p = look->p;
	uint64_t module = python_module(p, interpreter, "asyncio.tasks"), task;
	const struct python_type *type;

	if (!module)
		return 0;
	look->ret->asyncio = true;
	task = python_global(p, python_module(p, interpreter, "_asyncio"), "Task");
	type = task ? python_type(p, task) : NULL;
	if (type && !look->layout.known && future_layout(look, type))
		return -EOPNOTSUPP;
	for (size_t i = 0; i < sizeof(sets) / sizeof(sets[0]); i++)
		python_each_item(p, python_global(p, module, sets[i]), found, look);
	if (!look->layout.node)
		return 0;
	vec_each(look->threads, t)
		if (t->interpreter == interpreter)
			read_ring(look, t->address + p->layout.thread.tasks);
	read_ring(look, interpreter + p->layout.interpreter.tasks);
	return 0;
}

static int read_interpreters(struct tasks_look *look)
{
	uint64_t last = 0;
	int rc = 0;

	/* Threads of one interpreter stand together. */
	vec_each(look->threads, t) {
		if (t->interpreter != last && !rc)
			rc = read_interpreter(look, t->interpreter);
		last = t->interpreter;
	}
	return rc;
}

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void sort_found(struct tasks_look *look)
{
	size_t kept = 0;

	if (look->found.len)
		qsort(look->found.data, look->found.len, sizeof(uint64_t), compare_addresses);
	for (size_t i = 0; i < look->found.len; i++)
		if (!kept || look->found.data[i] != look->found.data[kept - 1])
			look->found.data[kept++] = look->found.data[i];
	look->found.len = kept;
}

/* ---- loops ---- */

/* Whether it is what asyncio.get_running_loop() would tell in that thread. */
static bool runs_in(struct python *p, uint64_t loop, const struct python_thread *t)
{
	uint64_t dict, value, inner;

	if (p->minor >= 14)
		return python_read_u64(p, t->address + p->layout.thread.running_loop, &value) && value == loop;
	if (!python_read_u64(p, t->address + p->layout.thread.dict, &dict))
		return false;
	value = python_dict_get(p, dict, "__asyncio_running_event_loop__");
	/* Up to 3.11 an object of _asyncio's own that begins with the loop. */
	return value == loop || (p->minor <= 11 && value &&
					python_read_u64(p, value + p->layout.object.bytes, &inner) &&
					inner == loop);
}

/* Loops in Python keep the thread that is in them. */
static bool says_so(struct python *p, uint64_t loop, const struct python_thread *t)
{
	uint64_t value = python_attribute(p, loop, "_thread_id");
	int64_t pthread;

	return value && python_int(p, value, &pthread) && (uint64_t)pthread == t->pthread;
}

static uint64_t thread_of(struct tasks_look *look, uint64_t loop, uint64_t *ret_interpreter)
{
	vec_each(look->threads, t)
		if (runs_in(look->p, loop, t) || says_so(look->p, loop, t)) {
			*ret_interpreter = t->interpreter;
			return t->address;
		}
	return 0;
}

static int loop_index(struct tasks_look *look, uint64_t address, uint32_t *ret)
{
	struct python_loop loop = {.address = address};

	*ret = PYTHON_NO_LOOP;
	if (!address)
		return 0;
	for (size_t i = 0; i < look->ret->loops.len; i++)
		if (look->ret->loops.data[i].address == address) {
			*ret = (uint32_t)i;
			return 0;
		}
	loop.type = python_type_of_object(look->p, address);
	loop.thread = thread_of(look, address, &loop.interpreter);
	*ret = (uint32_t)look->ret->loops.len;
	return vec_push(&look->ret->loops, loop);
}

/* ---- one task ---- */

/* Of one that runs: what its thread is in, from the innermost frame out to the coroutine. */
static int running_frames(struct tasks_look *look, struct python_task *task)
{
	struct python_frames *frames = &look->ret->frames;
	uint64_t outermost;

	if (!task->frame_count)
		return 0;
	outermost = frames->data[task->first_frame + task->frame_count - 1].at;
	vec_each(&look->by_thread, t)
		for (size_t i = 0; i < t->count; i++) {
			if (look->stacks.data[t->first + i].at != outermost)
				continue;
			frames->len = task->first_frame;
			if (vec_reserve(frames, frames->len + i + 1))
				return -ENOMEM;
			memcpy(frames->data + frames->len, look->stacks.data + t->first,
				(i + 1) * sizeof(*frames->data));
			frames->len += i + 1;
			task->frame_count = i + 1;
			return 0;
		}
	/* It began to run, or ended, while threads were looked at. */
	task->torn = PYTHON_TORN;
	return 0;
}

static int set_foreign(struct tasks_look *look, const struct await_chain *chain, struct python_task *task)
{
	const struct python_type *type = chain->end ? python_type_of_object(look->p, chain->end) : NULL;
	struct buf name = {0};
	struct future f;

	if (!type || future_look(look, chain->end, &f))
		return 0;
	buf_str(&name, type->full_name);
	task->foreign = tasks_text(look, &name);
	buf_release(&name);
	return task->foreign ? 0 : -ENOMEM;
}

static int set_name(struct tasks_look *look, const struct future *f, struct python_task *task)
{
	struct buf name = {0};

	task_name(look, f, &name);
	task->name = tasks_text(look, &name);
	buf_release(&name);
	return task->name ? 0 : -ENOMEM;
}

/* Edges are kept as addresses until all tasks are known. */
struct edge {
	uint32_t from; /* index of who waits */
	uint64_t to;
};
VEC_TYPE(edges, struct edge);

static int add_edges(struct tasks_look *look, const struct addresses *waits_for, struct edges *edges)
{
	vec_each(waits_for, to)
		if (vec_push(edges, (struct edge){(uint32_t)look->ret->tasks.len - 1, *to}))
			return -ENOMEM;
	return 0;
}

/*
 * The frames of a task that can go on meanwhile: what they were made of is read again, past the pages that are kept,
 * and if it has changed all is read anew. 1: it is done, or no task.
 */
static int read_chain(struct tasks_look *look, struct python_task *task, struct future *f,
	struct await_chain *chain)
{
	for (unsigned i = 0; i < CHAIN_TRIES; i++) {
		int rc;

		if (i)
			python_refresh(look->p);
		look->held.len = look->watched.len = 0;
		look->ret->frames.len = task->first_frame;
		if (!future_look(look, task->address, f) || !f->task) {
			look->ret->lost++;
			return 1;
		}
		task->coroutine = task_coroutine(look, f);
		if (f->done || !task->coroutine)
			return 1;
		if (f->c) {
			tasks_watch(look, f->address + look->layout.coroutine);
			tasks_watch(look, f->address + look->layout.waiter);
		}
		rc = await_chain(look, task->coroutine, chain);
		/* It is about to be done. */
		if (rc || chain->progress == PROGRESS_ENDED)
			return rc ? rc : 1;
		/* One that runs is told by its thread. */
		if (chain->progress == PROGRESS_RUNS ||
			(tasks_stood_still(look) && (chain->torn == PYTHON_WHOLE || chain->torn == PYTHON_CUT)))
			return 0;
	}
	chain->torn = chain->torn == PYTHON_WHOLE ? PYTHON_TORN : chain->torn;
	return 0;
}

/* 0: also when it is done, or no task. */
static int read_task(struct tasks_look *look, uint64_t address, struct edges *edges)
{
	struct python_task task = {.address = address, .first_frame = look->ret->frames.len};
	struct addresses waits_for = {0};
	struct await_chain chain;
	struct future f;
	int rc = read_chain(look, &task, &f, &chain);

	if (rc)
		return rc < 0 ? rc : 0;
	task.type = python_type_of_object(look->p, address);
	if (!task.type)
		return 0;
	task.frame_count = look->ret->frames.len - task.first_frame;
	task.torn = chain.torn;
	task.begun = chain.progress != PROGRESS_NOT_BEGUN || task.frame_count != 1;
	if (chain.progress == PROGRESS_RUNS)
		rc = running_frames(look, &task);
	rc = rc ? rc : set_name(look, &f, &task);
	rc = rc ? rc : set_foreign(look, &chain, &task);
	rc = rc ? rc : task_wait(look, &f, &chain, &task, &waits_for);
	rc = rc ? rc : loop_index(look, future_loop(look, &f), &task.loop);
	look->ret->torn += task.torn == PYTHON_TORN || task.torn == PYTHON_UNREADABLE;
	rc = rc ? rc : task_holds_end(look, &task);
	rc = rc ? rc : vec_push(&look->ret->tasks, task);
	rc = rc ? rc : add_edges(look, &waits_for, edges);
	vec_release(&waits_for);
	return rc;
}

/* ---- who awaits whom ---- */

int64_t python_tasks_find(const struct python_tasks *t, uint64_t address)
{
	size_t low = 0, high = t->tasks.len;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (t->tasks.data[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low < t->tasks.len && t->tasks.data[low].address == address ? (int64_t)low : -1;
}

static bool has_number(const struct python_task_numbers *numbers, uint32_t number)
{
	/* The last ones are those that can be there twice: each task's are pushed in one go. */
	for (size_t i = numbers->len, n = 0; i-- > 0 && n < 64; n++)
		if (numbers->data[i] == number)
			return true;
	return false;
}

static int link_tasks(struct tasks_look *look, uint32_t from, uint64_t to)
{
	struct python_tasks *t = look->ret;
	int64_t index = python_tasks_find(t, to);

	if (index < 0 || index == from || has_number(&t->tasks.data[from].waits_for, (uint32_t)index))
		return 0;
	if (vec_push(&t->tasks.data[from].waits_for, (uint32_t)index) ||
		vec_push(&t->tasks.data[index].awaited_by, from))
		return -ENOMEM;
	return 0;
}

struct said {
	struct tasks_look *look;
	uint64_t task;
	int rc;
};

static bool take_said(void *ctx, uint64_t by)
{
	struct said *s = (struct said *)ctx;
	int64_t index = python_tasks_find(s->look->ret, by);

	if (index >= 0)
		s->rc = link_tasks(s->look, (uint32_t)index, s->task);
	return s->rc;
}

static int link_all(struct tasks_look *look, const struct edges *edges)
{
	int rc = 0;

	vec_each(edges, e)
		if (!rc)
			rc = link_tasks(look, e->from, e->to);
	for (size_t i = 0; look->layout.awaited_by && i < look->ret->tasks.len && !rc; i++) {
		struct said s = {.look = look, .task = look->ret->tasks.data[i].address};
		struct future f;

		if (future_look(look, s.task, &f))
			future_awaited_by(look, &f, take_said, &s);
		rc = s.rc;
	}
	return rc;
}

int python_tasks(struct python *p, const struct python_threads *threads, struct python_tasks *ret,
	struct err *err)
{
	struct tasks_look look = {.p = p, .threads = threads, .ret = ret, .err = err};
	struct edges edges = {0};
	int rc;

	look.links = calloc(PYTHON_MOST_AWAITS + 1, sizeof(*look.links));
	rc = look.links ? read_stacks(&look) : -ENOMEM;
	rc = rc ? rc : read_interpreters(&look);
	sort_found(&look);
	vec_each(&look.found, address)
		if (!rc)
			rc = read_task(&look, *address, &edges);
	rc = rc ? rc : link_all(&look, &edges);
	task_holds_sort(&look);
	free(look.links);
	vec_release(&look.stacks);
	vec_release(&look.by_thread);
	vec_release(&look.found);
	vec_release(&look.held);
	vec_release(&look.watched);
	vec_release(&edges);
	return rc == -ENOMEM ? err_nomem(err) : rc;
}

void python_tasks_release(struct python_tasks *t)
{
	vec_each(&t->tasks, task) {
		vec_release(&task->waits_for);
		vec_release(&task->awaited_by);
	}
	vec_release(&t->tasks);
	vec_release(&t->loops);
	vec_release(&t->holds);
	vec_release(&t->frames);
	intern_release(&t->texts);
	*t = (struct python_tasks){0};
}
