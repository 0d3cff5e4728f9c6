/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/snapshot/running_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/rights.h"
#include "sample/perf/perf_priv.h"

/* Of the thread's CPU time: its samples are taken within the window also when it has half a CPU. */
#define FREQUENCY_HZ 1000u

/* Room for all samples of a thread, and less where a user may not have that much. */
#define RING_PAGES 128u
#define RING_LEAST_PAGES 16u

/* An event of one thread, with a ring of its own. */
struct thread_event {
	const struct running_thread *thread;
	int fd;
	struct perf_ring ring;
	uint32_t taken;
	bool ended;
};

struct window {
	struct perf_event_attr attr;
	struct thread_event events[RUNNING_MOST_THREADS];
	size_t count;
	struct running_samples *ret;
};

/* ---- what was sampled ---- */

int running_keep(struct running_samples *ret, const struct running_thread *thread, uint64_t time_ns,
	const struct raw_stack *stack)
{
	size_t ips_bytes = stack->kernel_count * sizeof(*stack->kernel_ips);
	struct running_sample s = {.pid = thread->pid, .tid = thread->tid, .time_ns = time_ns,
		.stack = *stack, .held = malloc(ips_bytes + stack->dump.size + 1)};

	if (!s.held)
		return -ENOMEM;
	if (ips_bytes)
		memcpy(s.held, stack->kernel_ips, ips_bytes);
	if (stack->dump.size)
		memcpy((char *)s.held + ips_bytes, stack->dump.bytes, stack->dump.size);
	s.stack.kernel_ips = s.held;
	s.stack.dump.bytes = (char *)s.held + ips_bytes;
	if (!vec_push(ret, s))
		return 0;
	free(s.held);
	return -ENOMEM;
}

void running_keep_chains(struct running_samples *ret, const void *copied, size_t bytes)
{
	struct running_sample *s = &ret->data[ret->len - 1];

	/* The words of the chains stand behind them. */
	s->chains = bytes ? malloc(PYTHON_STOPPED_CHAINS * sizeof(*s->chains) + bytes) : NULL;
	if (!s->chains)
		return;
	s->stack.chains = s->chains;
	s->stack.chain_count = python_stopped_read(copied, bytes, s->chains + PYTHON_STOPPED_CHAINS,
		s->chains, PYTHON_STOPPED_CHAINS);
}

void running_release(struct running_samples *samples)
{
	vec_each(samples, s) {
		free(s->chains);
		free(s->held);
	}
	vec_release(samples);
}

/* ---- perf ---- */

/* 0, or -errno: that of the event, or of its ring. */
static int open_event(struct window *w, const struct running_thread *thread, struct err *err)
{
	struct thread_event e = {.thread = thread};
	size_t pages = RING_PAGES;
	int rc;

	e.fd = perf_event_open(&w->attr, thread->tid, -1, -1);
	if (e.fd == -ESRCH)
		return 0;
	if (e.fd < 0)
		return rights_perf_refused(-e.fd, thread->pid, err);
	do
		rc = perf_ring_map(&e.ring, e.fd, pages);
	while (rc && (pages /= 2) >= RING_LEAST_PAGES);
	if (rc) {
		close(e.fd);
		return rights_ring_refused(-rc, RING_LEAST_PAGES * (size_t)sysconf(_SC_PAGESIZE), err);
	}
	w->events[w->count++] = e;
	return 0;
}

static void take_record(struct window *w, struct thread_event *e, const struct perf_event_header *header)
{
	uint64_t ips[PERF_KERNEL_FRAMES], period;
	struct cursor c = cursor_over(header, header->size);
	struct raw_sample raw = {0};

	if (header->type != PERF_RECORD_SAMPLE || e->taken == RUNNING_SAMPLES)
		return;
	cursor_skip(&c, sizeof(*header) + sizeof(uint64_t)); /* and the event's id */
	perf_read_sample(&c, w->attr.sample_type, ips, &raw, &period);
	if (!c.bad && !running_keep(w->ret, e->thread, raw.time_ns, &raw.stack))
		e->taken++;
}

static void drain(struct window *w, struct thread_event *e)
{
	const struct perf_event_header *header;
	bool malformed = false;

	perf_ring_begin(&e->ring);
	while ((header = perf_ring_peek(&e->ring, &malformed))) {
		take_record(w, e, header);
		perf_ring_pop(&e->ring);
	}
	if (e->taken == RUNNING_SAMPLES)
		ioctl(e->fd, PERF_EVENT_IOC_DISABLE, 0);
}

/* Whether all threads have had as many samples; one that has ended counts. */
static bool all_have(const struct window *w, uint32_t samples)
{
	for (size_t i = 0; i < w->count; i++)
		if (!w->events[i].ended && w->events[i].taken < samples)
			return false;
	return true;
}

/* Sleeps until there is a sample, or time is up. */
static void wait_for_samples(struct window *w, uint64_t until_ns)
{
	struct pollfd fds[RUNNING_MOST_THREADS];
	uint64_t now_ns = clock_monotonic_ns();

	for (size_t i = 0; i < w->count; i++) {
		const struct thread_event *e = &w->events[i];

		fds[i] = (struct pollfd){
			.fd = e->ended || e->taken == RUNNING_SAMPLES ? -1 : e->fd, .events = POLLIN};
	}
	poll(fds, w->count, until_ns > now_ns ? (int)((until_ns - now_ns) / NS_PER_MS) + 1 : 0);
	for (size_t i = 0; i < w->count; i++) {
		drain(w, &w->events[i]);
		w->events[i].ended |= (fds[i].revents & POLLHUP) != 0;
	}
}

static void run_window(struct window *w)
{
	uint64_t began_ns = clock_monotonic_ns(), now_ns;

	for (size_t i = 0; i < w->count; i++)
		ioctl(w->events[i].fd, PERF_EVENT_IOC_ENABLE, 0);
	/* One that waits for a CPU gets more time. */
	while (!all_have(w, RUNNING_SAMPLES)) {
		now_ns = clock_monotonic_ns();
		if (now_ns >= began_ns + RUNNING_DEADLINE_NS ||
			(now_ns >= began_ns + RUNNING_WINDOW_NS && all_have(w, 1)))
			break;
		wait_for_samples(w, began_ns + (all_have(w, 1) ? RUNNING_WINDOW_NS : RUNNING_DEADLINE_NS));
	}
	for (size_t i = 0; i < w->count; i++) {
		perf_ring_unmap(&w->events[i].ring);
		close(w->events[i].fd);
	}
}

/* Samples those threads that perf gives us; how many others there are, which stand in `refused` then. */
static size_t by_perf(const struct running_thread *threads, size_t count, struct running_samples *ret,
	struct running_thread *refused, struct err *err)
{
	const struct sampler_options options = {
		.frequency_hz = FREQUENCY_HZ, .stack_bytes = RUNNING_STACK_BYTES, .on_cpu = true};
	struct window w = {.ret = ret};
	int no_perf = perf_choose_clock(&options, &w.attr, err);
	size_t left = 0;

	w.attr.disabled = 1;
	for (size_t i = 0; i < count; i++)
		if (no_perf || open_event(&w, &threads[i], err))
			refused[left++] = threads[i];
	run_window(&w);
	return left;
}

/* ---- both ---- */

int running_sample(const struct running_thread *threads, size_t count,
	const struct running_options *options, struct running_samples *ret,
	struct running_cost *cost, struct err *err)
{
	struct running_thread refused[RUNNING_MOST_THREADS];
	size_t had = ret->len, left;
	struct err why = {0};
	bool reached;

	if (count > RUNNING_MOST_THREADS)
		count = RUNNING_MOST_THREADS;
	memcpy(refused, threads, count * sizeof(*threads));
	left = options->stop ? count : by_perf(threads, count, ret, refused, &why);
	reached = left < count || !count;
	cost->perf |= ret->len > had;
	had = ret->len;
	for (size_t i = 0; i < left && !options->never_stop; i++)
		reached |= !running_stop(&refused[i], options->python, ret, cost, &why);
	cost->stop |= ret->len > had;
	if (reached)
		return 0;
	if (err)
		*err = why;
	return -why.code;
}
