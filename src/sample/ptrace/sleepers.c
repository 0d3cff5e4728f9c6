/* SPDX-License-Identifier: BSD-2-Clause */
/* Time off the CPU, on the side of the session: waits become intervals, and sums by state. */
#include "sample/ptrace/ptrace_priv.h"

#include <string.h>

#include "base/clock.h"

#define LONG_QUEUE_NS (5 * NS_PER_MS) /* worth asking whether the thread was throttled */

/* Index of the first sleeper with an id of at least `tid`. */
static size_t place_of(const struct ptrace_sampler *s, pid_t tid)
{
	size_t lo = 0, hi = s->sleepers.len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->sleepers.data[mid].tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static struct sleeper *find(struct ptrace_sampler *s, pid_t tid)
{
	size_t at = place_of(s, tid);

	return at < s->sleepers.len && s->sleepers.data[at].tid == tid ? &s->sleepers.data[at] : NULL;
}

/* NULL: out of memory. */
static struct sleeper *get(struct ptrace_sampler *s, pid_t pid, pid_t tid)
{
	struct sleeper *sl = find(s, tid);
	size_t at = place_of(s, tid);

	if (sl || vec_reserve(&s->sleepers, s->sleepers.len + 1))
		return sl;
	sl = &s->sleepers.data[at];
	memmove(sl + 1, sl, (s->sleepers.len - at) * sizeof(*sl));
	s->sleepers.len++;
	*sl = (struct sleeper){.pid = pid, .tid = tid};
	return sl;
}

static void forget(struct ptrace_sampler *s, struct sleeper *sl)
{
	size_t at = (size_t)(sl - s->sleepers.data);

	s->sleepers.len--;
	memmove(sl, sl + 1, (s->sleepers.len - at) * sizeof(*sl));
}

static void on_asleep(struct ptrace_sampler *s, const struct note *n, const struct raw_stack *raw)
{
	struct sleeper *sl = get(s, n->pid, n->tid);

	if (!sl)
		return;
	sl->reason = n->wait.reason;
	sl->was_open = n->wait.open;
	sl->stack = (struct stored_stack){.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS};
	if (raw->has_regs && session_stack(s->session, n->pid, n->tid, n->time_ns, raw, &sl->stack))
		ptrace_learn(s, n->tid, &sl->stack);
	if (sl->stack.leaf == CAPTURE_NONE)
		session_lost(s->session, LOSS_OFF_CPU_STACK, 1);
}

static void tell(struct ptrace_sampler *s, const struct off_cpu_interval *from)
{
	struct off_cpu_interval i = *from;

	i.duration_ns = i.blocked_ns + i.queued_ns;
	i.start_ns -= i.duration_ns;
	i.cpu = UINT16_MAX;
	i.waker_stack = CAPTURE_NONE;
	if (i.duration_ns && i.duration_ns >= s->tracer.options.min_block_ns)
		session_off_cpu(s->session, &i);
}

static void on_awoke(struct ptrace_sampler *s, const struct note *n)
{
	struct sleeper *sl = find(s, n->tid);
	struct off_cpu_interval interval;

	if (!sl)
		return;
	interval = (struct off_cpu_interval){
		.start_ns = n->time_ns,
		.blocked_ns = n->wait.blocked_ns,
		.queued_ns = n->wait.queued_ns,
		.pid = n->pid,
		.tid = n->tid,
		.state = sl->reason.state,
		.syscall = sl->reason.syscall,
		.was_open = sl->was_open,
		.still_open = n->wait.open,
		.stack = sl->stack,
	};
	sl->ns[sl->reason.state] += n->wait.blocked_ns;
	tell(s, &interval);
}

/* The states sum up to the time that passed. Blocked time that no look saw is STATE_BLOCKED; what was
 * seen a little too long, for CPU times that came late, is taken off the longest. */
static void balance(struct thread_times *times)
{
	uint64_t whole = times->until_ns - times->since_ns, sum = 0;
	unsigned longest = STATE_ON_CPU;

	for (unsigned i = 0; i < STATE_COUNT; i++) {
		sum += times->ns[i];
		if (times->ns[i] > times->ns[longest])
			longest = i;
	}
	if (sum <= whole)
		times->ns[STATE_BLOCKED] += whole - sum;
	else if (times->ns[longest] >= sum - whole)
		times->ns[longest] -= sum - whole;
}

static void on_times(struct ptrace_sampler *s, const struct note *n)
{
	struct sleeper *sl = find(s, n->tid);
	struct thread_times times = {.since_ns = n->wait.since_ns, .until_ns = n->time_ns};

	if (sl)
		memcpy(times.ns, sl->ns, sizeof(times.ns));
	times.ns[STATE_ON_CPU] = n->wait.run_ns;
	if (n->wait.queued_ns > times.ns[STATE_THROTTLED])
		times.ns[STATE_RUN_QUEUE] = n->wait.queued_ns - times.ns[STATE_THROTTLED];
	balance(&times);
	session_thread_times(s->session, n->pid, n->tid, &times);
	if (sl)
		forget(s, sl);
}

void sleepers_note(struct ptrace_sampler *s, const struct note *n, const struct raw_stack *raw)
{
	if (n->kind == NOTE_ASLEEP)
		on_asleep(s, n, raw);
	else if (n->kind == NOTE_AWOKE)
		on_awoke(s, n);
	else
		on_times(s, n);
}

void sleepers_queued(
	struct ptrace_sampler *s, const struct note *n, const struct stored_stack *stack)
{
	struct sleeper *sl = get(s, n->pid, n->tid);
	struct off_cpu_interval interval = {
		.start_ns = n->time_ns,
		.queued_ns = n->queued_ns,
		.pid = n->pid,
		.tid = n->tid,
		.state = STATE_RUN_QUEUE,
		.syscall = -1,
		.stack = *stack,
	};

	if (sl && n->queued_ns >= LONG_QUEUE_NS &&
		throttling_covers(s->throttling, n->pid, n->time_ns - n->queued_ns, n->time_ns)) {
		interval.state = STATE_THROTTLED;
		sl->ns[STATE_THROTTLED] += n->queued_ns;
	}
	tell(s, &interval);
}
