/* SPDX-License-Identifier: BSD-2-Clause */
/* Tasks for scripts: docs/JSON.md. */
#include "view/tasks_priv.h"

#include <inttypes.h>

static const char *const state_names[] = {
	[PYTHON_TASK_RUNS] = "running",
	[PYTHON_TASK_READY] = "ready",
	[PYTHON_TASK_WAITS] = "waiting",
};

static const char *const kind_names[] = {
	[PYTHON_WAIT_NOTHING] = "nothing",
	[PYTHON_WAIT_UNKNOWN] = "unknown",
	[PYTHON_WAIT_FUTURE] = "future",
	[PYTHON_WAIT_TASK] = "task",
	[PYTHON_WAIT_SLEEP] = "sleep",
	[PYTHON_WAIT_LOCK] = "lock",
	[PYTHON_WAIT_EVENT] = "event",
	[PYTHON_WAIT_CONDITION] = "condition",
	[PYTHON_WAIT_SEMAPHORE] = "semaphore",
	[PYTHON_WAIT_BARRIER] = "barrier",
	[PYTHON_WAIT_QUEUE] = "queue",
	[PYTHON_WAIT_STREAM] = "stream",
	[PYTHON_WAIT_SOCKET] = "socket",
	[PYTHON_WAIT_EXECUTOR] = "executor",
	[PYTHON_WAIT_PROCESS] = "process",
	[PYTHON_WAIT_SERVER] = "server",
};

static void address(struct buf *out, const char *key, uint64_t value)
{
	buf_printf(out, ",\"%s\":\"0x%" PRIx64 "\"", key, value);
}

static void holders(const struct tasks_view *v, const struct python_task *task, struct buf *out)
{
	size_t count = 0;
	const struct python_hold *h = python_tasks_holds(v->tasks, task->wait.object, &count);

	if (!task->wait.object || !count)
		return;
	buf_str(out, ",\"held_by\":[");
	for (size_t i = 0; i < count; i++)
		buf_printf(out, "%s\"0x%" PRIx64 "\"", i ? "," : "",
			v->tasks->tasks.data[h[i].task].address);
	buf_char(out, ']');
}

static void wait_object(const struct tasks_view *v, const struct python_task *task, struct buf *out)
{
	const struct task_thread *worker = task_thread(v, task->wait.thread);
	uint64_t left;

	buf_str(out, "{");
	json_text(out, "kind", kind_names[task->wait.kind]);
	buf_char(out, ',');
	json_text(out, "what", task->wait.words);
	if (task->wait.object)
		address(out, "object", task->wait.object);
	if (task->wait.future)
		address(out, "future", task->wait.future);
	if (task_left_ns(v, task, &left))
		buf_printf(out, ",\"left_ns\":%" PRIu64, left);
	if (task->wait.fd >= 0)
		buf_printf(out, ",\"fd\":%d", task->wait.fd);
	if (task->wait.pid)
		buf_printf(out, ",\"pid\":%" PRId64, task->wait.pid);
	if (worker)
		buf_printf(out, ",\"tid\":%d", (int)worker->tid);
	holders(v, task, out);
	buf_char(out, '}');
}

static void numbers(const struct tasks_view *v, const char *key, const struct python_task_numbers *list,
	struct buf *out)
{
	buf_printf(out, ",\"%s\":[", key);
	vec_each(list, number)
		buf_printf(out, "%s\"0x%" PRIx64 "\"", number == list->data ? "" : ",",
			v->tasks->tasks.data[*number].address);
	buf_char(out, ']');
}

void task_frame_json(const struct python_frame *f, struct buf *out)
{
	buf_char(out, '{');
	json_text(out, "function", f->code->name);
	buf_char(out, ',');
	json_text(out, "file", f->code->file);
	buf_printf(out, ",\"line\":%" PRIu32, f->position.line);
	if (f->position.column)
		buf_printf(out, ",\"column\":%" PRIu32, f->position.column);
	buf_char(out, '}');
}

static void task_object(const struct tasks_view *v, const struct python_task *task, struct buf *out)
{
	const char *hole = task_hole(task);

	buf_printf(out, "{\"id\":\"0x%" PRIx64 "\",", task->address);
	json_text(out, "name", task->name);
	buf_char(out, ',');
	json_text(out, "type", task->type->full_name);
	if (task->loop == PYTHON_NO_LOOP)
		buf_str(out, ",\"loop\":null,");
	else
		buf_printf(out, ",\"loop\":%" PRIu32 ",", task->loop);
	json_text(out, "state", state_names[task->state]);
	buf_str(out, ",\"wait\":");
	if (task->state == PYTHON_TASK_WAITS)
		wait_object(v, task, out);
	else
		buf_str(out, "null");
	numbers(v, "awaits", &task->waits_for, out);
	numbers(v, "awaited_by", &task->awaited_by, out);
	buf_str(out, ",\"frames\":[");
	for (size_t i = 0; i < task->frame_count; i++) {
		buf_str(out, i ? "," : "");
		task_frame_json(&v->tasks->frames.data[task->first_frame + i], out);
	}
	buf_printf(out, "],\"whole\":%s", hole ? "false" : "true");
	if (hole) {
		buf_char(out, ',');
		json_text(out, "hole", hole);
	}
	if (task->foreign) {
		buf_char(out, ',');
		json_text(out, "foreign", task->foreign);
	}
	buf_char(out, '}');
}

static void loop_object(const struct tasks_view *v, const struct python_loop *loop, struct buf *out)
{
	const struct task_thread *thread = task_thread(v, loop->thread);

	buf_char(out, '{');
	json_text(out, "type", loop->type ? loop->type->full_name : "");
	address(out, "id", loop->address);
	if (thread) {
		buf_printf(out, ",\"tid\":%d,", (int)thread->tid);
		json_text(out, "thread", thread->name);
	}
	buf_char(out, '}');
}

int view_tasks_json(const struct tasks_view *v, struct buf *out, struct err *err)
{
	const struct python_tasks *t = v->tasks;
	bool any = false;

	buf_char(out, '{');
	if (v->core) {
		core_json(v->core, out);
		buf_str(out, ",\n");
	}
	json_text(out, "python", v->version);
	buf_printf(out, ",\"asyncio\":%s,\n\"loops\":[", t->asyncio ? "true" : "false");
	vec_each(&t->loops, loop) {
		buf_str(out, loop == t->loops.data ? "\n" : ",\n");
		loop_object(v, loop, out);
	}
	buf_str(out, "],\n\"tasks\":[");
	vec_each(&t->tasks, task) {
		if (!task_is_shown(v, task))
			continue;
		buf_str(out, any ? ",\n" : "\n");
		task_object(v, task, out);
		any = true;
	}
	buf_str(out, "],\n");
	view_greenlets_json(v, out);
	buf_printf(out, ",\n\"lost\":%" PRIu64 ",\"torn\":%" PRIu64 ",\"complete\":%s}\n", t->lost, t->torn,
		t->incomplete || t->cut ? "false" : "true");
	return out->failed ? err_nomem(err) : 0;
}
