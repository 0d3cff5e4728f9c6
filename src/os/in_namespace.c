/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/in_namespace.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/proc.h"
#include "os/proc_priv.h"

uint64_t namespace_of(pid_t pid, const char *which)
{
	char path[64], text[64];

	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, which);

	ssize_t n = readlink(path, text, sizeof(text) - 1);

	if (n <= 0)
		return 0;
	text[n] = '\0';

	const char *bracket = strchr(text, '[');

	return bracket ? strtoull(bracket + 1, NULL, 10) : 0;
}

/* Belongs to both threads; who lets go last frees it. */
struct job {
	pthread_mutex_t lock;
	pthread_cond_t ended;
	unsigned holders;
	bool done;
	int fd, code;
	void (*run)(void *arg);
	_Alignas(16) char arg[IN_NAMESPACE_MOST_BYTES];
};

/* Called with the lock held, which it lets go of. */
static void let_go(struct job *j)
{
	unsigned left = --j->holders;

	pthread_mutex_unlock(&j->lock);
	if (left)
		return;
	close(j->fd);
	pthread_cond_destroy(&j->ended);
	pthread_mutex_destroy(&j->lock);
	free(j);
}

static void *run_job(void *arg)
{
	struct job *j = arg;
	int code = setns(j->fd, 0) ? errno : 0;

	if (!code)
		j->run(j->arg);
	pthread_mutex_lock(&j->lock);
	j->code = code;
	j->done = true;
	pthread_cond_signal(&j->ended);
	let_go(j);
	return NULL;
}

static struct job *new_job(int fd, void (*run)(void *arg), const void *arg, size_t bytes)
{
	struct job *j = calloc(1, sizeof(*j));
	pthread_condattr_t attr;

	if (!j)
		return NULL;
	pthread_mutex_init(&j->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&j->ended, &attr);
	pthread_condattr_destroy(&attr);
	j->holders = 2;
	j->fd = fd;
	j->run = run;
	memcpy(j->arg, arg, bytes);
	return j;
}

static int start_job(struct job *j)
{
	pthread_attr_t attr;
	pthread_t thread;

	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

	int code = pthread_create(&thread, &attr, run_job, j);

	pthread_attr_destroy(&attr);
	return code;
}

/* 0 or a positive errno. */
static int wait_for_job(struct job *j, uint64_t limit_ns, void *arg, size_t bytes)
{
	uint64_t until = clock_monotonic_ns() + limit_ns;
	struct timespec ts = {
		.tv_sec = (time_t)(until / NS_PER_S),
		.tv_nsec = (long)(until % NS_PER_S),
	};
	int code = 0;

	pthread_mutex_lock(&j->lock);
	while (!j->done && code != ETIMEDOUT)
		code = pthread_cond_timedwait(&j->ended, &j->lock, &ts);
	if (j->done) {
		code = j->code;
		if (!code)
			memcpy(arg, j->arg, bytes);
	}
	let_go(j);
	return code;
}

int in_namespace(pid_t pid, const char *which, void (*run)(void *arg), void *arg, size_t bytes,
	uint64_t limit_ns, struct err *err)
{
	uint64_t theirs = namespace_of(pid, which);
	char path[64];

	if (bytes > IN_NAMESPACE_MOST_BYTES)
		return err_set(err, EINVAL, "%zu bytes to take into a namespace", bytes);
	if (theirs && theirs == namespace_of(getpid(), which)) {
		run(arg);
		return 0;
	}
	snprintf(path, sizeof(path), "/proc/%d/ns/%s", (int)pid, which);

	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return err_errno(err, errno == ENOENT ? ESRCH : errno, "%s", path);

	struct job *j = new_job(fd, run, arg, bytes);

	if (!j) {
		close(fd);
		return err_nomem(err);
	}

	int code = start_job(j);

	if (code) {
		j->holders = 1;
		pthread_mutex_lock(&j->lock);
		let_go(j);
	} else {
		code = wait_for_job(j, limit_ns, arg, bytes);
	}
	if (code == EPERM)
		return err_set(err, EPERM,
			"the %s namespace of process %d can be entered with CAP_SYS_ADMIN only", which,
			(int)pid);
	return code ? err_errno(err, code, "%s", path) : 0;
}

/* "NSpid:	812 17 1": from our namespace down to its own. */
static size_t ids_of(pid_t pid, pid_t *ids, size_t limit)
{
	char text[8192];
	size_t n = 0;

	if (proc_read_small(pid, "status", text, sizeof(text)) < 0)
		return 0;
	for (const char *at = proc_status_field(text, "NSpid"); at && n < limit;) {
		char *end;
		long v = strtol(at, &end, 10);

		if (end == at)
			break;
		ids[n++] = (pid_t)v;
		at = end + strspn(end, " \t");
	}
	return n;
}

#define MOST_LEVELS 33 /* MAX_PID_NS_LEVEL and the first, include/linux/pid_namespace.h */

/* What processes `depth` levels below ours call it. */
static pid_t seen_at(pid_t pid, size_t depth)
{
	pid_t ids[MOST_LEVELS];
	size_t n = ids_of(pid, ids, MOST_LEVELS);

	return depth && depth <= n ? ids[depth - 1] : 0;
}

pid_t pid_seen_by(pid_t observer, pid_t pid)
{
	pid_t ids[MOST_LEVELS];
	size_t depth = ids_of(observer, ids, MOST_LEVELS);

	/* Of its own namespace, or of one below it: which of the same depth cannot be told without
	 * rights, so namespaces are compared where they are ours to see. */
	if (depth > 1) {
		pid_t theirs[MOST_LEVELS];
		uint64_t a = namespace_of(observer, "pid"), b = namespace_of(pid, "pid");

		if (ids_of(pid, theirs, MOST_LEVELS) == depth && a != b)
			return 0;
	}
	return seen_at(pid, depth);
}

pid_t pid_from_inside(pid_t observer, pid_t inner)
{
	struct pid_vec all = {0};
	pid_t ids[MOST_LEVELS], found = 0;

	if (inner <= 0)
		return 0;
	if (ids_of(observer, ids, MOST_LEVELS) <= 1) {
		struct proc_status st;

		return proc_status_read(inner, &st, NULL) ? 0 : inner;
	}
	if (!proc_all(&all, NULL))
		for (size_t i = 0; i < all.len && !found; i++)
			if (pid_seen_by(observer, all.data[i]) == inner)
				found = all.data[i];
	vec_release(&all);
	return found;
}
