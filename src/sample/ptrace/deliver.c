/* SPDX-License-Identifier: BSD-2-Clause */
/* Notes -> session calls. */
#include "sample/ptrace/ptrace_priv.h"

#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"

/* Which CPU it was on is not known. */
#define NO_CPU UINT16_MAX

/* What is known of Python's code objects is believed that long without a look at them. */
#define LOOK_NS (10 * NS_PER_MS)

/* The chains that were copied while it stood still; s->chains has them then. */
static size_t chains_of(struct ptrace_sampler *s, const struct note *n)
{
	size_t count = n->chain_bytes ? python_stopped_read(note_chains(n), n->chain_bytes, s->room,
						s->chains, PYTHON_STOPPED_CHAINS)
				      : 0;
	struct python_copied copied;

	/* The first one alone may come from the place by its thread pointer. */
	if (count && python_copied_read(note_chains(n), n->chain_bytes, s->scratch, &copied))
		python_copier_learn(python_stopped_copier(s->tracer.python), &copied);
	return count;
}

static struct raw_stack stack_of(struct ptrace_sampler *s, const struct note *n)
{
	struct raw_stack stack = {.has_regs = n->regs.known, .regs = n->regs};

#if defined(__x86_64__)
	uint64_t sp = n->regs.value[UNWIND_X86_RSP];
#else
	uint64_t sp = n->regs.value[UNWIND_A64_SP];
#endif
	stack.dump = (struct unwind_dump){sp, n->stack, n->stack_bytes};
	stack.chain_count = chains_of(s, n);
	stack.chains = s->chains;
	stack.look = 1 + clock_monotonic_ns() / LOOK_NS;
	if (stack.chain_count)
		return stack;
	stack.python = s->tracer.python ? python_copier_without(
						  python_stopped_copier(s->tracer.python), n->pid)
					: PYTHON_LIVE;
	if (stack.python == PYTHON_LIVE)
		stack.look = 0;
	return stack;
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
		.stack = stack_of(s, n),
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
		raw = stack_of(s, n);
	sleepers_note(s, n, &raw);
}

static void deliver_shown(struct ptrace_sampler *s, const struct note *n)
{
	struct raw_stack raw = stack_of(s, n);
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
		s->bytes_read += note_bytes(n);
		deliver(s, n);
		note_ring_pop(&s->tracer.ring);
	}
	return UINT64_MAX;
}
