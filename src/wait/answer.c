/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/answer.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "os/cgroup.h"
#include "wait/locks.h"


static bool starts_with_any(const char *text, const char *const *prefixes)
{
	for (; *prefixes; prefixes++)
		if (!strncmp(text, *prefixes, strlen(*prefixes)))
			return true;
	return false;
}

/* What every program has, and nobody looks for his mistake in. */
static bool is_runtime(const struct live_name *name)
{
	static const char *const modules[] = {"libc.so", "libc-", "libpthread", "ld-linux", "ld-musl",
		"libstdc++", "libc++", "libgcc_s", "[vdso]", NULL};
	static const char *const functions[] = {"__futex_abstimed", "__lll_lock_wait", "futex_wait",
		"__pthread_", "___pthread_", "pthread_", "__GI_", "__syscall_cp", "std::sys::", "std::sync::",
		"core::", "std::mutex::", "std::thread::", "std::unique_lock", "std::lock_guard",
		"std::shared_", "std::__shared_mutex", "std::scoped_lock", "std::lock(", "__gthread",
		"<std::", "std::condition_variable", "std::__", "syscall", NULL};

	if (name->module && starts_with_any(name->module, modules))
		return true;
	return name->answer.count &&
		starts_with_any(name->answer.levels[name->answer.count - 1].name, functions);
}

size_t wait_own_frame(struct snapshot *s, const struct snapshot_thread *t)
{
	for (size_t i = 0; i < t->frame_count; i++) {
		struct live_name name = snapshot_name(s, t->frames[i].id);

		if (!is_runtime(&name))
			return i;
	}
	return t->frame_count;
}

/* "parse (json.c:118)" */
static void describe(struct snapshot *s, struct wait_node *n)
{
	struct live_name name;
	const struct symbol_level *level;
	const char *slash;
	size_t own;

	snapshot_stack(s, n->thread);
	own = wait_own_frame(s, n->thread);
	if (own == n->thread->frame_count)
		return;
	name = snapshot_name(s, n->thread->frames[own].id);
	if (!name.answer.count)
		return;
	level = &name.answer.levels[0];
	slash = level->file ? strrchr(level->file, '/') : NULL;
	if (level->file && level->line)
		WAIT_SAY(n->doing, "%.96s (%.48s:%u)", level->name, slash ? slash + 1 : level->file,
			level->line);
	else
		WAIT_SAY(n->doing, "%.120s", level->name);
}

/* Whether the process's cgroup, or one above it, has used up its CPU time. */
static bool is_throttled(pid_t pid)
{
	char directory[4096];
	struct cgroup_throttling before, now;
	struct timespec pause = {.tv_nsec = 20 * NS_PER_MS};

	if (!cgroup_cpu_directory(pid, directory, sizeof(directory)))
		return false;
	do {
		if (!cgroup_throttling_read(directory, &before) || !before.periods)
			continue;
		nanosleep(&pause, NULL);
		if (cgroup_throttling_read(directory, &now) && now.periods + now.ns > before.periods)
			return true;
	} while (cgroup_parent(directory));
	return false;
}

/* ---- one answer ---- */

static int judge(struct wait_answer *a, pid_t focus, struct err *err)
{
	int rc = wait_graph_finish(a->graph, err);

	wait_verdict_release(&a->verdict);
	return rc ? rc : wait_verdict(a->graph, focus, &a->verdict, err);
}

static int look_again(struct wait_answer *a, pid_t focus, struct err *err)
{
	struct timespec pause = {.tv_nsec = VERDICT_PASS_NS};

	while (nanosleep(&pause, &pause))
		;
	a->second_look = true;
	wait_graph_again(a->graph);
	return judge(a, focus, err);
}

/* Those who are talked about get names; the others only when they are shown. */
static void describe_chain(struct wait_answer *a)
{
	vec_each(&a->verdict.chain, n)
		describe(a->snapshot, *n);
	wait_name_locks(a->graph);
}

/* What takes longer to find out, for who has turned out to be the root. */
static void examine_root(struct wait_answer *a)
{
	struct wait_verdict *v = &a->verdict;

	if (v->kind == VERDICT_STARVED && is_throttled(v->root->thread->process->pid))
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
	if (!rc)
		rc = wait_graph_add(a.graph, pid, err);
	if (!rc)
		rc = judge(&a, focus, err);
	if (!rc && wait_verdict_is_fresh(&a.verdict))
		rc = look_again(&a, focus, err);
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
