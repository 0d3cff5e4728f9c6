/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Python's frames, copied at the moment of the sample by a BPF program on its event.
 *
 * What the program writes comes from an event of its own on each CPU, and goes to the ring of that CPU's samples.
 * It runs in the interrupt that takes the sample, so that in the ring the chains of a thread stand
 * right in front of its sample, and nothing of that ring is between them; but where there was no room for the
 * one or the other, a chain may have lost its sample: so both name their thread.
 *
 * Where the program may not be loaded, or is not wanted, frames are read when the sample is handled.
 */
#include "sample/perf/perf_priv.h"

#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "sample/bpf/python_program.h"

/* What is known of code objects is believed that long without a look at them. */
#define LOOK_NS (10 * NS_PER_MS)

#define MOST_CHAINS (PYTHON_COPY_STATES + 1u)

struct perf_chains {
	pid_t pid, tid;
	size_t count;
	struct raw_chain chains[MOST_CHAINS];
	uint64_t room[MOST_CHAINS][PYTHON_COPY_WORDS];
};

void perf_python_open(struct perf_sampler *s)
{
	if (s->options.on_cpu && !s->options.nonblocking)
		python_program_new(&s->python, NULL);
}

void perf_python_bind(struct perf_sampler *s)
{
	/* Without memory for that it is told of no process, and copies nothing. */
	if (s->python)
		python_copier_follow(python_program_copier(s->python), s->session);
}

void perf_python_free(struct perf_sampler *s)
{
	python_program_free(s->python);
}

/* ---- events ---- */

static struct perf_event_attr output_attr(void)
{
	struct perf_event_attr attr = perf_dummy_attr();

	attr.config = PERF_COUNT_SW_BPF_OUTPUT;
	attr.sample_type |= PERF_SAMPLE_RAW;
	attr.sample_period = 1;
	attr.exclude_kernel = 0;
	attr.disabled = 0;
	return attr;
}

void perf_python_open_ring(struct perf_sampler *s, struct cpu_ring *r)
{
	struct perf_event_attr attr = output_attr();

	if (!s->python || r->copies)
		return;
	r->chains_fd = perf_event_open(&attr, -1, r->cpu, -1);
	r->chains = calloc(1, sizeof(*r->chains));
	if (r->chains_fd < 0 || !r->chains || ioctl(r->chains_fd, PERF_EVENT_IOC_SET_OUTPUT, r->fd) ||
		ioctl(r->chains_fd, PERF_EVENT_IOC_ID, &r->chains_id) ||
		python_program_output(s->python, r->cpu, r->chains_fd))
		perf_python_close_ring(r);
}

void perf_python_close_ring(struct cpu_ring *r)
{
	if (r->chains_fd >= 0)
		close(r->chains_fd);
	r->chains_fd = -1;
	free(r->chains);
	r->chains = NULL;
}

void perf_python_set(const struct perf_sampler *s, int event_fd)
{
	if (s->python)
		ioctl(event_fd, PERF_EVENT_IOC_SET_BPF, python_program_fd(s->python));
}

/* ---- records ---- */

static void take_chain(struct perf_sampler *s, struct perf_chains *chains, const void *record, size_t bytes)
{
	struct python_copied copied;

	if (!python_copied_read(record, bytes, chains->room[chains->count], &copied)) {
		session_lost(s->session, LOSS_MALFORMED, 1);
		return;
	}
	python_copier_learn(python_program_copier(s->python), &copied);
	chains->pid = copied.pid;
	chains->tid = copied.tid;
	chains->chains[chains->count++] = copied.raw;
}

bool perf_python_record(struct perf_sampler *s, struct cpu_ring *r, uint64_t id, struct cursor *c)
{
	struct perf_chains *chains = r->chains;
	const void *record;
	uint32_t bytes;
	pid_t tid;

	if (!chains || id != r->chains_id)
		return false;
	cursor_skip(c, 12); /* ip, pid */
	tid = (pid_t)cursor_u32(c);
	cursor_skip(c, 16); /* time, CPU */
	bytes = cursor_u32(c);
	record = cursor_bytes(c, bytes);
	if (chains->count && chains->tid != tid)
		chains->count = 0;
	if (c->bad)
		session_lost(s->session, LOSS_MALFORMED, 1);
	else if (chains->count < MOST_CHAINS)
		take_chain(s, chains, record, bytes);
	return true;
}

void perf_python_settle(struct perf_sampler *s)
{
	uint64_t lost = s->python ? python_program_not_written(s->python) : 0;

	if (lost != s->lost_chains)
		session_lost(s->session, LOSS_RING_RECORDS, lost - s->lost_chains);
	s->lost_chains = lost;
}

void perf_python_take(struct perf_sampler *s, struct cpu_ring *r, struct raw_sample *raw)
{
	struct perf_chains *chains = r->chains;

	raw->stack.look = 1 + clock_monotonic_ns() / LOOK_NS;
	if (!chains) {
		raw->stack.look = 0;
		raw->stack.python = PYTHON_LIVE;
		return;
	}
	if (chains->count && chains->tid == raw->tid && chains->pid == raw->pid) {
		raw->stack.chains = chains->chains;
		raw->stack.chain_count = chains->count;
	} else {
		raw->stack.python = python_copier_without(python_program_copier(s->python), raw->pid);
	}
	chains->count = 0;
}
