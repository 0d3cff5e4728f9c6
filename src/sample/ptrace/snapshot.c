/* SPDX-License-Identifier: BSD-2-Clause */
/* A sample of all threads of a process, when it gets a signal (on_signal.h). */
#include "sample/ptrace/ptrace_priv.h"

#include <string.h>

#include "base/clock.h"

/* Threads that take longer to stop are in the kernel, or have no CPU: the sample does without them. */
#define PATIENCE_NS (50 * NS_PER_MS)

static void tell_thread(struct tracer *t, const struct traced *th, const struct raw_stack *stack)
{
	size_t bytes = stack ? stack->dump.size : 0;
	struct note *n = tracer_note(t, NOTE_SHOWN, th, stack ? NOTE_MOST_BYTES : 0);

	if (!n)
		return;
	if (stack) {
		n->regs = stack->regs;
		n->stack_bytes = bytes;
		memcpy(n->stack, stack->dump.bytes, bytes);
		tracer_copy_python(t, th, 0, n);
		if (!blocked_still(th->pid, th->tid, &t->blocked))
			n->chain_bytes = 0;
	}
	tracer_tell(t, n);
}

static void tell_whole(struct tracer *t, pid_t pid)
{
	struct note *n = tracer_note(t, NOTE_WHOLE, NULL, 0);

	if (!n)
		return;
	n->pid = pid;
	tracer_tell(t, n);
}

/* A thread that sleeps has its stack told now; the others are awake. */
static void show(struct tracer *t, struct traced *th)
{
	if (traced_name(t, th))
		tracer_tell_name(t, th);
	if (!th->selected)
		return;
	if (!blocked_read(th->pid, th->tid, &t->blocked, NULL) && t->blocked.stack.has_regs) {
		tell_thread(t, th, &t->blocked.stack);
		return;
	}
	th->wanted = true;
	t->wanted++;
}

static void stop_wanted(struct tracer *t, struct traced *th)
{
	if (!th->wanted || th->asked_ns)
		return;
	if (!tracer_ask_to_stop(t, th)) {
		tracer_wait_actively(t, th->tid);
		return;
	}
	snapshot_forget(t, th);
	tell_thread(t, th, NULL);
}

/* Threads may come and go meanwhile. */
static void each_thread(struct tracer *t, pid_t pid, void (*each)(struct tracer *t, struct traced *th))
{
	struct traced *th;
	pid_t at = 0;

	while ((th = traced_after(t, at)) && th->tid > at) {
		at = th->tid;
		if (th->pid == pid && !th->before_exec && th->tid != t->hit)
			each(t, th);
	}
}

/* First those that sleep, then the others one by one, so that who stands stopped waits for nothing. */
static void show_all(struct tracer *t, pid_t pid, pid_t hit)
{
	t->shown = pid;
	t->patience_ns = clock_monotonic_ns() + PATIENCE_NS;
	t->hit = hit;
	each_thread(t, pid, show);
	each_thread(t, pid, stop_wanted);
}

void snapshot_stopped(struct tracer *t, struct traced *th, uint64_t since_ns)
{
	struct note *n = tracer_note(t, NOTE_SHOWN, th, NOTE_MOST_BYTES);

	snapshot_forget(t, th);
	if (!tracer_copy(t, th, n, false, since_ns) && n)
		tracer_tell(t, n);
}

void snapshot_forget(struct tracer *t, struct traced *th)
{
	t->wanted -= th->wanted;
	th->wanted = false;
}

static void enqueue(struct tracer *t, pid_t pid)
{
	if (vec_push(&t->to_show, pid))
		t->lost++;
}

/* The thread that was hit does not wait for the others: it has a stack to give, and goes on. */
void snapshot_signalled(struct tracer *t, struct traced *th, uint64_t since_ns)
{
	struct note *n;

	if (t->shown) {
		enqueue(t, th->pid);
		tracer_copy(t, th, NULL, true, since_ns);
		return;
	}
	if (traced_name(t, th))
		tracer_tell_name(t, th);
	n = th->selected ? tracer_note(t, NOTE_SHOWN, th, NOTE_MOST_BYTES) : NULL;
	if (!tracer_copy(t, th, n, true, since_ns) && n)
		tracer_tell(t, n);
	show_all(t, th->pid, th->tid);
}

void snapshot_everything(struct tracer *t)
{
	vec_each(&t->threads, th)
		if ((*th)->tid == (*th)->pid)
			enqueue(t, (*th)->pid);
}

/* Those that have not stopped have no stack in this sample. */
static void give_up(struct tracer *t)
{
	vec_each(&t->threads, it) {
		if (!(*it)->wanted)
			continue;
		snapshot_forget(t, *it);
		tell_thread(t, *it, NULL);
		t->late++;
	}
}

uint64_t snapshot_go_on(struct tracer *t)
{
	uint64_t now = clock_monotonic_ns();

	if (t->shown && t->wanted && now < t->patience_ns)
		return t->patience_ns;
	if (t->shown) {
		give_up(t);
		tell_whole(t, t->shown);
		t->shown = 0;
	}
	if (!t->to_show.len)
		return UINT64_MAX;

	pid_t pid = t->to_show.data[0];

	t->to_show.len--;
	memmove(t->to_show.data, t->to_show.data + 1, t->to_show.len * sizeof(pid));
	show_all(t, pid, 0);
	return now;
}
