/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/answer.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "os/cgroup.h"
#include "sample/runtime_library.h"
#include "sample/snapshot/core.h"
#include "symbol/interpreter.h"
#include "wait/locks.h"


static bool starts_with_any(const char *text, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (!strncmp(text, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

static bool is_runtime_function(const char *function)
{
	static const char *const functions[] = {"__futex", "__lll_lock", "futex_", "__pthread_",
		"___pthread_", "pthread_", "__GI_", "__syscall", "syscall", "std::", "core::", "alloc::",
		"__gthread", "<std::", "<core::", "<alloc::", "void std::", "_start", "__libc_start",
		"start_thread", "clone", "__clone", "thread_start", "__rust_", "parking_lot", NULL};

	return starts_with_any(function, functions);
}

/* The first level of a frame that is not runtime; levels.count where all are. */
static size_t own_level(const struct live_name *name)
{
	size_t level = 0;

	if ((name->module && runtime_library(name->module)))
		return name->answer.count;
	while (level < name->answer.count && is_runtime_function(name->answer.levels[level].name))
		level++;
	return level;
}

static bool is_own(struct snapshot *s, const struct snapshot_thread *t, size_t step, size_t *ret_level)
{
	struct live_name name = snapshot_name(s, t->steps[step].id);

	*ret_level = own_level(&name);
	return name.role != FRAME_OF_RUNTIME && !name.interpreter &&
		(*ret_level < name.answer.count ||
			(!name.answer.count && !(name.module && runtime_library(name.module))));
}

/* Functions of the C library that are below all others. */
static bool starts_thread(struct snapshot *s, const struct snapshot_thread *t, size_t step)
{
	static const char *const functions[] = {
		"__libc_start", "start_thread", "clone", "__clone", "_start", NULL};
	struct live_name name = snapshot_name(s, t->steps[step].id);

	return name.answer.count &&
		starts_with_any(name.answer.levels[name.answer.count - 1].name, functions);
}

bool wait_own_part(struct snapshot *s, const struct snapshot_thread *t, struct wait_own_part *ret)
{
	size_t level;

	*ret = (struct wait_own_part){.end = t->step_count};
	while (ret->step < t->step_count && !is_own(s, t, ret->step, &ret->level))
		ret->step++;
	if (ret->step == t->step_count)
		return false;
	/* Where it starts may have no name: it is near a function that has one. */
	for (size_t i = t->step_count; i > ret->step + 1 && i + 3 > t->step_count; i--)
		if (starts_thread(s, t, i - 1))
			ret->end = i - 1;
	while (!is_own(s, t, ret->end - 1, &level))
		ret->end--;
	return true;
}

/* Where it waits in a library of Python's, the function that called that; else *part itself. */
static void skip_library(struct snapshot *s, const struct snapshot_thread *t, struct wait_own_part *part)
{
	size_t level;

	for (size_t i = part->step; i < part->end; i++) {
		struct live_name name = snapshot_name(s, t->steps[i].id);

		if (name.library || !is_own(s, t, i, &level))
			continue;
		part->step = i;
		part->level = level;
		return;
	}
}

/* "parse (json.c:118)" */
void wait_describe(struct snapshot *s, struct wait_node *n)
{
	struct live_name name;
	const struct symbol_level *level;
	struct wait_own_part own;
	const char *slash;

	snapshot_stack(s, n->thread);
	if (!wait_own_part(s, n->thread, &own))
		return;
	skip_library(s, n->thread, &own);
	name = snapshot_name(s, n->thread->steps[own.step].id);
	if (!name.answer.count)
		return;
	level = &name.answer.levels[own.level];
	slash = level->file ? strrchr(level->file, '/') : NULL;
	if (level->file && level->line)
		WAIT_SAY(n->doing, "%.96s (%.48s:%u)", level->name, slash ? slash + 1 : level->file,
			level->line);
	else
		WAIT_SAY(n->doing, "%.120s", level->name);
}

/* Threads that get less than this of the time they could run may be held back. */
#define HELD_BACK_PERCENT 60u
#define MOST_CGROUPS 16
/* Longer than a period of the bandwidth control, which is 100 ms where nobody has changed it. */
#define THROTTLING_NS (120 * NS_PER_MS)

struct cgroups {
	char directory[MOST_CGROUPS][512];
	struct cgroup_throttling seen[MOST_CGROUPS];
	size_t count;
};

/* Those that limit the process, from its own upwards. */
static void find_cgroups(pid_t pid, struct cgroups *ret)
{
	char directory[sizeof(ret->directory[0])];

	ret->count = 0;
	if (!cgroup_cpu_directory(pid, directory, sizeof(directory)))
		return;
	do {
		if (!cgroup_throttling_read(directory, &ret->seen[ret->count]))
			continue;
		memcpy(ret->directory[ret->count], directory, sizeof(directory));
		ret->count++;
	} while (ret->count < MOST_CGROUPS && cgroup_parent(directory));
}

/* Whether one of them holds its threads back. */
static bool is_throttled(pid_t pid)
{
	struct timespec pause = {.tv_nsec = THROTTLING_NS};
	struct cgroup_throttling now;
	struct cgroups groups;

	find_cgroups(pid, &groups);
	if (!groups.count)
		return false;
	while (nanosleep(&pause, &pause))
		;
	for (size_t i = 0; i < groups.count; i++)
		if (cgroup_throttling_read(groups.directory[i], &now) &&
			(now.periods != groups.seen[i].periods || now.ns != groups.seen[i].ns))
			return true;
	return false;
}

/* ---- one answer ---- */

static int judge(struct wait_answer *a, pid_t focus, struct err *err)
{
	int rc = wait_graph_finish(a->graph, err);

	wait_verdict_release(&a->verdict);
	return rc ? rc : wait_verdict(a->graph, focus, &a->verdict, err);
}

static bool lives(const struct thread_look *look)
{
	return !strchr("ZX", look->wait.state);
}

/* Of what was asked for, nobody lives any more. */
static int check_alive(const struct wait_answer *a, pid_t pid, struct err *err)
{
	vec_each(&a->graph->nodes, n) {
		const struct snapshot_thread *t = (*n)->thread;

		if ((*n)->asked && (a->second_look ? t->seen_again && lives(&t->later) : lives(&t->look)))
			return 0;
	}
	return err_set(err, ESRCH,
		a->second_look ? "process %d has ended while it was looked at"
			       : "process %d has ended, and its parent has not asked for its status yet",
		(int)pid);
}

static int look_again(struct wait_answer *a, pid_t pid, pid_t focus, struct err *err)
{
	struct timespec pause = {.tv_nsec = VERDICT_PASS_NS};
	int rc;

	while (nanosleep(&pause, &pause))
		;
	a->second_look = true;
	wait_graph_again(a->graph);
	rc = check_alive(a, pid, err);
	return rc ? rc : judge(a, focus, err);
}

/* Those who are talked about get all names; of the others, only what they wait for. */
static void describe_chain(struct wait_answer *a)
{
	vec_each(&a->verdict.chain, n)
		wait_describe(a->snapshot, *n);
	wait_name_locks(a->graph);
}

/* What takes longer to find out, for who has turned out to be the root. */
static void examine_root(struct wait_answer *a)
{
	struct wait_verdict *v = &a->verdict;

	if (snapshot_core(a->snapshot))
		return;
	if ((v->kind == VERDICT_STARVED || wait_runs_below(v->root, HELD_BACK_PERCENT)) &&
		is_throttled(v->root->thread->process->pid))
		v->kind = VERDICT_THROTTLED;
	if (v->kind == VERDICT_RUNNING && v->root->thread->one_place)
		v->kind = VERDICT_SPINNING;
}

int wait_answer_new(const struct snapshot_options *options, pid_t pid, pid_t focus,
	struct wait_answer *ret, struct err *err)
{
	struct wait_answer a = {0};
	int rc = snapshot_new(options, &a.snapshot, err);

	if (!rc)
		rc = wait_graph_new(a.snapshot, &a.graph, err);
	if (!rc && !pid)
		pid = core_info(snapshot_core(a.snapshot))->pid;
	if (!rc)
		rc = wait_graph_add(a.graph, pid, err);
	if (!rc)
		rc = check_alive(&a, pid, err);
	if (!rc)
		rc = judge(&a, focus, err);
	if (!rc && !snapshot_core(a.snapshot) && wait_verdict_is_fresh(&a.verdict))
		rc = look_again(&a, pid, focus, err);
	if (rc) {
		wait_answer_release(&a);
		return rc;
	}
	describe_chain(&a);
	examine_root(&a);
	*ret = a;
	return 0;
}

void wait_answer_release(struct wait_answer *a)
{
	wait_verdict_release(&a->verdict);
	wait_graph_free(a->graph);
	snapshot_free(a->snapshot);
	*a = (struct wait_answer){0};
}
