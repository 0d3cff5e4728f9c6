/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening events on threads; the ops table.
 *
 * An event that is inherited by new threads must be bound to a CPU to have a ring, so each thread
 * takes one event a CPU.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/rights.h"

/* New threads appear while the list is read; a process that forks faster than this many looks is
 * covered by inheritance all the same. */
#define MAX_LISTINGS 32

/* ---- the sampler ---- */

/* Files as many as may be. Three quarters of them are for events; see max_fd. */
static void raise_file_limit(struct perf_sampler *s)
{
	struct rlimit limit = {1024, 1024};

	if (!getrlimit(RLIMIT_NOFILE, &limit) && limit.rlim_cur != limit.rlim_max) {
		limit.rlim_cur = limit.rlim_max;
		if (setrlimit(RLIMIT_NOFILE, &limit))
			getrlimit(RLIMIT_NOFILE, &limit);
	}
	s->max_fd = limit.rlim_cur - limit.rlim_cur / 4;
}

static void perf_free(struct sampler *sampler)
{
	struct perf_sampler *s = perf_of(sampler);

	early_stop(s);
	perf_close_rings(s);
	for (int *fd = (int[]){s->epoll_fd, s->timer_fd, s->stop_fd, -2}; *fd != -2; fd++)
		if (*fd >= 0)
			close(*fd);
	vec_release(&s->watched);
	perf_off_cpu_free(s);
	free(s);
}

static int choose_events(struct perf_sampler *s, struct err *err)
{
	int rc = 0;

	if (s->options.on_cpu) {
		rc = perf_choose_event(s, err);
		if (!rc)
			perf_measure_cycle(s);
	}
	if (!rc && s->options.off_cpu)
		rc = perf_off_cpu_open(s, err);
	if (!s->options.on_cpu && !s->options.off_cpu) {
		s->attr = perf_dummy_attr();
		s->attr.disabled = 0;
		s->event_name = "none";
		perf_set_tracking(&s->attr);
	}
	return rc;
}

static int perf_open(const struct sampler_options *options, struct sampler **ret, struct err *err)
{
	struct perf_sampler *s = calloc(1, sizeof(*s));
	int rc;

	if (!s)
		return err_nomem(err);
	s->sampler.ops = &sampler_perf;
	s->cgroup_fd = -1;
	s->options = *options;
	s->period_ns = NS_PER_S / options->frequency_hz;
	s->timer_fd = s->stop_fd = -1;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	raise_file_limit(s);
	rc = s->epoll_fd < 0 ? err_errno(err, errno, "epoll") : choose_events(s, err);
	if (!rc)
		rc = perf_open_rings(s, err);
	if (rc) {
		perf_free(&s->sampler);
		return rc;
	}
	*ret = &s->sampler;
	return 0;
}

static void perf_bind(struct sampler *sampler, struct session *session)
{
	struct perf_sampler *s = perf_of(sampler);

	s->session = session;
	perf_off_cpu_bind(s);
}

/* ---- attaching ---- */

static int open_event(
	const struct perf_sampler *s, struct perf_event_attr *attr, pid_t tid, int cpu)
{
	if (tid == -1 && s->cgroup_fd >= 0)
		return perf_event_open_cgroup(attr, s->cgroup_fd, cpu);
	return perf_event_open(attr, tid, cpu, -1);
}

/* How threads are watched. */
enum watch {
	WATCH_TREE,  /* with all that they start */
	WATCH_CHILD, /* the same, from exec on */
	WATCH_ALONE,
};

/* An event on the CPU of the ring. 0 or -errno. */
static int open_on(
	struct perf_sampler *s, struct cpu_ring *r, pid_t tid, enum watch how, bool off_cpu)
{
	struct perf_event_attr attr = off_cpu ? s->off_attr : s->attr;

	attr.inherit = how != WATCH_ALONE;
	if (how == WATCH_CHILD)
		attr.disabled = attr.enable_on_exec = 1;

	struct watched_event e = {
		.fd = open_event(s, &attr, tid, r->cpu), .tid = tid, .off_cpu = off_cpu};
	int rc = e.fd < 0 ? e.fd : 0;

	if (rc)
		return rc;
	if ((rlim_t)e.fd >= s->max_fd)
		rc = -EMFILE;
	else if (ioctl(e.fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd) ||
		ioctl(e.fd, PERF_EVENT_IOC_ID, &e.id))
		rc = -errno;
	if (!rc) {
		pthread_mutex_lock(&r->lock);
		rc = event_table_add(&r->events, &e) ? 0 : -ENOMEM;
		pthread_mutex_unlock(&r->lock);
	}
	if (rc)
		close(e.fd);
	return rc;
}

static void close_events(struct perf_sampler *s, pid_t tid)
{
	vec_each(&s->rings, r) {
		struct watched_event *next;

		pthread_mutex_lock(&r->lock);
		for (struct watched_event *e = event_table_next(&r->events, NULL); e; e = next) {
			next = event_table_next(&r->events, e);
			if (e->tid == tid)
				event_table_remove(&r->events, e);
		}
		pthread_mutex_unlock(&r->lock);
	}
}

/* One event of each kind that is asked for on every CPU; tid -1 for all threads. 0 or -errno, with
 * nothing half done. */
static int open_events(struct perf_sampler *s, pid_t tid, enum watch how)
{
	int rc = 0;

	early_start(s);
	for (size_t i = 0; !rc && i < s->rings.len; i++) {
		struct cpu_ring *r = &s->rings.data[i];

		if (!r->copies)
			rc = open_on(s, r, tid, how, false);
		if (!rc && s->copies.made && r->copies == s->copies.own_rings)
			rc = open_on(s, r, tid, how, true);
	}
	if (rc)
		close_events(s, tid);
	s->new_threads |= how != WATCH_ALONE || tid == -1;
	return rc;
}

static int compare_tids(const void *a, const void *b)
{
	pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return (x > y) - (x < y);
}

bool perf_watches_thread(const struct perf_sampler *s, pid_t tid)
{
	return s->watched.len &&
		bsearch(&tid, s->watched.data, s->watched.len, sizeof(tid), compare_tids);
}

static int watch_tid(struct perf_sampler *s, pid_t tid, enum watch how)
{
	if (vec_reserve(&s->watched, s->watched.len + 1))
		return -ENOMEM;

	int rc = open_events(s, tid, how);

	if (rc)
		return rc;
	s->watched.data[s->watched.len++] = tid;
	qsort(s->watched.data, s->watched.len, sizeof(pid_t), compare_tids);
	return 0;
}

/* Attaches the threads of the list that are new; how many there were. A thread that went away
 * meanwhile is none; any other failure stops it. */
static int watch_new(struct perf_sampler *s, pid_t pid, const struct pid_vec *tids, size_t *ret_new,
	struct err *err)
{
	*ret_new = 0;
	for (size_t i = 0; i < tids->len; i++) {
		if (perf_watches_thread(s, tids->data[i]))
			continue;

		int rc = watch_tid(s, tids->data[i], WATCH_TREE);

		if (!rc)
			rc = perf_off_cpu_attached(s, pid, tids->data[i]);
		if (rc == -ESRCH)
			continue;
		if (rc == -EMFILE && s->watched.len) {
			/* Go on with what fits; the recording says how many are missing. */
			s->missed_threads += tids->len - i;
			session_lost(s->session, LOSS_THREAD, tids->len - i);
			*ret_new = 0; /* another look would count them again */
			return 0;
		}
		if (rc)
			return rights_perf_refused(-rc, pid, err);
		++*ret_new;
	}
	return 0;
}

/* A sampler that only tracks sees the whole machine where it may, and tells of what the session knows:
 * events on a thread, whatever they count, cost each of its switches. */
static bool tracks_everything(struct perf_sampler *s)
{
	if (s->options.on_cpu || s->options.off_cpu)
		return false;
	if (!s->tracks_known)
		s->tracks_known = !open_events(s, -1, WATCH_ALONE);
	return s->tracks_known;
}

static int perf_watch_process(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	struct pid_vec tids = {0};
	size_t found = 1;
	int rc = 0;

	if (tracks_everything(s))
		return 0;
	for (int look = 0; !rc && found && look < MAX_LISTINGS; look++) {
		rc = proc_threads(pid, &tids, err);
		if (!rc)
			rc = watch_new(s, pid, &tids, &found, err);
	}
	vec_release(&tids);
	return rc;
}

static int perf_watch_thread(struct sampler *sampler, pid_t pid, pid_t tid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	int rc;

	if (tracks_everything(s))
		return 0;
	rc = watch_tid(s, tid, WATCH_ALONE);
	if (!rc)
		rc = perf_off_cpu_attached(s, pid, tid);
	if (rc == -ESRCH)
		return err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)tid);
	return rc ? rights_perf_refused(-rc, pid, err) : 0;
}

static int perf_watch_child(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	int rc = tracks_everything(s) ? 0 : watch_tid(s, pid, WATCH_CHILD);

	return rc ? rights_perf_refused(-rc, 0, err) : 0;
}

static int perf_watch_all(struct sampler *sampler, struct err *err)
{
	int rc = open_events(perf_of(sampler), -1, WATCH_ALONE);

	return rc ? rights_perf_refused(-rc, -1, err) : 0;
}

static int perf_watch_cgroup(struct sampler *sampler, int cgroup_fd, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	int rc;

	s->cgroup_fd = cgroup_fd;
	rc = open_events(s, -1, WATCH_ALONE);
	if (rc == -EBADF)
		return err_set(err, EBADF,
			"the kernel does not sample by this cgroup: perf_event is in another hierarchy (v1)");
	return rc ? rights_perf_refused(-rc, -1, err) : 0;
}

static int perf_fd(const struct sampler *sampler)
{
	return ((const struct perf_sampler *)sampler)->epoll_fd;
}

static void perf_stop(struct sampler *sampler)
{
	struct perf_sampler *s = perf_of(sampler);

	vec_each(&s->rings, r)
		for (struct watched_event *e = NULL; (e = event_table_next(&r->events, e));)
			ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0);
	s->stopped_ns = clock_monotonic_ns();
	early_stop(s);
}

static void perf_facts(const struct sampler *sampler, struct sampler_facts *ret)
{
	const struct perf_sampler *s = (const struct perf_sampler *)sampler;

	*ret = (struct sampler_facts){
		.event = s->event_name,
		.kernel = s->kernel,
		.threads = s->watched.len,
		.missed_threads = s->missed_threads,
		.ring_bytes_read = s->ring_bytes_read,
		.delay_mean_ns = histogram_mean(&s->delays),
		.delay_p99_ns = histogram_quantile(&s->delays, 990),
	};
}

const struct sampler_ops sampler_perf = {
	.name = "perf",
	.open = perf_open,
	.free = perf_free,
	.bind = perf_bind,
	.watch_process = perf_watch_process,
	.watch_thread = perf_watch_thread,
	.watch_child = perf_watch_child,
	.watch_all = perf_watch_all,
	.watch_cgroup = perf_watch_cgroup,
	.fd = perf_fd,
	.drain = perf_drain,
	.oldest_ns = perf_oldest_ns,
	.drain_until = perf_drain_until,
	.settle = perf_settle,
	.stop = perf_stop,
	.facts = perf_facts,
};
