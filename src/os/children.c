/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/children.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "os/proc_priv.h"

#define MOST_TEXT ((size_t)4 << 20)

/* The packing of tty_nr, proc_pid_stat(5): minor in bits 31-20 and 7-0, major in 15-8. */
static uint64_t terminal_of(unsigned n)
{
	return n ? makedev((n >> 8) & 0xfff, (n & 0xff) | ((n >> 12) & 0xfff00)) : 0;
}

bool proc_family_parse(const char *text, struct proc_family *ret)
{
	const char *after_name = strrchr(text, ')'); /* a name may hold anything */
	int ppid, group, session, terminal, foreground;
	char state;

	if (!after_name || sscanf(after_name + 1, " %c %d %d %d %d %d", &state, &ppid, &group, &session,
				   &terminal, &foreground) != 6)
		return false;
	*ret = (struct proc_family){
		.ppid = ppid,
		.group = group,
		.session = session,
		.terminal = terminal_of((unsigned)terminal),
		.foreground = foreground,
		.state = state,
	};
	return true;
}

int proc_family_read(pid_t pid, struct proc_family *ret)
{
	char text[1024];
	ssize_t n = proc_read_small(pid, "stat", text, sizeof(text));

	if (n < 0)
		return (int)n;
	return proc_family_parse(text, ret) ? 0 : -EBADMSG;
}

static int compare_pids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

/* -ENOSYS: this kernel has no such file (CONFIG_PROC_CHILDREN). */
static int children_of_thread(pid_t pid, pid_t tid, struct pid_vec *ret)
{
	autofree char *text = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)pid, (int)tid);

	int rc = proc_read_whole(path, MOST_TEXT, &text);

	if (rc == -ESRCH) {
		struct proc_family f;

		return proc_family_read(tid, &f) ? 0 : -ENOSYS;
	}
	if (rc)
		return rc;
	for (char *at = text, *end;; at = end) {
		long child = strtol(at, &end, 10);

		if (end == at)
			return 0;
		if (child > 0 && child <= INT32_MAX && vec_push(ret, (pid_t)child))
			return -ENOMEM;
	}
}

/* By asking every process for its parent, which is told as a process: not which thread it was. */
static int children_by_scan(pid_t pid, struct pid_vec *ret, struct err *err)
{
	struct pid_vec all = {0};
	int rc = proc_all(&all, err);

	for (size_t i = 0; !rc && i < all.len; i++) {
		struct proc_family f;

		if (!proc_family_read(all.data[i], &f) && f.ppid == pid)
			rc = vec_push(ret, all.data[i]) ? err_nomem(err) : 0;
	}
	vec_release(&all);
	return rc;
}

int proc_children(pid_t pid, pid_t tid, struct pid_vec *ret, struct err *err)
{
	struct pid_vec tids = {0};
	int rc = tid ? (vec_push(&tids, tid) ? err_nomem(err) : 0) : proc_threads(pid, &tids, err);

	ret->len = 0;
	for (size_t i = 0; !rc && i < tids.len; i++)
		rc = children_of_thread(pid, tids.data[i], ret);
	vec_release(&tids);
	if (rc == -ENOSYS) {
		ret->len = 0;
		rc = children_by_scan(pid, ret, err);
	} else if (rc == -ENOMEM) {
		rc = err_nomem(err);
	} else if (rc) {
		rc = err_errno(err, -rc, "children of process %d", (int)pid);
	}
	if (!rc && ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), compare_pids);
	return rc;
}

static bool is_thread_of(pid_t pid, pid_t tid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d", (int)pid, (int)tid);
	return tid == pid || !access(path, F_OK);
}

int proc_tracees(pid_t pid, struct pid_vec *ret, struct err *err)
{
	struct pid_vec all = {0};
	int rc = proc_all(&all, err);

	ret->len = 0;
	for (size_t i = 0; !rc && i < all.len; i++) {
		struct proc_status st;

		if (!proc_status_read(all.data[i], &st, NULL) && st.tracer &&
			is_thread_of(pid, st.tracer))
			rc = vec_push(ret, all.data[i]) ? err_nomem(err) : 0;
	}
	vec_release(&all);
	return rc;
}
