/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening events on threads and rings on CPUs.
 *
 * An event that is inherited by new threads must be bound to a CPU to have a ring, so each thread
 * takes one event a CPU; all events of a CPU write to one ring. The ring belongs to a dummy event
 * on ourselves, because a descriptor whose thread has exited polls as hung up.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "os/rights.h"

/* New threads appear while the list is read; a process that forks faster than this many looks is
 * covered by inheritance all the same. */
#define MAX_LISTINGS 32

/* Memory for all rings together, and bounds for one; powers of two. */
#define RINGS_BYTES ((size_t)64 << 20)
#define RING_MAX_BYTES ((size_t)8 << 20)
#define RING_MIN_BYTES ((size_t)128 << 10)

/* ---- rings ---- */

static int open_ring(struct perf_sampler *s, int cpu, size_t bytes, struct err *err)
{
	struct perf_event_attr dummy = perf_dummy_attr();
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	struct cpu_ring r = {.cpu = cpu};
	int rc;

	r.fd = perf_event_open(&dummy, 0, cpu, -1);
	if (r.fd == -ENODEV) /* the CPU went offline a moment ago */
		return 0;
	if (r.fd < 0)
		return rights_perf_refused(-r.fd, 0, err);
	/* Less is allowed to users without CAP_IPC_LOCK, or free: step down until it fits. */
	for (;; bytes /= 2) {
		rc = perf_ring_map(&r.ring, r.fd, bytes / page_bytes);
		if ((rc != -EPERM && rc != -ENOMEM) || bytes / 2 < RING_MIN_BYTES)
			break;
	}
	struct epoll_event ready = {.events = EPOLLIN};
	if (rc)
		rights_ring_refused(-rc, bytes, err);
	else if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, r.fd, &ready))
		rc = err_errno(err, errno, "epoll");
	else if (vec_push(&s->rings, r))
		rc = err_nomem(err);
	if (rc) {
		perf_ring_unmap(&r.ring);
		close(r.fd);
	}
	return rc;
}

/* Opens a ring for each CPU in a list such as "0-3,6". */
static int open_rings(struct perf_sampler *s, const char *cpus, struct err *err)
{
	size_t count = (size_t)sysconf(_SC_NPROCESSORS_ONLN), bytes = RING_MAX_BYTES;

	while (bytes > RING_MIN_BYTES && bytes * count > RINGS_BYTES)
		bytes /= 2;
	for (const char *at = cpus; *at >= '0' && *at <= '9';) {
		char *end;
		long first = strtol(at, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long cpu = first; cpu <= last && cpu < 65536; cpu++) {
			int rc = open_ring(s, (int)cpu, bytes, err);
			if (rc)
				return rc;
		}
		at = *end == ',' ? end + 1 : end;
	}
	return s->rings.len ? 0 : err_set(err, ENODEV, "cannot tell which CPUs are online");
}

static int open_all_rings(struct perf_sampler *s, struct err *err)
{
	static const char path[] = "/sys/devices/system/cpu/online";
	char cpus[4096];
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, cpus, sizeof(cpus) - 1);

	if (n <= 0) /* no sysfs: count */
		n = snprintf(cpus, sizeof(cpus), "0-%ld", sysconf(_SC_NPROCESSORS_ONLN) - 1);
	cpus[n] = '\0';
	return open_rings(s, cpus, err);
}

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

	vec_each(&s->events, e)
		close(e->fd);
	vec_each(&s->rings, r) {
		perf_ring_unmap(&r->ring);
		close(r->fd);
	}
	if (s->epoll_fd >= 0)
		close(s->epoll_fd);
	vec_release(&s->events);
	vec_release(&s->rings);
	vec_release(&s->watched);
	free(s->id_slots);
	free(s);
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
	s->random = clock_monotonic_ns();
	s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	raise_file_limit(s);
	rc = s->epoll_fd < 0 ? err_errno(err, errno, "epoll") : perf_choose_event(s, err);
	if (!rc)
		perf_measure_cycle(s);
	if (!rc)
		rc = open_all_rings(s, err);
	if (rc) {
		perf_free(&s->sampler);
		return rc;
	}
	*ret = &s->sampler;
	return 0;
}

static void perf_bind(struct sampler *sampler, struct session *session)
{
	perf_of(sampler)->session = session;
}

/* ---- events by id ---- */

static void insert_id(struct perf_sampler *s, size_t index)
{
	size_t mask = s->id_slot_count - 1, i = hash_u64(s->events.data[index].id) & mask;

	while (s->id_slots[i])
		i = (i + 1) & mask;
	s->id_slots[i] = (uint32_t)index + 1;
}

static int grow_ids(struct perf_sampler *s)
{
	size_t count = s->id_slot_count ? s->id_slot_count * 2 : 256;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	free(s->id_slots);
	s->id_slots = slots;
	s->id_slot_count = count;
	for (size_t i = 0; i < s->events.len; i++)
		insert_id(s, i);
	return 0;
}

struct watched_event *perf_event_of_id(const struct perf_sampler *s, uint64_t id)
{
	size_t mask = s->id_slot_count - 1;

	for (size_t i = hash_u64(id) & mask; s->id_slot_count && s->id_slots[i]; i = (i + 1) & mask)
		if (s->events.data[s->id_slots[i] - 1].id == id)
			return &s->events.data[s->id_slots[i] - 1];
	return NULL;
}

static int add_event(struct perf_sampler *s, int fd, pid_t tid)
{
	struct watched_event e = {.fd = fd, .tid = tid};

	if (ioctl(fd, PERF_EVENT_IOC_ID, &e.id))
		return -errno;
	if (s->events.len * 2 >= s->id_slot_count && grow_ids(s))
		return -ENOMEM;
	if (vec_push(&s->events, e))
		return -ENOMEM;
	insert_id(s, s->events.len - 1);
	return 0;
}

/* ---- attaching ---- */

static int open_event(
	const struct perf_sampler *s, struct perf_event_attr *attr, pid_t tid, int cpu)
{
	if (tid == -1 && s->cgroup_fd >= 0)
		return perf_event_open_cgroup(attr, s->cgroup_fd, cpu);
	return perf_event_open(attr, tid, cpu, -1);
}

/* One event on every CPU; tid -1 for all threads. 0 or -errno, with nothing half done. */
static int open_events(struct perf_sampler *s, pid_t tid, const struct perf_event_attr *attr)
{
	size_t before = s->events.len;
	int rc = 0;

	for (size_t i = 0; !rc && i < s->rings.len; i++) {
		struct perf_event_attr copy = *attr;
		int fd = open_event(s, &copy, tid, s->rings.data[i].cpu);

		if (fd < 0)
			rc = fd;
		else if ((rlim_t)fd >= s->max_fd)
			rc = -EMFILE;
		else if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, s->rings.data[i].fd))
			rc = -errno;
		else
			rc = add_event(s, fd, tid);
		if (rc && fd >= 0)
			close(fd);
	}
	if (!rc)
		return 0;
	while (s->events.len > before)
		close(s->events.data[--s->events.len].fd);
	grow_ids(s); /* the dropped ids must go; an old slot would point past the events */
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

static int watch_tid(struct perf_sampler *s, pid_t tid, const struct perf_event_attr *attr)
{
	if (vec_reserve(&s->watched, s->watched.len + 1))
		return -ENOMEM;

	int rc = open_events(s, tid, attr);

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

		int rc = watch_tid(s, tids->data[i], &s->attr);

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

static int perf_watch_process(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	struct pid_vec tids = {0};
	size_t found = 1;
	int rc = 0;

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
	struct perf_event_attr attr = s->attr;

	attr.inherit = 0;
	int rc = watch_tid(s, tid, &attr);
	if (rc == -ESRCH)
		return err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)tid);
	return rc ? rights_perf_refused(-rc, pid, err) : 0;
}

static int perf_watch_child(struct sampler *sampler, pid_t pid, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	struct perf_event_attr attr = s->attr;

	attr.disabled = 1;
	attr.enable_on_exec = 1;
	int rc = watch_tid(s, pid, &attr);
	return rc ? rights_perf_refused(-rc, 0, err) : 0;
}

static int perf_watch_all(struct sampler *sampler, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	struct perf_event_attr attr = s->attr;

	attr.inherit = 0;
	int rc = open_events(s, -1, &attr);
	return rc ? rights_perf_refused(-rc, -1, err) : 0;
}

static int perf_watch_cgroup(struct sampler *sampler, int cgroup_fd, struct err *err)
{
	struct perf_sampler *s = perf_of(sampler);
	struct perf_event_attr attr = s->attr;
	int rc;

	attr.inherit = 0;
	s->cgroup_fd = cgroup_fd;
	rc = open_events(s, -1, &attr);
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

	vec_each(&s->events, e)
		ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0);
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
	.stop = perf_stop,
	.facts = perf_facts,
};
