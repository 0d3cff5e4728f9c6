/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/throttling.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "os/cgroup.h"

#define READINGS 32u     /* of each cgroup; older ones are forgotten */
#define MAX_GROUPS 256u  /* more are not watched */
#define REFRESH_NS NS_PER_S
#define MOVED_NS NS_PER_S /* a process may be moved: where it is is asked again after that */
#define MAX_PROCESSES 4096u

struct reading {
	uint64_t time_ns;
	struct cgroup_throttling sums;
};

struct group {
	char *directory;
	int parent; /* index, -1: none */
	struct reading readings[READINGS];
	unsigned count, next;
};

struct member {
	pid_t pid;
	int group; /* -1: none */
	uint64_t asked_ns;
};

struct throttling {
	VEC(struct group) groups;
	VEC(struct member) members;
	uint64_t refreshed_ns;
};

int throttling_new(struct throttling **ret, struct err *err)
{
	*ret = calloc(1, sizeof(**ret));
	return *ret ? 0 : err_nomem(err);
}

void throttling_free(struct throttling *t)
{
	if (!t)
		return;
	vec_each(&t->groups, g)
		free(g->directory);
	vec_release(&t->groups);
	vec_release(&t->members);
	free(t);
}

static void read_sums(struct group *g)
{
	struct reading r = {.time_ns = clock_monotonic_ns()};

	if (!cgroup_throttling_read(g->directory, &r.sums))
		return;
	g->readings[g->next] = r;
	g->next = (g->next + 1) % READINGS;
	g->count += g->count < READINGS;
}

/* The group and those above it, as far as they count; an index, -1 for none. */
static int group_of(struct throttling *t, char *directory)
{
	struct cgroup_throttling sums;
	struct group g = {.parent = -1};

	for (size_t i = 0; i < t->groups.len; i++)
		if (!strcmp(t->groups.data[i].directory, directory))
			return (int)i;
	if (t->groups.len >= MAX_GROUPS || !cgroup_throttling_read(directory, &sums))
		return -1;
	g.directory = strdup(directory);
	if (!g.directory)
		return -1;
	read_sums(&g);
	if (cgroup_parent(directory))
		g.parent = group_of(t, directory);
	if (vec_push(&t->groups, g)) {
		free(g.directory);
		return -1;
	}
	return (int)t->groups.len - 1;
}

static int ask(struct throttling *t, pid_t pid)
{
	char directory[PATH_MAX];

	return cgroup_cpu_directory(pid, directory, sizeof(directory)) ? group_of(t, directory) : -1;
}

static struct member *member_of(struct throttling *t, pid_t pid, uint64_t now_ns)
{
	struct member fresh = {.pid = pid, .asked_ns = now_ns}, *m = NULL;

	vec_each(&t->members, at)
		if (at->pid == pid)
			m = at;
	if (m && now_ns - m->asked_ns < MOVED_NS)
		return m;
	fresh.group = ask(t, pid);
	if (m) {
		m->asked_ns = now_ns;
		if (fresh.group >= 0) /* else it is gone, and was in the one we know */
			m->group = fresh.group;
		return m;
	}
	if (t->members.len >= MAX_PROCESSES) /* most of them are gone */
		t->members.len = 0;
	return vec_push(&t->members, fresh) ? NULL : &t->members.data[t->members.len - 1];
}

void throttling_watch(struct throttling *t, pid_t pid, uint64_t now_ns)
{
	member_of(t, pid, now_ns);
}

void throttling_refresh(struct throttling *t, uint64_t now_ns)
{
	if (now_ns - t->refreshed_ns < REFRESH_NS)
		return;
	t->refreshed_ns = now_ns;
	vec_each(&t->groups, g)
		read_sums(g);
}

/* The last reading up to `from`, and the first since `to`; false where one of them is missing. */
static bool around(const struct group *g, uint64_t from_ns, uint64_t to_ns, struct reading *ret_before,
	struct reading *ret_after)
{
	*ret_before = (struct reading){0};
	*ret_after = (struct reading){.time_ns = UINT64_MAX};
	for (unsigned i = 0; i < g->count; i++) {
		const struct reading *r = &g->readings[i];

		if (r->time_ns <= from_ns && r->time_ns > ret_before->time_ns)
			*ret_before = *r;
		if (r->time_ns >= to_ns && r->time_ns < ret_after->time_ns)
			*ret_after = *r;
	}
	return ret_before->time_ns && ret_after->time_ns != UINT64_MAX;
}

static bool group_covers(struct group *g, uint64_t from_ns, uint64_t to_ns)
{
	struct reading before, after;

	if (!g->count || g->readings[(g->next + READINGS - 1) % READINGS].time_ns < to_ns)
		read_sums(g);
	return around(g, from_ns, to_ns, &before, &after) &&
		after.sums.periods > before.sums.periods &&
		after.sums.ns - before.sums.ns >= (to_ns - from_ns) / 2;
}

bool throttling_covers(struct throttling *t, pid_t pid, uint64_t from_ns, uint64_t to_ns)
{
	const struct member *m = member_of(t, pid, to_ns);

	for (int i = m ? m->group : -1; i >= 0; i = t->groups.data[i].parent)
		if (group_covers(&t->groups.data[i], from_ns, to_ns))
			return true;
	return false;
}
