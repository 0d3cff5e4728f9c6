/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that are seen by probes: what the kernel tells of them becomes the events that the library writes elsewhere, and
 * from there on all is the same. A process is known from its first event on; one that runs already, or was just started, at
 * once.
 *
 * Numbers of these processes are taken from the upper end of those that heap/reader.h gives away from the lower one.
 */
#include "heap/collect_priv.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/proc.h"

#define FIRST_SLOT (HEAP_PROCESSES - HEAP_PROBED_MOST)

static struct probed *find(struct heap_collector *c, pid_t pid)
{
	vec_each(&c->probed, it)
		if (it->pid == pid)
			return it;
	return NULL;
}

/* ---- begin and end ---- */

static void enter(struct heap_collector *c, pid_t pid, uint64_t now_ns)
{
	char name[PROC_NAME_BYTES];
	const char *known = session_thread_name(c->session, pid);

	if (collect_find(c, pid)) {
		session_read_maps(c->session, pid, NULL);
		return;
	}
	if (known && !proc_thread_name(pid, pid, name, sizeof(name), NULL) && strcmp(known, name))
		session_renamed(c->session, pid, pid, name, true, now_ns);
	session_adopt(c->session, pid, NULL);
}

/* Unless the library is in it as well, which tells of it then. */
static void tell_process(struct heap_collector *c, pid_t pid, uint64_t rate, uint64_t now_ns)
{
	struct record_heap record = {
		.time_ns = now_ns,
		.rate = rate,
		.pid = (uint32_t)pid,
		.precision = HEAP_SAMPLED,
		.how = c->told ? HEAP_TOLD : HEAP_PROBES,
		.allocator = capture_string(c->writer, c->probes_allocator[0] ? c->probes_allocator : NULL),
		.uncovered = CAPTURE_NONE,
	};

	if (collect_find(c, pid))
		return;
	capture_record(c->writer, RECORD_HEAP, &record, sizeof(record));
	c->stats.processes++;
}

static uint32_t free_number(struct heap_collector *c)
{
	for (uint32_t slot = FIRST_SLOT; slot < HEAP_PROCESSES; slot++) {
		bool taken = false;

		vec_each(&c->probed, it)
			taken |= HEAP_SLOT(it->number) == slot;
		if (!taken)
			return slot | ++c->probes_begun << 16;
	}
	return 0;
}

static struct probed *begin(struct heap_collector *c, pid_t pid, uint64_t now_ns)
{
	struct probed p = {.number = free_number(c), .pid = pid};

	if (!p.number || heap_model_process(c->model, p.number, (uint32_t)pid, HEAP_SAMPLED, NULL))
		return NULL;
	p.pid_fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (vec_push(&c->probed, p)) {
		if (p.pid_fd >= 0)
			close(p.pid_fd);
		return NULL;
	}
	enter(c, pid, now_ns);
	if (!c->told) /* how it samples its first sample says */
		tell_process(c, pid, c->rate, now_ns);
	return &c->probed.data[c->probed.len - 1];
}

static void end(struct heap_collector *c, struct probed *p, bool exec, uint64_t now_ns)
{
	heap_model_process_ended(c->model, c->writer, p->number, now_ns);
	if (!exec)
		heap_probes_unwatch(c->probes, p->pid);
	if (!exec && !collect_find(c, p->pid))
		session_exited(c->session, p->pid, p->pid, now_ns);
	if (p->pid_fd >= 0)
		close(p->pid_fd);
	*p = c->probed.data[--c->probed.len];
}

static bool has_ended(const struct probed *p)
{
	struct pollfd fd = {.fd = p->pid_fd, .events = POLLIN};

	return p->pid_fd < 0 || poll(&fd, 1, 0) > 0;
}

/* ---- events ---- */

static uint32_t stack_of(struct heap_collector *c, pid_t pid, const struct heap_probe_sample *sample)
{
	struct raw_stack raw = {.dump = {sample->regs[USER_REG_SP], sample->bytes, sample->head.stack_bytes}};

	raw.has_regs = heap_probes_regs(sample, &raw.regs);
	if (!raw.has_regs)
		return CAPTURE_NONE;
	c->stats.raw_stacks++;
	return session_walk_called(c->session, pid, (pid_t)sample->head.tid, sample->head.time_ns, &raw);
}

static const uint32_t types[] = {
	[HEAP_PROBE_ALLOCATED] = SHARE_ALLOC,
	[HEAP_PROBE_FREED] = SHARE_FREE,
	[HEAP_PROBE_FREED_LAST] = SHARE_FREE_LAST,
	[HEAP_PROBE_MOVING] = SHARE_REALLOC,
	[HEAP_PROBE_MOVED] = SHARE_REALLOC_DONE,
	[HEAP_PROBE_MOVED_SAMPLED] = SHARE_REALLOC_DONE,
	[HEAP_PROBE_TOLD] = SHARE_ALLOC,
};

/* Its weight becomes the rate that gives it. */
static uint64_t rate_of(struct heap_collector *c, struct probed *p, const struct heap_probe_event *e)
{
	bool first = !p->told_rate;

	if (e->type != HEAP_PROBE_TOLD)
		return e->rate;
	p->told_rate = heap_told_rate(e->size, e->rate, p->told_rate);
	if (first)
		tell_process(c, p->pid, p->told_rate, e->time_ns);
	return p->told_rate;
}

static void take_block(struct heap_collector *c, struct probed *p, const struct heap_probe_event *e,
	const struct heap_probe_sample *sample)
{
	struct heap_event event = {
		.time_ns = e->time_ns > c->probes_ns ? e->time_ns : c->probes_ns,
		.address = e->address,
		.size = e->size,
		.rate = rate_of(c, p, e),
		.process = p->number,
		.tid = e->tid,
		.node = e->type == HEAP_PROBE_MOVED ? SHARE_STACK_UNSAMPLED : SHARE_STACK_NONE,
		.type = types[e->type],
	};

	c->probes_ns = event.time_ns;
	heap_model_take(c->model, &event, sample ? stack_of(c, p->pid, sample) : CAPTURE_NONE);
	c->changed = true;
}

static void take(void *ctx, const struct heap_probe_event *e, const struct heap_probe_sample *sample)
{
	struct heap_collector *c = ctx;
	pid_t pid = (pid_t)e->tgid;
	struct probed *p = find(c, pid);

	if (e->type == HEAP_PROBE_EXEC) {
		if (p)
			end(c, p, true, e->time_ns);
		return;
	}
	if (!p)
		p = begin(c, pid, e->time_ns);
	if (!p)
		session_lost(c->session, LOSS_HEAP, 1);
	else if (e->type < sizeof(types) / sizeof(types[0]) && types[e->type])
		take_block(c, p, e, sample);
}

size_t collect_probes(struct heap_collector *c, size_t limit)
{
	return c->probes ? heap_probes_drain(c->probes, limit, take, c) : 0;
}

void collect_probes_ends(struct heap_collector *c, uint64_t now_ns)
{
	bool drained = false;

	for (size_t i = c->probed.len; i-- > 0;) {
		if (!has_ended(&c->probed.data[i]))
			continue;
		if (!drained)
			collect_drain(c);
		drained = true;
		if (i < c->probed.len && has_ended(&c->probed.data[i]))
			end(c, &c->probed.data[i], false, now_ns);
	}
}

void collect_probes_losses(struct heap_collector *c)
{
	struct heap_probes_stats stats;

	if (!c->probes)
		return;
	heap_probes_stats(c->probes, &stats);
	session_lost(c->session, LOSS_HEAP, stats.lost - c->probes_lost);
	c->probes_lost = stats.lost;
}

/* ---- from outside ---- */

int heap_collector_probe(struct heap_collector *c, struct heap_probes *probes, const char *allocator, bool told)
{
	struct epoll_event event = {.events = EPOLLIN | EPOLLET, .data.u64 = COLLECT_PROBES};

	c->probes = probes;
	c->told = told;
	snprintf(c->probes_allocator, sizeof(c->probes_allocator), "%s", allocator);
	return epoll_ctl(c->epoll_fd, EPOLL_CTL_ADD, heap_probes_fd(probes), &event) ? -errno : 0;
}

int heap_collector_probe_process(struct heap_collector *c, pid_t pid, bool at_exec, struct err *err)
{
	int rc = heap_probes_watch(c->probes, pid, at_exec, err);

	if (!rc && !at_exec && !find(c, pid) && !begin(c, pid, clock_monotonic_ns()))
		rc = err_nomem(err);
	return rc;
}

void collect_probes_free(struct heap_collector *c)
{
	vec_each(&c->probed, it)
		if (it->pid_fd >= 0)
			close(it->pid_fd);
	vec_release(&c->probed);
	heap_probes_free(c->probes);
}
