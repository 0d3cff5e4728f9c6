/* SPDX-License-Identifier: BSD-2-Clause */
/* The threads that are traced, and how they come to be. */
#include "sample/ptrace/ptrace_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/rights.h"

/* New threads appear while the list is read; of those that are traced, the kernel tells us. */
#define MAX_LISTINGS 32

/* How soon a thread's name is read again: at first often, since it is given a moment after. */
#define NAME_FIRST_NS (2 * NS_PER_MS)
#define NAME_MOST_NS NS_PER_S

/* ---- the list ---- */

/* Index of the first thread with an id above `tid`. */
static size_t above(const struct tracer *t, pid_t tid)
{
	size_t lo = 0, hi = t->threads.len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (t->threads.data[mid]->tid <= tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct traced *traced_find(struct tracer *t, pid_t tid)
{
	size_t i = above(t, tid);

	return i && t->threads.data[i - 1]->tid == tid ? t->threads.data[i - 1] : NULL;
}

struct traced *traced_after(struct tracer *t, pid_t tid)
{
	size_t i = above(t, tid);

	if (!t->threads.len)
		return NULL;
	return t->threads.data[i < t->threads.len ? i : 0];
}

static int open_file(struct tracer *t, const struct traced *th, const char *what)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", (int)th->pid, (int)th->tid, what);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Files that are read at each look stay open, as long as there are not too many. */
static int keep_open(struct tracer *t, const struct traced *th, const char *what)
{
	int fd = t->files < t->most_files ? open_file(t, th, what) : -1;

	t->files += fd >= 0;
	return fd;
}

struct traced *traced_add(struct tracer *t, pid_t pid, pid_t tid)
{
	struct traced *th = traced_find(t, tid);
	size_t at = above(t, tid);

	if (th)
		return th;
	th = calloc(1, sizeof(*th));
	if (!th || vec_reserve(&t->threads, t->threads.len + 1)) {
		free(th);
		return NULL;
	}
	th->pid = pid;
	th->tid = tid;
	memmove(t->threads.data + at + 1, t->threads.data + at,
		(t->threads.len - at) * sizeof(th));
	t->threads.data[at] = th;
	t->threads.len++;
	t->attached++;
	th->times_fd = keep_open(t, th, "schedstat");
	th->call_fd = keep_open(t, th, "syscall");
	traced_begin(t, th);
	return th;
}

static void close_kept(struct tracer *t, int fd)
{
	if (fd < 0)
		return;
	close(fd);
	t->files--;
}

static void traced_free(struct tracer *t, struct traced *th)
{
	close_kept(t, th->times_fd);
	close_kept(t, th->call_fd);
	free(th);
}

void traced_remove(struct tracer *t, struct traced *th)
{
	size_t at = above(t, th->tid) - 1;

	t->asked -= th->asked_ns != 0;
	snapshot_forget(t, th);
	t->threads.len--;
	memmove(t->threads.data + at, t->threads.data + at + 1,
		(t->threads.len - at) * sizeof(th));
	traced_free(t, th);
}

void traced_remove_others(struct tracer *t, const struct traced *survivor)
{
	for (size_t i = t->threads.len; i-- > 0;) {
		struct traced *th = t->threads.data[i];

		if (th->pid != survivor->pid || th == survivor)
			continue;
		waits_end(t, th, true);
		traced_remove(t, th);
	}
}

void traced_free_all(struct tracer *t)
{
	vec_each(&t->threads, th)
		traced_free(t, *th);
	vec_release(&t->threads);
	vec_release(&t->to_show);
}

/* ---- what /proc says about one ---- */

/* A short file, through the descriptor or by its name; false when the thread is gone. */
static bool read_file(
	struct tracer *t, const struct traced *th, int fd, const char *what, char *buf, size_t size)
{
	int own = fd < 0 ? open_file(t, th, what) : fd;
	ssize_t n = own < 0 ? -1 : pread(own, buf, size - 1, 0);

	if (fd < 0 && own >= 0)
		close(own);
	buf[n > 0 ? n : 0] = '\0';
	return n > 0;
}

bool traced_times(struct tracer *t, struct traced *th, struct run_times *ret)
{
	char text[96], *at = text;

	if (!read_file(t, th, th->times_fd, "schedstat", text, sizeof(text)))
		return false;
	ret->run_ns = strtoull(at, &at, 10);
	ret->queued_ns = strtoull(at, &at, 10);
	ret->arrivals = strtoull(at, &at, 10);
	return true;
}

bool traced_runs(struct tracer *t, struct traced *th)
{
	char text[256];

	return read_file(t, th, th->call_fd, "syscall", text, sizeof(text)) &&
		!strncmp(text, "running", 7);
}

static void select_thread(struct tracer *t, struct traced *th)
{
	const struct thread_selection *want = t->selection;

	th->selected = (!want->tid || want->tid == th->tid) &&
		(!want->main_only || th->pid == th->tid) &&
		(!want->name || !regexec(want->name, th->name, 0, NULL, 0));
}

bool traced_name(struct tracer *t, struct traced *th)
{
	char name[PROC_NAME_BYTES];

	th->name_wait_ns = th->name_wait_ns * 2 < NAME_MOST_NS ? th->name_wait_ns * 2 : NAME_MOST_NS;
	th->name_ns = clock_monotonic_ns() + th->name_wait_ns;
	if (proc_thread_name(th->pid, th->tid, name, sizeof(name), NULL) || !strcmp(name, th->name))
		return false;
	snprintf(th->name, sizeof(th->name), "%s", name);
	select_thread(t, th);
	return true;
}

void traced_begin(struct tracer *t, struct traced *th)
{
	th->name_wait_ns = NAME_FIRST_NS;
	th->sampled = th->before_exec = false;
	th->awake = true; /* for all we know */
	if (traced_times(t, th, &th->seen))
		th->accounted_ns = th->seen.run_ns;
	if (!traced_name(t, th))
		select_thread(t, th);
	waits_begin(t, th);
}

/* ---- attaching ---- */

static bool has_ended(pid_t pid, pid_t tid)
{
	struct proc_status st;

	return proc_status_read(tid, &st, NULL) || st.tgid != pid || strchr("ZX", st.state);
}

/* 0; -ESRCH without words for a thread that has ended; refusals with words. */
static int seize(struct tracer *t, pid_t pid, pid_t tid, bool follow, struct err *err)
{
	int rc = ptrace_seize(tid, follow);

	if (rc == -ESRCH || (rc == -EPERM && has_ended(pid, tid)))
		return -ESRCH;
	if (rc)
		return rights_trace_refused(-rc, pid, err);
	return traced_add(t, pid, tid) ? 0 : err_nomem(err);
}

/* Seizes the threads of the list that are new; how many there were. */
static int seize_new(
	struct tracer *t, pid_t pid, const struct pid_vec *tids, size_t *ret_new, struct err *err)
{
	*ret_new = 0;
	for (size_t i = 0; i < tids->len; i++) {
		int rc = traced_find(t, tids->data[i]) ? -ESRCH
						       : seize(t, pid, tids->data[i], true, err);

		if (rc && rc != -ESRCH)
			return rc;
		*ret_new += !rc;
	}
	return 0;
}

static int seize_process(struct tracer *t, pid_t pid, struct err *err)
{
	struct pid_vec tids = {0};
	size_t found = 1;
	int rc = 0;

	for (int look = 0; !rc && found && look < MAX_LISTINGS; look++) {
		rc = proc_threads(pid, &tids, err);
		if (!rc)
			rc = seize_new(t, pid, &tids, &found, err);
	}
	vec_release(&tids);
	return rc;
}

static int seize_child(struct tracer *t, pid_t pid, struct err *err)
{
	int rc = seize(t, pid, pid, true, err);

	if (rc)
		return rc == -ESRCH ? err_set(err, ESRCH, "the command is gone") : rc;
	t->child = pid;
	traced_find(t, pid)->before_exec = true;
	return 0;
}

void targets_answer(struct tracer *t, struct tracer_request *r)
{
	switch (r->ask) {
	case ASK_PROCESS:
		r->rc = seize_process(t, r->pid, &r->err);
		break;
	case ASK_THREAD:
		r->rc = seize(t, r->pid, r->tid, false, &r->err);
		if (r->rc == -ESRCH)
			r->rc = err_set(&r->err, ESRCH, "process %d has no thread %d", (int)r->pid,
				(int)r->tid);
		break;
	case ASK_CHILD:
		r->rc = seize_child(t, r->pid, &r->err);
		break;
	case ASK_SNAPSHOT:
		snapshot_everything(t);
		break;
	}
}
