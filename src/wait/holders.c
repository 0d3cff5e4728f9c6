/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/holders.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

#include "os/children.h"
#include "os/thread_wait.h"

/* Longer lines of ancestors are not followed. */
#define MOST_ANCESTORS 16

void wait_append(char *buf, size_t size, const char *fmt, ...)
{
	size_t used = strlen(buf);
	va_list ap;

	if (used && used + 2 < size) {
		memcpy(buf + used, "; ", 3);
		used += 2;
	}
	va_start(ap, fmt);
	vsnprintf(buf + used, size - used, fmt, ap);
	va_end(ap);
	wait_make_printable(buf + used);
}

void wait_holders_add(struct wait_holders *h, const struct wait_look *l, pid_t pid)
{
	if (pid == l->process->pid) {
		h->self = true;
		return;
	}
	vec_each(&h->others, p)
		if (*p == pid)
			return;
	(void)vec_push(&h->others, pid); /* one less is known where there is no memory */
}

void wait_holders_release(struct wait_holders *h)
{
	vec_release(&h->others);
}

static bool can(struct wait_look *l, const struct open_file *f, bool reads, bool writes)
{
	const struct fdinfo *info;

	if (!reads && !writes)
		return true;
	info = wait_world_fdinfo(l->world, f->pid, f->fd);
	return info && (!reads || fdinfo_reads(info)) && (!writes || fdinfo_writes(info));
}

void wait_holders_find(struct wait_holders *h, struct wait_look *l, enum open_what what,
	uint64_t key, bool reads, bool writes)
{
	const struct open_file *f;
	size_t n = open_files_find(wait_world_files(l->world), what, key, &f);

	for (size_t i = 0; i < n; i++)
		if (can(l, &f[i], reads, writes))
			wait_holders_add(h, l, f[i].pid);
}

void wait_holders_find_file(struct wait_holders *h, struct wait_look *l, const char *path,
	const struct open_identity *identity, bool reads, bool writes)
{
	const struct open_file *f;
	struct open_identity its;
	size_t n = open_files_find(
		wait_world_files(l->world), OPEN_PATH, open_path_key(path), &f);

	for (size_t i = 0; i < n; i++)
		if (can(l, &f[i], reads, writes) && open_file_identity(f[i].pid, f[i].fd, &its) &&
			open_file_same(&its, identity))
			wait_holders_add(h, l, f[i].pid);
}

void wait_blame_process(struct wait_look *l, struct wait *ret, pid_t pid, enum wait_grade grade,
	const char *how)
{
	bool single = wait_world_threads(l->world, pid) == 1;

	wait_add_blocker(ret, pid, single ? pid : 0, grade, how);
}

/* Whether its only thread waits for a child: 0 no, -1 for any, else for that one. */
static pid_t waits_for_child(struct wait_look *l, pid_t pid)
{
	struct thread_wait w;

	if (wait_world_threads(l->world, pid) != 1 || thread_wait_read(pid, pid, &w, NULL) ||
		!w.blocked)
		return 0;
	if (w.syscall == SYS_wait4)
		return (int)w.args[0] > 0 ? (pid_t)w.args[0] : -1;
	if (w.syscall == SYS_waitid)
		return -1;
	return 0;
}

/* Whether `pid` is below `ancestor`, by way of its child `child` (-1: whichever). */
static bool descends(pid_t pid, pid_t ancestor, pid_t child)
{
	struct proc_family f;

	for (int i = 0; i < MOST_ANCESTORS && pid > 1 && !proc_family_read(pid, &f); i++) {
		if (f.ppid == ancestor)
			return child == -1 || child == pid;
		pid = f.ppid;
	}
	return false;
}

/* A shell keeps open what it has given to the command it waits for; the command is to act. */
static bool only_waits_for_another(
	struct wait_look *l, const struct wait_holders *h, pid_t pid)
{
	pid_t child = waits_for_child(l, pid);

	if (!child)
		return false;
	vec_each(&h->others, p)
		if (*p != pid && descends(*p, pid, child))
			return true;
	return false;
}

static void blame_own(struct wait_look *l, struct wait *ret)
{
	if (l->process->threads.len > 1) {
		/* A queue between its own threads, most likely, or the means to wake one. */
		ret->nature = WAIT_EVENT;
		ret->own = true;
		WAIT_APPEND(ret->detail, "only this process itself has the other end");
		return;
	}
	ret->trouble = WAIT_OWN_PIPE;
	ret->trouble_tid = l->look->tid;
}

static void blame_nobody(struct wait_look *l, struct wait *ret)
{
	const struct open_files *files = wait_world_files(l->world);

	if (files->cut)
		WAIT_APPEND(ret->detail, "there was no time to find out who has the other end");
	else if (files->refused)
		WAIT_APPEND(ret->detail,
			"the other end may be held by one of %zu processes that are not ours to look into",
			files->refused);
	else
		ret->trouble = WAIT_NOBODY;
}

void wait_blame_holders(
	struct wait_look *l, struct wait_holders *h, const char *how, struct wait *ret)
{
	struct pid_vec left = {0};
	enum wait_grade grade;

	vec_each(&h->others, p)
		if (!only_waits_for_another(l, h, *p))
			(void)vec_push(&left, *p);
	ret->nature = WAIT_PEER;
	ret->grade = wait_world_saw_all(l->world) ? WAIT_PROVEN : WAIT_INFERRED;
	if (!left.len && h->self) {
		blame_own(l, ret);
	} else if (!left.len) {
		blame_nobody(l, ret);
	} else {
		grade = left.len > 1 ? WAIT_CANDIDATE : ret->grade;
		vec_each(&left, p)
			wait_blame_process(l, ret, *p, grade, how);
		if (left.len > 1)
			WAIT_APPEND(ret->detail, "%zu processes have the other end", left.len);
		if (h->self)
			WAIT_APPEND(ret->detail, "this process has the other end open too");
	}
	vec_release(&left);
}
