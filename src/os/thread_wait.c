/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/thread_wait.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/proc_priv.h"

/* /proc/PID/task/TID/WHAT */
static ssize_t read_of_thread(
	pid_t pid, pid_t tid, const char *what, char *buf, size_t size, struct err *err)
{
	char path[64];

	snprintf(path, sizeof(path), "task/%d/%s", (int)tid, what);
	ssize_t n = proc_read_small(pid, path, buf, size);
	if (n == -ESRCH)
		return err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)tid);
	if (n < 0)
		return err_errno(err, (int)-n, "%s of thread %d", what, (int)tid);
	return n;
}

static int read_state(pid_t pid, pid_t tid, char *ret, struct err *err)
{
	char text[1024];
	ssize_t n = read_of_thread(pid, tid, "stat", text, sizeof(text), err);

	if (n < 0)
		return (int)n;
	const char *after_name = strrchr(text, ')'); /* a name may hold anything */
	if (!after_name || after_name[1] != ' ' || !after_name[2])
		return err_set(err, EBADMSG, "stat of thread %d makes no sense", (int)tid);
	*ret = after_name[2];
	return 0;
}

/*
 * proc_pid_syscall(5): "running", "-1 SP PC" or "NR A0 A1 A2 A3 A4 A5 SP PC". False when it runs, or
 * is about to.
 */
static bool parse_syscall(const char *text, struct thread_wait *w)
{
	int nr, fields;
	uint64_t a[6], sp, pc;

	fields = sscanf(text, "%d %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64 " %" SCNx64
			      " %" SCNx64 " %" SCNx64 " %" SCNx64,
		&nr, &a[0], &a[1], &a[2], &a[3], &a[4], &a[5], &sp, &pc);
	if (fields == 3 && nr < 0) {
		w->syscall = -1;
		w->sp = a[0];
		w->pc = a[1];
	} else if (fields == 9) {
		w->syscall = nr;
		memcpy(w->args, a, sizeof(a));
		w->sp = sp;
		w->pc = pc;
	} else {
		return false;
	}
	return true;
}

/* "0" where it does not wait, or hidden from us. */
void thread_wait_where(pid_t pid, pid_t tid, char *buf, size_t size)
{
	ssize_t n = read_of_thread(pid, tid, "wchan", buf, size, NULL);

	if (n <= 0 || !strcmp(buf, "0"))
		buf[0] = '\0';
}

int thread_wait_read(pid_t pid, pid_t tid, struct thread_wait *ret, struct err *err)
{
	struct thread_wait w = {.syscall = -1};
	char text[256];
	int rc = read_state(pid, tid, &w.state, err);

	if (rc)
		return rc;
	if (!strchr("SDTt", w.state)) {
		*ret = w;
		return 0;
	}
	thread_wait_where(pid, tid, w.where, sizeof(w.where));
	ssize_t n = read_of_thread(pid, tid, "syscall", text, sizeof(text), err);
	if (n >= 0)
		w.blocked = parse_syscall(text, &w);
	*ret = w;
	return n < 0 ? (int)n : 0;
}

int thread_switches(pid_t pid, pid_t tid, uint64_t *ret, struct err *err)
{
	char text[8192];
	ssize_t n = read_of_thread(pid, tid, "status", text, sizeof(text), err);

	if (n < 0)
		return (int)n;
	const char *own = proc_status_field(text, "voluntary_ctxt_switches");
	const char *forced = proc_status_field(text, "nonvoluntary_ctxt_switches");
	if (!own || !forced)
		return err_set(err, EBADMSG, "status of thread %d counts no switches", (int)tid);
	*ret = strtoull(own, NULL, 10) + strtoull(forced, NULL, 10);
	return 0;
}
