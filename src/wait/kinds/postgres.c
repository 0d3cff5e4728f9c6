/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of PostgreSQL, on rows and tables. They live in its shared memory, and a backend that waits for one
 * sleeps like any other idle process, in ProcSleep(). Who may hold it is told by the titles that backends give
 * themselves: one that is inside a transaction, and does not wait itself.
 * docs/heuristics/postgres-locks.md
 */
#include <string.h>

#include "os/children.h"
#include "wait/holders.h"
#include "wait/kinds.h"

#define MOST_BACKENDS 2000u
#define TITLE_BYTES 256

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), tail = strlen(end);

	return len >= tail && !strcmp(text + len - tail, end);
}

/* "postgres: user database host command"; processes that serve nobody have titles without a user. */
static bool may_hold_locks(const char *title)
{
	static const char *const servants[] = {" launcher", " writer", "walwriter", "checkpointer",
		"archiver", "startup", "collector", "walreceiver", "walsender", "logger"};

	for (size_t i = 0; i < sizeof(servants) / sizeof(servants[0]); i++)
		if (strstr(title, servants[i]))
			return false;
	return !strncmp(title, "postgres: ", 10) && !ends_with(title, " waiting") &&
		!ends_with(title, " idle");
}

static void blame_backends(struct wait_look *l, struct wait *ret)
{
	struct pid_vec siblings = {0};
	char title[TITLE_BYTES];

	proc_children(l->process->status.ppid, 0, &siblings, NULL);
	for (size_t i = 0; i < siblings.len && i < MOST_BACKENDS; i++)
		if (siblings.data[i] != l->process->pid &&
			!proc_command_line(siblings.data[i], title, sizeof(title), NULL) &&
			may_hold_locks(title))
			wait_blame_process(l, ret, siblings.data[i], WAIT_INFERRED,
				"by its title the only backend inside a transaction that does not wait");
	for (size_t i = 0; ret->blocker_count > 1 && i < ret->blocker_count; i++) {
		ret->blockers[i].grade = WAIT_CANDIDATE;
		ret->blockers[i].how = "by its title a backend inside a transaction that does not wait";
	}
	vec_release(&siblings);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	static const char *const functions[] = {"ProcSleep", NULL};

	if (strcmp(l->process->status.name, "postgres") ||
		wait_find_function(l, l->thread, functions, WAIT_LEAF_FRAMES) < 0)
		return false;
	ret->nature = WAIT_LOCK;
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->what, "for a lock of the database (%.100s)",
		l->process->command ? l->process->command : "");
	blame_backends(l, ret);
	return true;
}

const struct wait_kind wait_kind_postgres = {.name = "postgres_lock", .look = look};
