/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Threads leaving and entering CPUs, as perf tells it.
 *
 * A record tells that a thread has left its CPU (and whether it could run on), and another one that it is
 * back. These come with the events that also tell of mappings and names. A software event of its own fires in
 * the kernel just before, and its sample holds the kernel's frames, the registers and the top of the user's
 * stack. All of it goes through the same rings as the samples of running threads.
 *
 * Those who may not look at the kernel's side get no samples, only the records. Then the stack of a thread that
 * sleeps is read from its memory (sample/blocked.h): that needs it to sleep until we come.
 *
 * What is written to the rings here wakes nobody: a program that switches a hundred thousand times a
 * second would be slowed down by our waking up. We look every few milliseconds instead.
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "os/rights.h"

/* The stack of a thread that sleeps can be read on when we come; of those that are back by then this
 * much is all there is. */
#define STACK_BYTES 8192u

/* How soon after a switch we look, while there are some and while there are none. */
#define LOOK_NS (2 * NS_PER_MS)
#define LOOK_IDLE_NS (10 * NS_PER_MS)
#define IDLE_NS (100 * NS_PER_MS)

static void set_copies(struct perf_sampler *s)
{
	struct perf_event_attr *attr = &s->off_attr;
	uint32_t bytes = s->options.stack_bytes;

	*attr = perf_dummy_attr();
	attr->disabled = 0;
	attr->config = PERF_COUNT_SW_CONTEXT_SWITCHES;
	attr->sample_period = 1;
	attr->exclude_kernel = 0;
	if (!bytes)
		bytes = STACK_BYTES;
	perf_set_user_stack(attr, bytes < OFF_CPU_HELD_BYTES ? bytes : OFF_CPU_HELD_BYTES);
}

int perf_off_cpu_open(struct perf_sampler *s, struct err *err)
{
	int rc;

	s->asleep = malloc(sizeof(*s->asleep));
	if (!s->asleep || throttling_new(&s->throttling, err))
		return err_nomem(err);
	s->copies.random = s->copies.since_ns = clock_monotonic_ns();
	set_copies(s);
	rc = perf_try_open(&s->off_attr);
	s->copies.made = !rc;
	if (rc && rc != -EACCES && rc != -EPERM)
		return rights_perf_refused(-rc, 0, err);
	if (s->copies.made)
		kernel_roles_new(&s->roles, NULL);
	if (!s->options.on_cpu) {
		s->attr = perf_dummy_attr();
		s->attr.disabled = 0;
		perf_set_tracking(&s->attr);
		s->event_name = "context-switches";
		s->kernel = s->copies.made;
	}
	s->attr.context_switch = 1;
	rc = perf_try_open(&s->attr);
	return rc ? rights_perf_refused(-rc, 0, err) : 0;
}

static bool throttled(void *ctx, pid_t pid, uint64_t from_ns, uint64_t to_ns)
{
	return throttling_covers(ctx, pid, from_ns, to_ns);
}

void perf_off_cpu_bind(struct perf_sampler *s)
{
	struct off_cpu_options options = {
		.min_block_ns = s->options.min_block_ns,
		.throttled = throttled,
		.ctx = s->throttling,
		.live = true,
	};

	if (s->options.off_cpu)
		off_cpu_new(s->session, &options, &s->off_cpu, NULL);
}

void perf_off_cpu_free(struct perf_sampler *s)
{
	off_cpu_free(s->off_cpu);
	kernel_roles_free(s->roles);
	throttling_free(s->throttling);
	vec_release(&s->copies.seen);
	vec_release(&s->copies.paused);
	free(s->asleep);
	vec_release(&s->fresh);
}

/* ---- threads that were there before us ---- */

int perf_off_cpu_attached(struct perf_sampler *s, pid_t pid, pid_t tid)
{
	struct fresh_thread thread = {pid, tid};

	return s->off_cpu ? vec_push(&s->fresh, thread) : 0;
}

/* Its records from this moment on count: by then the kernel tells of it. */
static void look_at(struct perf_sampler *s, struct fresh_thread thread)
{
	throttling_watch(s->throttling, thread.pid, clock_monotonic_ns());

	struct off_cpu_start start = {
		.time_ns = clock_monotonic_ns(),
		.pid = thread.pid,
		.tid = thread.tid,
		.stack = {.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS},
	};
	int rc = session_selects(s->session, thread.tid)
		? blocked_read(thread.pid, thread.tid, s->asleep, NULL)
		: -EAGAIN;

	if (rc == -ESRCH)
		return;
	start.reason = s->asleep->reason;
	if (rc != -EAGAIN && start.reason.state != STATE_RUN_QUEUE)
		start.how = BEGIN_BLOCKED;
	if (!rc)
		session_stack(s->session, thread.pid, thread.tid, start.time_ns, &s->asleep->stack,
			&start.stack);
	/* Memory that was read while the stack was unwound is of the same sleep, or nothing is known. */
	if (!rc && !blocked_still(thread.pid, thread.tid, s->asleep))
		start.stack = (struct stored_stack){
			.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS};
	off_cpu_begin(s->off_cpu, &start);
}

void perf_off_cpu_look(struct perf_sampler *s)
{
	vec_each(&s->fresh, thread)
		look_at(s, *thread);
	s->fresh.len = 0;
}

/* ---- records ---- */

void perf_off_cpu_sample(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e,
	const struct raw_sample *raw)
{
	const struct raw_stack *stack = &raw->stack;

	perf_copies_count(s, r, e);
	if (perf_is_second(s, e, raw->tid, raw->time_ns))
		return;
	/* A thread of the kernel: its first record tells whether it is one. */
	if (s->off_cpu && (!stack->kernel_thread || off_cpu_knows(s->off_cpu, raw->tid)))
		off_cpu_stack(s->off_cpu, raw->pid, raw->tid, raw->time_ns,
			state_of_chain(s->roles, stack->kernel_ips, stack->kernel_count,
				stack->has_regs ? &stack->regs : NULL),
			stack);
}

/* A thread of the whole machine that is seen for the first time. False: it is over, and this is how it
 * leaves its CPU for good. */
static bool begin_unknown(struct perf_sampler *s, const struct perf_trailer *t)
{
	struct off_cpu_start start = {
		.time_ns = t->time_ns, .pid = (pid_t)t->pid, .tid = (pid_t)t->tid};
	struct proc_status status;

	if (proc_status_read((pid_t)t->tid, &status, NULL) || status.state == 'Z' || status.state == 'X')
		return false;
	if (status.kernel_thread)
		start.how = BEGIN_IGNORED;
	off_cpu_begin(s->off_cpu, &start);
	return true;
}

void perf_off_cpu_switch(struct perf_sampler *s, struct cpu_ring *r)
{
	const struct perf_event_header *header = r->next;
	const struct watched_event *e;
	struct perf_trailer t;

	if (!s->off_cpu || !perf_trailer(header, &t) || (pid_t)t.pid <= 0 || (pid_t)t.tid <= 0)
		return;
	e = perf_event_of(r, t.id);
	if (perf_is_second(s, e, (pid_t)t.tid, t.time_ns))
		return;
	if (e && e->tid == -1 && !off_cpu_knows(s->off_cpu, (pid_t)t.tid) && !begin_unknown(s, &t))
		return;
	if (header->misc & PERF_RECORD_MISC_SWITCH_OUT)
		off_cpu_out(s->off_cpu, (pid_t)t.pid, (pid_t)t.tid, t.time_ns, (uint16_t)t.cpu,
			header->misc & PERF_RECORD_MISC_SWITCH_OUT_PREEMPT);
	else
		off_cpu_in(s->off_cpu, (pid_t)t.pid, (pid_t)t.tid, t.time_ns, (uint16_t)t.cpu);
}

/* Where only single threads are watched, others that they start are heard of and never seen. */
void perf_off_cpu_forked(struct perf_sampler *s, pid_t pid, pid_t tid, uint64_t time_ns)
{
	struct off_cpu_start start = {
		.time_ns = time_ns, .pid = pid, .tid = tid, .how = BEGIN_CREATED};

	if (s->off_cpu && s->new_threads && pid > 0 && tid > 0)
		off_cpu_begin(s->off_cpu, &start);
}

void perf_off_cpu_exec(struct perf_sampler *s, pid_t pid, uint64_t time_ns)
{
	struct off_cpu_start start = {.time_ns = time_ns, .pid = pid, .tid = pid};

	if (!s->off_cpu || pid <= 0)
		return;
	throttling_watch(s->throttling, pid, clock_monotonic_ns());
	off_cpu_exec(s->off_cpu, pid, time_ns);
	off_cpu_begin(s->off_cpu, &start);
}

uint64_t perf_off_cpu_settle(struct perf_sampler *s, bool last)
{
	uint64_t now = clock_monotonic_ns(), wait_ns, copies_ns, look_ns = LOOK_NS;

	if (!s->off_cpu)
		return UINT64_MAX;
	if (last) {
		off_cpu_finish(s->off_cpu, s->stopped_ns ? s->stopped_ns : now);
		return UINT64_MAX;
	}
	throttling_refresh(s->throttling, now);
	copies_ns = perf_copies_settle(s, now);
	wait_ns = off_cpu_settle(s->off_cpu, now);
	wait_ns = copies_ns < wait_ns ? copies_ns : wait_ns;
	if (s->ring_bytes_read != s->looked_bytes)
		s->active_ns = now;
	s->looked_bytes = s->ring_bytes_read;
	if (now - s->active_ns >= IDLE_NS)
		look_ns = LOOK_IDLE_NS;
	return wait_ns < look_ns ? wait_ns : look_ns;
}
