/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes -> session calls. */
#include "sample/ptrace/ptrace_priv.h"

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"

/* Which CPU it was on is not known. */
#define NO_CPU UINT16_MAX

static struct raw_stack stack_of(const struct note *n)
{
#if defined(__x86_64__)
	uint64_t sp = n->regs.value[UNWIND_X86_RSP];
#else
	uint64_t sp = n->regs.value[UNWIND_A64_SP];
#endif
	return (struct raw_stack){.has_regs = n->regs.known, .regs = n->regs,
		.dump = {sp, n->stack, n->stack_bytes}};
}

void ptrace_learn(struct ptrace_sampler *s, pid_t tid, const struct stored_stack *stored)
{
	dump_size_learn(&s->tracer.sizes, tid, stored->used_bytes,
		stored->live_frames || stored->end == UNWIND_TRUNCATED ||
			stored->end == UNWIND_CHANGED);
}

static void deliver_sample(struct ptrace_sampler *s, const struct note *n)
{
	struct stored_stack stored;
	struct raw_sample raw = {
		.time_ns = n->time_ns,
		.pid = n->pid,
		.tid = n->tid,
		.cpu = NO_CPU,
		.weight_ns = s->tracer.period_ns,
		.period_ns = n->period_ns,
		.stack = stack_of(n),
	};

	bool have = n->period_ns && session_sample(s->session, &raw, &stored);

	if (!have && n->queued_ns)
		have = session_stack(s->session, n->pid, n->tid, n->time_ns, &raw.stack, &stored);
	if (!have)
		return;
	ptrace_learn(s, n->tid, &stored);
	if (n->queued_ns)
		sleepers_queued(s, n, &stored);
}

static void deliver_wait(struct ptrace_sampler *s, const struct note *n)
{
	struct raw_stack raw = {0};

	if (n->kind == NOTE_ASLEEP)
		raw = stack_of(n);
	sleepers_note(s, n, &raw);
}

static void deliver_shown(struct ptrace_sampler *s, const struct note *n)
{
	struct raw_stack raw = stack_of(n);
	struct stored_stack stored;
	bool have = n->regs.known &&
		session_stack(s->session, n->pid, n->tid, n->time_ns, &raw, &stored);

	if (have)
		ptrace_learn(s, n->tid, &stored);
	s->sink.thread(s->sink.ctx, n->pid, n->tid, have ? &stored : NULL);
}

static void deliver(struct ptrace_sampler *s, const struct note *n)
{
	struct session *to = s->session;

	switch (n->kind) {
	case NOTE_SAMPLE:
		deliver_sample(s, n);
		break;
	case NOTE_SHOWN:
		deliver_shown(s, n);
		break;
	case NOTE_WHOLE:
		s->sink.whole(s->sink.ctx, n->pid);
		break;
	case NOTE_ASLEEP:
	case NOTE_AWOKE:
	case NOTE_TIMES:
		deliver_wait(s, n);
		break;
	case NOTE_STARTED:
		session_forked(to, n->other_pid, n->pid, n->other_tid, n->tid, n->time_ns);
		break;
	case NOTE_EXECED:
		session_renamed(to, n->pid, n->tid, n->name, true, n->time_ns);
		break;
	case NOTE_NAMED:
		session_renamed(to, n->pid, n->tid, n->name, false, n->time_ns);
		break;
	case NOTE_ENDED:
		session_exited(to, n->pid, n->tid, n->time_ns);
		break;
	case NOTE_LOST:
		session_lost(to, LOSS_RING, n->count);
		session_lost(to, LOSS_RING_RECORDS, (uint64_t)n->other_tid);
		break;
	}
}

uint64_t ptrace_drain(struct sampler *sampler, bool last)
{
	struct ptrace_sampler *s = ptrace_of(sampler);
	const struct note *n;
	eventfd_t count;

	eventfd_read(s->tracer.notes_fd, &count);
	throttling_refresh(s->throttling, clock_monotonic_ns());
	while ((n = note_ring_peek(&s->tracer.ring))) {
		s->bytes_read += sizeof(*n) + n->stack_bytes;
		deliver(s, n);
		note_ring_pop(&s->tracer.ring);
	}
	return UINT64_MAX;
}
