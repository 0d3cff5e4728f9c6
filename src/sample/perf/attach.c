/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The ops table; finding the threads that are to be sampled.
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
	thread_table_release(&s->threads);
	vec_release(&s->retired);
	perf_off_cpu_free(s);
	perf_python_free(s);
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
	s->adaptive = options->on_cpu && !options->off_cpu && !options->stack_bytes;
	s->everything.tid = -1;
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	raise_file_limit(s);
	rc = s->epoll_fd < 0 ? err_errno(err, errno, "epoll") : choose_events(s, err);
	if (!rc) {
		perf_python_open(s);
		rc = perf_open_rings(s, err);
	}
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
	perf_python_bind(s);
}

/* ---- attaching ---- */

/* With all that they start; the same, from exec on; or alone. */
static const struct event_wish watch_tree = {.inherit = true};
static const struct event_wish watch_child = {.inherit = true, .on_exec = true};
static const struct event_wish watch_alone = {0};

static int attach(struct perf_sampler *s, pid_t tid, const struct event_wish *how)
{
	int rc = perf_attach(s, tid, how);

	s->new_threads |= how->inherit;
	return rc;
}

/* Attaches the threads of the list that are new; how many there were. A thread that went away
 * meanwhile is none; any other failure stops it. */
static int watch_new(struct perf_sampler *s, pid_t pid, const struct pid_vec *tids, size_t *ret_new,
	struct err *err)
{
	*ret_new = 0;
	for (size_t i = 0; i < tids->len; i++) {
		if (perf_is_attached(s, tids->data[i]))
			continue;

		int rc = attach(s, tids->data[i], &watch_tree);

		if (!rc)
			rc = perf_off_cpu_attached(s, pid, tids->data[i]);
		if (rc == -ESRCH)
			continue;
		if (rc == -EMFILE && s->attached) {
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

static int attach_all(struct perf_sampler *s)
{
	s->new_threads = true;
	return perf_attach_all(s);
}

/* A sampler that only tracks sees the whole machine where it may, and tells of what the session knows:
 * events on a thread, whatever they count, cost each of its switches. */
static bool tracks_everything(struct perf_sampler *s)
{
	if (s->options.on_cpu || s->options.off_cpu)
		return false;
	if (!s->tracks_known)
		s->tracks_known = !attach_all(s);
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
	rc = attach(s, tid, &watch_alone);
	if (!rc)
		rc = perf_off_cpu_attached(s, pid, tid);
	if (rc == -ESRCH)
		return err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)tid);
	return rc ? rights_perf_refused(-rc, pid, err) : 0;
}

static int perf_watch_child(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	int rc = tracks_everything(s) ? 0 : attach(s, pid, &watch_child);

	return rc ? rights_perf_refused(-rc, 0, err) : 0;
}

static int perf_watch_all(struct sampler *sampler, struct err *err)
{
	int rc = attach_all(perf_of(sampler));

	return rc ? rights_perf_refused(-rc, -1, err) : 0;
}

static int perf_watch_cgroup(struct sampler *sampler, int cgroup_fd, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	int rc;

	s->cgroup_fd = cgroup_fd;
	rc = attach_all(s);
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
		.threads = s->attached,
		.missed_threads = s->missed_threads,
		.ring_bytes_read = s->ring_bytes_read,
		.delay_mean_ns = histogram_mean(&s->delays),
		.delay_p99_ns = histogram_quantile(&s->delays, 990),
		.python = !s->options.on_cpu ? NULL : s->python ? "copied" : "live",
		.stack_bytes = s->adaptive ? 0 : s->attr.sample_stack_user,
	};
	perf_count_sizes(s, ret);
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
