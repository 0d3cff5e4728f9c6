/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/locks.h"

#include <stdio.h>
#include <string.h>

/* Distinct ones. Each may cost some milliseconds where there is much debug information. */
#define MOST_NAMED 32u
#define MOST_CANDIDATES 8u

void wait_blame_guards(struct guards *g, struct snapshot_thread *waiter, const pid_t *waiters, size_t count,
	struct wait *ret)
{
	struct guard_holder found[WAIT_MOST_BLOCKERS];
	size_t holders = guards_holders(
		g, waiter->process, ret->address, waiters, count, found, WAIT_MOST_BLOCKERS);

	if (!holders)
		holders = guards_candidates(
			g, waiter, ret->address, waiters, count, found, MOST_CANDIDATES + 1);
	if (holders > MOST_CANDIDATES && found[0].grade == WAIT_CANDIDATE)
		return; /* one of so many says nothing */
	for (size_t i = 0; i < holders; i++)
		wait_add_blocker(ret, waiter->process->pid, found[i].thread->look.tid, found[i].grade,
			!found[i].type ? "it is in the function that takes the lock"
			: found[i].grade == WAIT_INFERRED
				? "a variable of its stack is a guard of the lock"
				: "a variable of its stack may be a guard of the lock");
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

static void say_place(char *to, size_t size, const char *file, uint32_t line)
{
	if (file && line)
		wait_say(to, size, "%s:%u", base_name(file), line);
}

/* Rust's own types have long paths, which change between versions: Mutex<T> says all. */
static const char *short_type(const char *type)
{
	const char *at = type;

	if (strncmp(type, "std::sync::", 11))
		return type;
	for (const char *c = type; *c && *c != '<'; c++)
		if (*c == ':')
			at = c + 1;
	return at;
}

static bool is_lock_wait(const struct wait_node *n)
{
	return n->waits && n->wait.nature == WAIT_LOCK && n->wait.address && !n->wait.name[0];
}

void wait_name_lock(struct guards *g, struct wait_node *n)
{
	struct wait_lock_name name;

	if (!wait_lock_name(g, n->thread, n->wait.address, &name))
		return;
	WAIT_SAY(n->wait.name, "%s%s%s", short_type(name.type), *name.type ? " " : "", name.name);
	say_place(n->wait.declared, sizeof(n->wait.declared), name.file, name.line);
}

/* Others who wait for the same. */
static void share_name(struct wait_graph *g, const struct wait_node *named)
{
	if (!named->wait.object[0])
		return;
	vec_each(&g->nodes, it) {
		struct wait_node *n = *it;

		if (!is_lock_wait(n) || strcmp(n->wait.object, named->wait.object))
			continue;
		WAIT_SAY(n->wait.name, "%s", named->wait.name);
		WAIT_SAY(n->wait.declared, "%s", named->wait.declared);
	}
}

/* Who has the lock is known; where it took it is told by its guard. */
static void find_taken(struct wait_graph *g, struct wait_node *n)
{
	struct guard_holder holder;

	if (!n->waits || n->wait.nature != WAIT_LOCK || !n->wait.address)
		return;
	vec_each(&n->edges, e)
		if (!e->taken[0] && e->to->thread->process == n->thread->process &&
			guards_taken(g->guards, e->to->thread, n->wait.address, &holder))
			say_place(e->taken, sizeof(e->taken), holder.file, holder.line);
}

void wait_name_locks(struct wait_graph *g)
{
	unsigned named = 0;

	vec_each(&g->nodes, n) {
		if (is_lock_wait(*n) && named++ < MOST_NAMED) {
			wait_name_lock(g->guards, *n);
			if ((*n)->wait.name[0])
				share_name(g, *n);
		}
		find_taken(g, *n);
	}
}
