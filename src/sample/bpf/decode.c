/* SPDX-License-Identifier: BSD-2-Clause */
/* Events of the program -> intervals for the session. */
#include "sample/bpf/bpf_priv.h"

#include <stdlib.h>

#include "base/clock.h"
#include "sample/bpf/common.h"

/* A stack that was copied in part makes the next copy twice as big; what was more than needed
 * shrinks slowly. */
#define LEAST_STACK_BYTES 1024u
#define SPARE_STACK_BYTES 512u

void bpf_user_part(struct raw_stack *raw, const uint64_t *regs, uint32_t flags, const void *bytes,
	size_t size)
{
	raw->kernel_thread = flags & OFF_CPU_KERNEL_ONLY;
	if (raw->kernel_thread || !bpf_user_regs(regs, flags & OFF_CPU_COMPAT, &raw->regs))
		return;
	raw->has_regs = true;
	raw->dump = (struct unwind_dump){
		.start = regs[USER_REG_SP],
		.bytes = bytes,
		.size = size,
	};
}

static struct raw_stack raw_stack_of(const struct off_cpu_event *e)
{
	struct raw_stack raw = {
		.kernel_ips = e->kernel_ips,
		.kernel_count = e->kernel_count,
	};

	bpf_user_part(&raw, e->regs, e->head.flags, e->bytes, e->stack_bytes);
	return raw;
}

/* Chooses how much is copied the next time. */
static void adapt(struct bpf_sampler *s, struct off_cpu_thread *t, const struct off_cpu_event *e,
	const struct stored_stack *stack)
{
	uint32_t bytes = t->stack_bytes, most = OFF_CPU_STACK_BYTES;

	if (s->options.stack_bytes && s->options.stack_bytes < most)
		most = s->options.stack_bytes;
	if (stack->end == UNWIND_ROOT && !stack->live_frames) {
		uint32_t enough = stack->used_bytes + SPARE_STACK_BYTES;

		bytes -= bytes / 16;
		if (bytes < enough)
			bytes = enough;
	} else if (e->stack_bytes + SPARE_STACK_BYTES > bytes) {
		bytes *= 2;
	}
	if (bytes < LEAST_STACK_BYTES)
		bytes = LEAST_STACK_BYTES;
	__atomic_store_n(&t->stack_bytes, bytes < most ? bytes : most, __ATOMIC_RELAXED);
}

/* The stack of the interval, from where there is one. */
static void find_stack(struct bpf_sampler *s, const struct off_cpu_event *e, struct stored_stack *ret)
{
	const struct off_cpu_head *h = &e->head;
	struct thread_note *note = &s->notes[h->slot];
	struct raw_stack raw = raw_stack_of(e);

	*ret = (struct stored_stack){.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS};
	if (note->stack_seq == h->seq) {
		*ret = note->stack;
		return;
	}
	if (h->flags & (OFF_CPU_HAS_USER | OFF_CPU_KERNEL_ONLY)) {
		bpf_take_chain(s, h->slot, h->seq, &raw);
		session_stack(s->session, (pid_t)h->tgid, (pid_t)h->tid, h->time_ns, &raw, ret);
		if (raw.has_regs)
			adapt(s, &s->threads[h->slot], e, ret);
		return;
	}
	/* The kernel's part is known. */
	raw.kernel_thread = true;
	session_stack(s->session, (pid_t)h->tgid, (pid_t)h->tid, h->time_ns, &raw, ret);
	ret->end = UNWIND_NO_REGS;
	session_lost(s->session, LOSS_OFF_CPU_STACK, 1);
}

static void decode_interval(struct bpf_sampler *s, const struct off_cpu_event *e)
{
	const struct off_cpu_head *h = &e->head;
	const struct thread_note *note = &s->notes[h->slot];
	struct off_cpu_interval i = {
		.start_ns = e->start_ns,
		.duration_ns = h->time_ns - e->start_ns,
		.blocked_ns = e->blocked_ns,
		.queued_ns = e->queued_ns,
		.pid = (pid_t)h->tgid,
		.tid = (pid_t)h->tid,
		.cpu = e->cpu,
		.state = (enum thread_state)e->state,
		.syscall = e->syscall,
		.was_open = h->flags & OFF_CPU_WAS_OPEN,
		.waker_stack = CAPTURE_NONE,
	};

	if (e->state == STATE_ON_CPU || e->state >= STATE_COUNT || e->start_ns > h->time_ns) {
		session_lost(s->session, LOSS_MALFORMED, 1);
		return;
	}
	find_stack(s, e, &i.stack);
	if (note->waker_seq == h->seq) {
		i.waker = note->waker;
		i.waker_pid = note->waker_pid;
		i.waker_tid = note->waker_tid;
		i.waker_stack = note->waker_stack;
	}
	if (vec_push(&s->finished, i))
		session_lost(s->session, LOSS_RING, 1);
}

static void decode_waker(struct bpf_sampler *s, const struct off_cpu_event *e)
{
	struct thread_note *note = &s->notes[e->head.slot];
	struct raw_stack raw = raw_stack_of(e);
	struct stored_stack stack = {.leaf = CAPTURE_NONE};

	raw.kernel_count = 0;
	note->waker_seq = e->head.seq;
	note->waker_stack = CAPTURE_NONE;
	if (e->head.flags & OFF_CPU_INTERRUPT &&
		!bpf_is_the_threads_own(s, e->kernel_ips, e->kernel_count)) {
		note->waker = WAKER_INTERRUPT;
		note->waker_pid = note->waker_tid = 0;
		return;
	}
	note->waker = WAKER_THREAD;
	note->waker_pid = (pid_t)e->waker_tgid;
	note->waker_tid = (pid_t)e->waker_tid;
	if (!(e->head.flags & OFF_CPU_HAS_USER))
		return;
	if (session_stack(s->session, note->waker_pid, note->waker_tid, e->head.time_ns, &raw,
		    &stack))
		note->waker_stack = stack.leaf;
}

static bool is_whole(const void *record, size_t bytes)
{
	const struct off_cpu_event *e = record;

	if (bytes < sizeof(e->head) || e->head.slot >= OFF_CPU_THREADS)
		return false;
	if (e->head.kind == OFF_CPU_PYTHON)
		return bytes <= offsetof(struct off_cpu_python, bytes);
	if (e->head.kind == OFF_CPU_EXIT)
		return bytes >= sizeof(struct off_cpu_exit);
	return bytes >= offsetof(struct off_cpu_event, bytes) &&
		e->kernel_count <= OFF_CPU_KERNEL_FRAMES &&
		e->stack_bytes <= bytes - offsetof(struct off_cpu_event, bytes);
}

void bpf_decode(struct bpf_sampler *s, const void *record, size_t bytes)
{
	const struct off_cpu_head *head = record;

	if (!is_whole(record, bytes)) {
		session_lost(s->session, LOSS_MALFORMED, 1);
		return;
	}
	if (head->kind == OFF_CPU_EXIT)
		bpf_tell_exit(s, record);
	else if (!session_selects(s->session, (pid_t)head->tid))
		return;
	else if (head->kind == OFF_CPU_INTERVAL)
		decode_interval(s, record);
	else if (head->kind == OFF_CPU_WAKER)
		decode_waker(s, record);
	else if (head->kind == OFF_CPU_PYTHON)
		bpf_keep_chain(s, record, bytes);
}

uint64_t bpf_oldest_ns(struct bpf_sampler *s)
{
	size_t bytes = 0;
	const struct off_cpu_head *head = bpf_ring_peek(&s->ring, &bytes);

	return !head ? UINT64_MAX : bytes < sizeof(*head) ? 0 : head->time_ns;
}

size_t bpf_decode_until(struct bpf_sampler *s, uint64_t time_ns)
{
	size_t count = 0, bytes;
	const void *record;

	for (; bpf_oldest_ns(s) <= time_ns && (record = bpf_ring_peek(&s->ring, &bytes)); count++) {
		bpf_decode(s, record, bytes);
		s->ring_bytes_read += bytes;
		bpf_ring_pop(&s->ring);
	}
	return count;
}

static int compare_ends(const void *a, const void *b)
{
	const struct off_cpu_interval *x = a, *y = b;
	uint64_t x_ns = x->start_ns + x->duration_ns, y_ns = y->start_ns + y->duration_ns;

	return (x_ns > y_ns) - (x_ns < y_ns);
}

/* Events of several CPUs are nearly in the order of their times. */
void bpf_settle(struct bpf_sampler *s, uint64_t time_ns)
{
	size_t done = 0;

	if (!s->finished.len)
		return;
	qsort(s->finished.data, s->finished.len, sizeof(*s->finished.data), compare_ends);
	for (; done < s->finished.len; done++) {
		const struct off_cpu_interval *i = &s->finished.data[done];

		if (i->start_ns + i->duration_ns > time_ns)
			break;
		session_off_cpu(s->session, i);
	}
	s->finished.len -= done;
	for (size_t i = 0; done && i < s->finished.len; i++)
		s->finished.data[i] = s->finished.data[i + done];
}
