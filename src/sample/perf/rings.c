/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One ring a CPU. It belongs to a dummy event that outlives all threads that are watched, because a
 * descriptor whose thread has exited polls as hung up; all sampling events of the CPU write to it.
 *
 * Copies of stacks of threads that leave their CPU go to a second one, where there is memory for that:
 * when they are too many and some are dropped, none of the records that tell who ran when is.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "os/rights.h"

/* Memory for all rings together, and bounds for one; powers of two. */
#define RINGS_BYTES ((size_t)64 << 20)
#define RING_MAX_BYTES ((size_t)8 << 20)
#define RING_MIN_BYTES ((size_t)128 << 10)

/* As long as no event is on a thread, also of ours, switches cost nothing: a sampler that only tracks
 * has all on CPUs where it may. */
static int open_owner(const struct perf_sampler *s, int cpu)
{
	struct perf_event_attr dummy = perf_dummy_attr();
	int fd = -EACCES;

	if (!s->options.on_cpu && !s->options.off_cpu)
		fd = perf_event_open(&dummy, -1, cpu, -1);
	return fd == -EACCES || fd == -EPERM ? perf_event_open(&dummy, 0, cpu, -1) : fd;
}

static int open_ring(
	struct perf_sampler *s, int cpu, size_t bytes, bool copies, struct err *err)
{
	size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
	struct cpu_ring r = {.cpu = cpu, .copies = copies, .chains_fd = -1};
	int rc;

	r.fd = open_owner(s, cpu);
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

static void close_ring(struct cpu_ring *r)
{
	event_table_release(&r->events);
	perf_python_close_ring(r);
	vec_release(&r->sampled);
	early_store_release(&r->early);
	perf_ring_unmap(&r->ring);
	close(r->fd);
}

/* They come behind the others, so that these are looked at first: what is in one of these by then has its
 * copy in one of those. */
static void open_copy_rings(struct perf_sampler *s, size_t bytes)
{
	size_t count = s->rings.len;
	int rc = 0;

	for (size_t i = 0; !rc && i < count; i++)
		rc = open_ring(s, s->rings.data[i].cpu, bytes, true, NULL);
	s->copies.own_rings = !rc && s->rings.len == 2 * count;
	while (!s->copies.own_rings && s->rings.len > count)
		close_ring(&s->rings.data[--s->rings.len]);
}

/* Opens a ring for each CPU in a list such as "0-3,6". */
static int open_rings(struct perf_sampler *s, const char *cpus, struct err *err)
{
	size_t count = (size_t)sysconf(_SC_NPROCESSORS_ONLN), bytes = RING_MAX_BYTES;

	if (s->copies.made)
		count += count / 2;
	while (bytes > RING_MIN_BYTES && bytes * count > RINGS_BYTES)
		bytes /= 2;
	for (const char *at = cpus; *at >= '0' && *at <= '9';) {
		char *end;
		long first = strtol(at, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		for (long cpu = first; cpu <= last && cpu < 65536; cpu++) {
			int rc = open_ring(s, (int)cpu, bytes, false, err);
			if (rc)
				return rc;
		}
		at = *end == ',' ? end + 1 : end;
	}
	if (s->copies.made)
		open_copy_rings(s, bytes / 2 < RING_MIN_BYTES ? bytes : bytes / 2);
	vec_each(&s->rings, r) { /* they stay where they are now */
		pthread_mutex_init(&r->lock, NULL);
		r->random = clock_monotonic_ns() + hash_u64((uint64_t)r->cpu);
		perf_python_open_ring(s, r);
	}
	return s->rings.len ? 0 : err_set(err, ENODEV, "cannot tell which CPUs are online");
}

int perf_open_rings(struct perf_sampler *s, struct err *err)
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

void perf_close_rings(struct perf_sampler *s)
{
	vec_each(&s->rings, r) {
		pthread_mutex_destroy(&r->lock);
		close_ring(r);
	}
	vec_release(&s->rings);
}
