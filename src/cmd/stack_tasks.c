/* SPDX-License-Identifier: BSD-2-Clause */
#include "cmd/stack_tasks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "cmd/cmd.h"
#include "sample/python/place.h"
#include "sample/snapshot/core.h"
#include "view/tasks.h"

/* The collector takes its lists apart while it works. */
#define COLLECTOR_TRIES 20u
#define COLLECTOR_US 5000u

struct tasks_command {
	const struct stack_tasks_ask *ask;
	struct python_process *python;
	struct python_threads threads;
	struct python_tasks tasks;
	struct task_threads names;
	struct python_greenlets greenlets;
	bool *loops, *greenlet; /* that are to be shown; NULL: all */
};

VEC_TYPE(inner_ids, uint32_t);

/* Thread ids as the process itself counts. */
static int read_ids(const struct snapshot_process *p, struct inner_ids *ret)
{
	bool outside = p->status.ns_pid && p->status.ns_pid != p->pid;

	vec_each(&p->threads, t) {
		struct proc_status status = {.ns_pid = (*t)->look.tid};

		if (outside && p->source->ops->status(p->source, (*t)->look.tid, &status, NULL))
			continue;
		if (vec_push(ret, (uint32_t)status.ns_pid))
			return -ENOMEM;
	}
	return 0;
}

static int read_threads(struct tasks_command *look, struct err *err)
{
	struct inner_ids ids = {0};
	int rc = read_ids(look->ask->process, &ids);

	if (!rc)
		rc = python_threads(look->python->python, ids.data, ids.len, &look->threads, err);
	vec_each(&look->threads, t) {
		const struct snapshot_thread *known =
			t->native_id ? snapshot_thread_inside(look->ask->process, (pid_t)t->native_id) : NULL;

		if (known && rc != -ENOMEM &&
			vec_push(&look->names,
				(struct task_thread){t->address, known->look.tid, known->look.name}))
			rc = err_nomem(err);
	}
	vec_release(&ids);
	/* Lists that did not hold: what is there is shown. */
	return rc == -EFAULT && look->threads.len ? 0 : rc;
}

/* Whether a thread of Python's is one of those that were chosen. */
static bool is_chosen(const struct tasks_command *look, uint64_t state)
{
	vec_each(&look->names, name)
		vec_each(look->ask->threads, t)
			if (state && name->state == state && name->tid == (*t)->look.tid)
				return true;
	return false;
}

static int choose(struct tasks_command *look, struct err *err)
{
	if (!look->ask->threads)
		return 0;
	look->loops = calloc(look->tasks.loops.len + 1, sizeof(bool));
	look->greenlet = calloc(look->greenlets.greenlets.len + 1, sizeof(bool));
	if (!look->loops || !look->greenlet)
		return err_nomem(err);
	for (size_t i = 0; i < look->tasks.loops.len; i++)
		look->loops[i] = is_chosen(look, look->tasks.loops.data[i].thread);
	for (size_t i = 0; i < look->greenlets.greenlets.len; i++)
		look->greenlet[i] = is_chosen(look, look->greenlets.greenlets.data[i].thread);
	return 0;
}

/* CLOCK_MONOTONIC of the process: in a time namespace of its own it is another one, and not told. */
static uint64_t now_there(const struct snapshot_process *p)
{
	struct stat here, there;
	char path[64];

	if (p->source->still)
		return 0;
	snprintf(path, sizeof(path), "/proc/%d/ns/time", (int)p->pid);
	if (!stat("/proc/self/ns/time", &here) && !stat(path, &there) && here.st_ino != there.st_ino)
		return 0;
	return clock_monotonic_ns();
}

static int show(const struct tasks_command *look, struct buf *out, struct err *err)
{
	const struct stack_tasks_ask *ask = look->ask;
	struct tasks_view v = {
		.tasks = &look->tasks,
		.threads = &look->names,
		.greenlets = &look->greenlets,
		.loops = look->loops,
		.greenlet = look->greenlet,
		.version = python_version_text(look->python->python),
		.now_ns = now_there(ask->process),
		.core = snapshot_core(ask->snapshot),
		.term = *ask->term,
	};

	return ask->json ? view_tasks_json(&v, out, err) : view_tasks(&v, out, err);
}

static int nothing(const struct tasks_command *look, struct err *err)
{
	const char *version = python_version_text(look->python->python);
	int pid = (int)look->ask->process->pid;

	if (!look->tasks.asyncio && !look->greenlets.imported)
		return err_set(err, ENOENT,
			"CPython %s in process %d has imported neither asyncio nor greenlet: it has no tasks",
			version, pid);
	if (look->greenlets.imported)
		return err_set(err, ENOENT,
			"CPython %s in process %d has no task, and no greenlet that is switched out%s", version,
			pid, look->greenlets.unknown ? " and laid out as in a release that is known" : "");
	return err_set(err, ENOENT, "asyncio of CPython %s in process %d has no task that is not done", version,
		pid);
}

/* A free-threaded build has no lists of objects: tasks are shown all the same. */
static int read_greenlets(struct tasks_command *look, struct err *err)
{
	int rc = -EAGAIN;

	for (unsigned i = 0; rc == -EAGAIN && i < COLLECTOR_TRIES; i++) {
		if (i)
			usleep(COLLECTOR_US);
		python_greenlets_release(&look->greenlets);
		rc = python_greenlets(look->python->python, &look->threads, &look->greenlets, err);
	}
	if (!rc || rc == -ENOMEM)
		return rc;
	cmd_note("stack", "greenlets are not shown: %s", err->text);
	*err = (struct err){0};
	return 0;
}

static int look_at(struct tasks_command *look, struct buf *out, struct err *err)
{
	int rc = read_threads(look, err);

	if (!rc)
		rc = python_tasks(look->python->python, &look->threads, &look->tasks, err);
	if (!rc)
		rc = read_greenlets(look, err);
	if (!rc)
		rc = choose(look, err);
	if (!rc && !look->tasks.tasks.len && !look->greenlets.greenlets.len && !look->ask->json)
		rc = nothing(look, err);
	return rc ? rc : show(look, out, err);
}

int stack_tasks(const struct stack_tasks_ask *ask, struct buf *out, struct err *err)
{
	struct tasks_command look = {.ask = ask};
	int rc = python_process_open(ask->process->source, ask->process->pid, &look.python, err);

	if (rc)
		return rc;
	rc = look_at(&look, out, err);
	python_tasks_release(&look.tasks);
	vec_release(&look.threads);
	vec_release(&look.names);
	python_greenlets_release(&look.greenlets);
	free(look.loops);
	free(look.greenlet);
	python_process_close(look.python);
	return rc;
}
