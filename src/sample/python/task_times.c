/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/task_times.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "python/tasks.h"
#include "sample/python/known.h"
#include "sample/python/stacks.h"
#include "sample/session_priv.h"

VEC_TYPE(process_ids, pid_t);

/* Tasks that are in one place; they become one record. */
struct place {
	pid_t pid, tid;
	uint32_t stack, what, count;
	uint8_t doing, python;
};
VEC_TYPE(places, struct place);

struct task_times {
	struct session *session;
	uint64_t next_ns;
	uint64_t last_ns; /* of the look before: what a look stands for goes back to it */
	struct process_ids pids;
	struct places places;
	struct task_times_stats stats;
};

int task_times_new(struct session *s, struct task_times **ret, struct err *err)
{
	struct task_times *t = calloc(1, sizeof(*t));

	if (!t)
		return err_nomem(err);
	t->session = s;
	*ret = t;
	return 0;
}

void task_times_free(struct task_times *t)
{
	if (!t)
		return;
	vec_release(&t->pids);
	vec_release(&t->places);
	free(t);
}

uint64_t task_times_next_ns(const struct task_times *t)
{
	return t->next_ns;
}

const struct task_times_stats *task_times_stats(const struct task_times *t)
{
	return &t->stats;
}

/* ---- one task ---- */

/* The thread of its loop; of a loop that does not run the first one of the process. */
static pid_t thread_of(const struct known_python_thread *known, size_t count, const struct python_tasks *tasks,
	const struct python_task *task, pid_t pid)
{
	uint64_t state = task->loop == PYTHON_NO_LOOP ? 0 : tasks->loops.data[task->loop].thread;

	for (size_t i = 0; state && i < count; i++)
		if (known[i].thread.address == state && known[i].tid)
			return known[i].tid;
	return pid;
}

static uint32_t store_frames(struct session *s, const struct thread *th, const struct python_tasks *tasks,
	const struct python_task *task)
{
	uint32_t node = CAPTURE_NONE;

	for (size_t i = task->frame_count; i-- > 0;)
		node = capture_stack(s->writer, node,
			python_stacks_push(s, th, &tasks->frames.data[task->first_frame + i]));
	return node;
}

static uint32_t store_what(struct session *s, const struct python_task *task)
{
	struct buf text = {0};
	uint32_t id;

	if (task->state != PYTHON_TASK_WAITS)
		return CAPTURE_NONE;
	python_task_label(task, &text);
	id = text.failed || !text.len ? CAPTURE_NONE : capture_string(s->writer, text.data);
	buf_release(&text);
	return id;
}

static void add_task(struct task_times *t, struct thread *th, const struct python_tasks *tasks,
	const struct python_task *task)
{
	static const uint8_t doing[] = {
		[PYTHON_TASK_RUNS] = TASK_RUNS,
		[PYTHON_TASK_READY] = TASK_READY,
		[PYTHON_TASK_WAITS] = TASK_WAITS,
	};
	struct place place = {
		.pid = th->process->pid,
		.tid = th->tid,
		.stack = store_frames(t->session, th, tasks, task),
		.what = store_what(t->session, task),
		.count = 1,
		.doing = doing[task->state],
		.python = task->torn == PYTHON_CUT ? SAMPLE_PYTHON_CUT :
			task->torn           ? SAMPLE_PYTHON_TORN :
						 0,
	};

	/* A task that cannot be kept is one that was not seen. */
	if (vec_push(&t->places, place))
		t->stats.lost++;
}

/* ---- a process ---- */

/* The first thread may have ended, and then another one shows the memory. */
static pid_t reader_of(pid_t pid)
{
	struct proc_status status;
	bool alive = !proc_status_read(pid, &status, NULL) && !strchr("ZX", status.state);

	return alive ? pid : proc_surviving_thread(pid);
}

static int read_tasks(struct task_times *t, struct process *p, struct python_tasks *ret, struct err *err)
{
	const struct known_python_thread *known;
	struct python_threads threads = {0};
	size_t count = python_threads_now(t->session, p, reader_of(p->pid), &known);
	int rc = 0;

	for (size_t i = 0; i < count && !rc; i++)
		rc = vec_push(&threads, known[i].thread) ? err_nomem(err) : 0;
	if (!rc && count)
		rc = python_tasks(p->python->python, &threads, ret, err);
	for (size_t i = 0; i < ret->tasks.len && !rc; i++) {
		const struct python_task *task = &ret->tasks.data[i];
		struct thread *th = thread_find(t->session->processes,
			thread_of(known, count, ret, task, p->pid));

		if (!th || !th->selected)
			continue;
		session_tell(t->session, th);
		add_task(t, th, ret, task);
	}
	vec_release(&threads);
	return rc;
}

static void look_at(struct task_times *t, pid_t pid)
{
	struct process *p = process_find(t->session->processes, pid);
	struct python_tasks tasks = {0};
	struct err err = {0};

	if (!p || !python_of_process(t->session, p, pid))
		return;
	if (read_tasks(t, p, &tasks, &err)) {
		t->stats.failed++;
		snprintf(t->stats.why, sizeof(t->stats.why), "%.190s", err.text);
	}
	t->stats.tasks += tasks.tasks.len;
	t->stats.torn += tasks.torn;
	t->stats.lost += tasks.lost;
	python_tasks_release(&tasks);
}

static void note_process(void *ctx, pid_t pid)
{
	struct task_times *t = ctx;

	/* One that there is no memory for is looked at the next time. */
	(void)vec_push(&t->pids, pid);
}

/* ---- records ---- */

static int compare_places(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	if (x->tid != y->tid)
		return (x->tid > y->tid) - (x->tid < y->tid);
	if (x->stack != y->stack)
		return (x->stack > y->stack) - (x->stack < y->stack);
	if (x->what != y->what)
		return (x->what > y->what) - (x->what < y->what);
	if (x->doing != y->doing)
		return (x->doing > y->doing) - (x->doing < y->doing);
	return (x->python > y->python) - (x->python < y->python);
}

static void write_places(struct task_times *t, uint64_t now_ns, uint64_t span_ns)
{
	struct places *places = &t->places;

	if (places->len)
		qsort(places->data, places->len, sizeof(*places->data), compare_places);
	for (size_t i = 0, next; i < places->len; i = next) {
		const struct place *p = &places->data[i];
		struct record_task_time record = {
			.time_ns = now_ns,
			.pid = (uint32_t)p->pid,
			.tid = (uint32_t)p->tid,
			.stack = p->stack,
			.what = p->what,
			.doing = p->doing,
			.python = p->python,
		};

		for (next = i; next < places->len && !compare_places(p, &places->data[next]); next++)
			record.count++;
		record.weight_ns = span_ns * record.count;
		capture_record(t->session->writer, RECORD_TASK_TIME, &record, sizeof(record));
	}
	places->len = 0;
}

void task_times_step(struct task_times *t, uint64_t now_ns)
{
	uint64_t span_ns = t->last_ns ? now_ns - t->last_ns : TASK_TIMES_NS, took_ns, pause_ns;

	if (now_ns < t->next_ns)
		return;
	session_roll(t->session, now_ns);
	t->session->now_ns = now_ns;
	t->pids.len = 0;
	session_each_process(t->session, note_process, t);
	vec_each(&t->pids, pid)
		look_at(t, *pid);
	write_places(t, now_ns, span_ns);
	t->last_ns = now_ns;
	took_ns = clock_monotonic_ns() - now_ns;
	pause_ns = (uint64_t)((double)took_ns / TASK_TIMES_SHARE);
	t->next_ns = now_ns + (pause_ns > TASK_TIMES_NS ? pause_ns : TASK_TIMES_NS);
	t->stats.looks++;
	t->stats.elapsed_ns += took_ns;
}
