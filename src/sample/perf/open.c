/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening events on threads, replacing them by others, and closing them.
 *
 * An event that is inherited by new threads must be bound to a CPU to have a ring, so each thread
 * takes one event a CPU. What is copied of the stack cannot be changed in an open event: for that
 * another one takes its place. It is opened disabled; then the old one is disabled and the new one
 * enabled, which also happens to the copies that threads have inherited, so that at no time both count
 * or neither exists.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

/* Records of a closed event may still be in its ring: that long after, as its records go. */
#define RETIRE_NS (10 * NS_PER_MS)

static int open_event(const struct perf_sampler *s, struct perf_event_attr *attr, pid_t tid, int cpu)
{
	if (tid == -1 && s->cgroup_fd >= 0)
		return perf_event_open_cgroup(attr, s->cgroup_fd, cpu);
	return perf_event_open(attr, tid, cpu, -1);
}

/* An event on the CPU of the ring. 0 or -errno. */
static int open_on(struct perf_sampler *s, struct cpu_ring *r, const struct event_wish *wish,
	struct watched_event **ret)
{
	struct perf_event_attr attr = wish->off_cpu ? s->off_attr : s->attr;
	struct watched_event e = {
		.tid = wish->tid, .off_cpu = wish->off_cpu, .inherit = wish->inherit};

	attr.inherit = wish->inherit;
	attr.disabled |= wish->disabled || wish->on_exec;
	attr.enable_on_exec = wish->on_exec;
	if (wish->stack_bytes && !wish->off_cpu)
		attr.sample_stack_user = wish->stack_bytes;
	e.stack_bytes = attr.sample_stack_user;
	e.fd = open_event(s, &attr, wish->tid, r->cpu);
	if (e.fd < 0)
		return e.fd;

	uint64_t id;
	int rc = 0;

	if ((rlim_t)e.fd >= s->max_fd)
		rc = -EMFILE;
	else if (ioctl(e.fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd) ||
		ioctl(e.fd, PERF_EVENT_IOC_ID, &id))
		rc = -errno;
	if (!rc) {
		pthread_mutex_lock(&r->lock);
		*ret = event_table_add(&r->events, &e, id);
		if (*ret && s->options.on_cpu && !wish->off_cpu)
			perf_first_period(s, r, *ret);
		pthread_mutex_unlock(&r->lock);
		rc = *ret ? 0 : -ENOMEM;
	}
	if (rc)
		close(e.fd);
	else if (!wish->off_cpu)
		perf_python_set(s, e.fd);
	return rc;
}

/* Takes its descriptor from an event, which stays known by its id for a while. */
static void retire(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e)
{
	struct retired_event retired = {
		.ring = (size_t)(r - s->rings.data), .id = e->node.key, .closed_ns = clock_monotonic_ns()};
	int fd = e->fd;

	/* Without room for it, it stays known for good. */
	vec_push(&s->retired, retired);
	pthread_mutex_lock(&r->lock);
	e->fd = -1;
	pthread_mutex_unlock(&r->lock);
	if (fd >= 0)
		close(fd);
}

void perf_forget_retired(struct perf_sampler *s)
{
	size_t kept = 0;

	for (size_t i = 0; i < s->retired.len; i++) {
		struct retired_event retired = s->retired.data[i];
		struct cpu_ring *r = &s->rings.data[retired.ring];

		if ((r->next || s->round_ns <= retired.closed_ns) &&
			r->handled_ns < retired.closed_ns + RETIRE_NS) {
			s->retired.data[kept++] = retired;
			continue;
		}
		pthread_mutex_lock(&r->lock);
		struct watched_event *e = event_table_find(&r->events, retired.id);
		if (e)
			event_table_remove(&r->events, e);
		pthread_mutex_unlock(&r->lock);
	}
	s->retired.len = kept;
}

int perf_replace(struct perf_sampler *s, struct perf_thread *th, struct watched_event *old,
	uint32_t stack_bytes)
{
	struct cpu_ring *r = &s->rings.data[old->ring];
	struct watched_event **at = &th->events, *new;
	struct event_wish wish = {.tid = old->tid,
		.inherit = old->inherit,
		.disabled = true,
		.stack_bytes = stack_bytes};
	int rc = open_on(s, r, &wish, &new);

	if (rc)
		return rc;
	ioctl(old->fd, PERF_EVENT_IOC_DISABLE, 0);
	perf_take_over(s, r, old, new);
	ioctl(new->fd, PERF_EVENT_IOC_ENABLE, 0);
	new->ring = old->ring;
	while (*at != old)
		at = &(*at)->sibling;
	new->sibling = old->sibling;
	*at = new;
	retire(s, r, old);
	return 0;
}

static void close_list(struct perf_sampler *s, struct watched_event *list)
{
	for (struct watched_event *e = list, *next; e; e = next) {
		next = e->sibling;
		retire(s, &s->rings.data[e->ring], e);
	}
}

void perf_close_thread(struct perf_sampler *s, struct perf_thread *th)
{
	s->attached -= th->events != NULL;
	close_list(s, th->events);
	th->events = NULL;
}

static bool takes_copies(const struct perf_sampler *s, const struct cpu_ring *r)
{
	return s->copies.made && r->copies == s->copies.own_rings;
}

int perf_open_thread(struct perf_sampler *s, struct perf_thread *th, const struct event_wish *how)
{
	struct watched_event *list = NULL, *e;
	struct event_wish wish = *how;
	int rc = 0;

	wish.tid = th->tid;
	for (size_t i = 0; !rc && i < 2 * s->rings.len; i++) {
		const struct cpu_ring *r = &s->rings.data[i / 2];

		wish.off_cpu = i % 2;
		if (wish.off_cpu ? !takes_copies(s, r) : r->copies)
			continue;
		rc = open_on(s, &s->rings.data[i / 2], &wish, &e);
		if (rc)
			break;
		e->ring = i / 2;
		e->sibling = list;
		list = e;
	}
	if (rc) {
		close_list(s, list);
		return rc;
	}
	th->events = list;
	s->attached++;
	return 0;
}
