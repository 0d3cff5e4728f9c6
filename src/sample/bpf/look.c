/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that are asleep: who they are, their stacks, and what is told of all threads in the end. */
#include "sample/bpf/bpf_priv.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#include <off_cpu.skel.h>

/* A sleeper is looked at after that long: when nothing was copied of it, and in any case; for while it
 * sleeps all of its stack can be had, and not only the part that was copied. */
#define WITHOUT_COPY_NS (2 * NS_PER_MS)
#define WITH_COPY_NS (20 * NS_PER_MS)

#define SCAN_SOON_NS (3 * NS_PER_MS)
#define SCAN_NS (20 * NS_PER_MS)
#define SCAN_LATE_NS (250 * NS_PER_MS)
#define TELL_NS NS_PER_S
/* A pass of the iterator may take this part of the time at most. */
#define LOOK_SHARE 20u

#define LOOKS_AT_ONCE 32u
/* Slots are taken by several CPUs at once; the count may miss the last ones for a moment. */
#define SLOTS_UNCOUNTED 16u

static uint32_t slots_used(const struct bpf_sampler *s)
{
	uint32_t used = __atomic_load_n(&s->skeleton->bss->slots_used, __ATOMIC_RELAXED);

	used += SLOTS_UNCOUNTED;
	return used < OFF_CPU_THREADS ? used : OFF_CPU_THREADS;
}

static uint32_t seq_of(const struct off_cpu_thread *t)
{
	return __atomic_load_n(&t->seq, __ATOMIC_ACQUIRE);
}

static bool is_off(const struct off_cpu_thread *t)
{
	return (t->state != STATE_ON_CPU && t->state < STATE_COUNT) || t->state == OFF_CPU_UNKNOWN;
}

/* ---- looking ---- */

static size_t read_stack(struct bpf_sampler *s, pid_t tid, uint64_t sp)
{
	struct iovec local = {s->bytes, sizeof(s->bytes)};
	struct iovec remote = {(void *)(uintptr_t)sp, sizeof(s->bytes)};
	ssize_t got = process_vm_readv(tid, &local, 1, &remote, 1, 0);

	return got > 0 ? (size_t)got : 0;
}

/* The stack of a thread that was asleep a moment ago, and is still when all is done. */
static void take(struct bpf_sampler *s, const struct off_cpu_look *l, uint64_t before_ns)
{
	struct off_cpu_thread *t = &s->threads[l->slot];
	struct thread_note *note = &s->notes[l->slot];
	struct raw_stack raw = {.kernel_ips = l->kernel_ips, .kernel_count = l->kernel_count,
		.python = PYTHON_STILL};
	struct stored_stack stack = {.leaf = CAPTURE_NONE};
	bool runs = l->flags & OFF_CPU_ON_CPU;

	if (t->tid != l->tid || seq_of(t) != l->seq || t->changed_ns > before_ns ||
		note->stack_seq == l->seq || (runs && t->state != OFF_CPU_UNKNOWN))
		return;
	if (!runs && session_selects(s->session, (pid_t)l->tid)) {
		bpf_user_part(&raw, l->regs, l->flags, s->bytes, 0);
		if (raw.has_regs)
			raw.dump.size = read_stack(s, (pid_t)l->tid, raw.dump.start);
		if (!session_stack(s->session, (pid_t)l->tgid, (pid_t)l->tid,
			    clock_monotonic_ns(), &raw, &stack) ||
			seq_of(t) != l->seq)
			return;
		__atomic_store_n(&t->taken_seq, l->seq, __ATOMIC_RELAXED);
	}
	note->stack_seq = l->seq;
	note->stack = stack;
	note->state = runs ? STATE_ON_CPU : l->state;
	note->syscall = l->syscall;
}

static bool makes_sense(const struct off_cpu_look *l)
{
	return l->slot < OFF_CPU_THREADS && l->kernel_count <= OFF_CPU_KERNEL_FRAMES &&
		l->state < STATE_COUNT;
}

int bpf_look(struct bpf_sampler *s, uint64_t before_ns, struct err *err)
{
	struct off_cpu_look looks[LOOKS_AT_ONCE];
	autoclose int fd = bpf_iter_create(bpf_link__fd(s->skeleton->links.look));
	size_t kept = 0;

	if (fd < 0)
		return err_errno(err, errno, "a BPF iterator over all threads");
	for (;;) {
		ssize_t got = read(fd, (char *)looks + kept, sizeof(looks) - kept);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return got < 0 ? err_errno(err, errno, "reading a BPF iterator") : 0;
		kept += (size_t)got;

		size_t whole = kept / sizeof(looks[0]);

		for (size_t i = 0; i < whole; i++)
			if (makes_sense(&looks[i]))
				take(s, &looks[i], before_ns);
		kept -= whole * sizeof(looks[0]);
		memmove(looks, looks + whole, kept);
	}
}

/* ---- times ---- */

/* The state in which it is, and since when it can run if that is known: adds the time up to `at_ns`. */
static void add_open(const struct off_cpu_thread *t, const struct thread_note *note, uint64_t at_ns,
	struct thread_times *times)
{
	uint32_t state = t->state;
	uint64_t from = t->changed_ns, woken = t->wake_ns;

	if (at_ns < from)
		at_ns = times->until_ns = from;
	if (state == OFF_CPU_UNKNOWN)
		state = note->stack_seq == t->seq ? note->state : STATE_BLOCKED;
	if (state >= STATE_COUNT)
		return;
	if (state >= STATE_FUTEX && woken >= from && woken < at_ns) {
		times->ns[state] += woken - from;
		times->ns[STATE_RUN_QUEUE] += at_ns - woken;
	} else {
		times->ns[state] += at_ns - from;
	}
}

/* A moment's view of a slot that the program goes on writing. */
static void tell_times(struct bpf_sampler *s, uint32_t slot, uint64_t at_ns)
{
	const struct off_cpu_thread *shared = &s->threads[slot];
	struct thread_note *note = &s->notes[slot];
	struct off_cpu_thread t = {0};

	for (int i = 0; i < 8; i++) {
		uint32_t seq = seq_of(shared);

		t = *shared;
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		if (seq_of(shared) == seq && t.seq == seq)
			break;
	}

	struct thread_times times = {.since_ns = t.since_ns, .until_ns = at_ns};

	for (size_t i = 0; i < STATE_COUNT; i++)
		times.ns[i] = t.ns[i];
	add_open(&t, note, at_ns, &times);
	session_thread_times(s->session, (pid_t)t.tgid, (pid_t)t.tid, &times);
	note->told_seq = t.seq;
}

static void free_slot(struct bpf_sampler *s, uint32_t slot)
{
	s->notes[slot] = (struct thread_note){0};
	s->threads[slot].state = OFF_CPU_FREE;
	bpf_map_update_elem(bpf_map__fd(s->skeleton->maps.free_slots), NULL, &slot, BPF_ANY);
}

void bpf_tell_exit(struct bpf_sampler *s, const struct off_cpu_exit *e)
{
	struct thread_times times = {.since_ns = e->since_ns, .until_ns = e->head.time_ns};

	for (size_t i = 0; i < STATE_COUNT; i++)
		times.ns[i] = e->ns[i];
	session_thread_times(s->session, (pid_t)e->head.tgid, (pid_t)e->head.tid, &times);
	free_slot(s, e->head.slot);
}

/* ---- from time to time ---- */

/* Whether the sleeper should be looked at. */
static bool wants_look(struct bpf_sampler *s, uint32_t slot, uint64_t now_ns)
{
	const struct off_cpu_thread *t = &s->threads[slot];
	struct thread_note *note = &s->notes[slot];
	uint64_t wait_ns = t->copied_seq == t->seq ? WITH_COPY_NS : WITHOUT_COPY_NS;

	if (!is_off(t) || note->stack_seq == t->seq)
		return false;
	return t->state == OFF_CPU_UNKNOWN || t->changed_ns + wait_ns <= now_ns;
}

/* Its last event got lost: the ring was full. */
static void bury(struct bpf_sampler *s, uint32_t slot)
{
	if (++s->notes[slot].seen_exited >= 3)
		free_slot(s, slot);
}

static void count_losses(struct bpf_sampler *s)
{
	uint64_t events = s->skeleton->bss->lost_events, threads = s->skeleton->bss->lost_threads;

	session_lost(s->session, LOSS_RING, events - s->lost_events);
	session_lost(s->session, LOSS_THREAD, threads - s->lost_threads);
	s->lost_events = events;
	s->lost_threads = threads;
}

static void tell_all_times(struct bpf_sampler *s, uint64_t at_ns, bool last)
{
	uint32_t used = slots_used(s);

	for (uint32_t slot = 0; slot < used; slot++) {
		const struct off_cpu_thread *t = &s->threads[slot];

		if ((t->state == STATE_ON_CPU || is_off(t)) &&
			t->seq && (last || s->notes[slot].told_seq != t->seq))
			tell_times(s, slot, at_ns);
	}
}

/* Whether anyone was looked at. */
static bool look_around(struct bpf_sampler *s, uint64_t now_ns)
{
	uint32_t used = slots_used(s);
	bool wanted = false;

	for (uint32_t slot = 0; slot < used; slot++) {
		if (s->threads[slot].state == OFF_CPU_EXITED)
			bury(s, slot);
		else if (s->threads[slot].seq)
			wanted |= wants_look(s, slot, now_ns);
	}
	if (wanted)
		bpf_look(s, now_ns - WITHOUT_COPY_NS, NULL);
	return wanted;
}

void bpf_scan(struct bpf_sampler *s, uint64_t now_ns)
{
	bool skipped = s->skeleton->bss->copies_skipped;

	if (now_ns < s->scan_ns)
		return;
	s->skeleton->bss->copies_skipped = false;

	bool looked = look_around(s, now_ns);
	uint64_t done_ns = clock_monotonic_ns(), pause_ns = (done_ns - now_ns) * LOOK_SHARE;

	s->scan_wait_ns = skipped ? SCAN_SOON_NS
		: looked	  ? SCAN_NS
		: s->scan_wait_ns < SCAN_LATE_NS / 2 ? s->scan_wait_ns * 2
						     : SCAN_LATE_NS;
	if (s->scan_wait_ns < pause_ns)
		s->scan_wait_ns = pause_ns;
	s->scan_ns = done_ns + s->scan_wait_ns;
	count_losses(s);
	if (now_ns < s->tell_ns)
		return;
	s->tell_ns = now_ns + TELL_NS;
	tell_all_times(s, done_ns, false);
}

/* ---- the end ---- */

/* A thread that was still off the CPU when we stopped. */
static void tell_open(struct bpf_sampler *s, uint32_t slot, uint64_t now_ns)
{
	const struct off_cpu_thread *t = &s->threads[slot];
	const struct thread_note *note = &s->notes[slot];
	bool unseen = t->state == OFF_CPU_UNKNOWN, known = note->stack_seq == t->seq;
	struct thread_times times = {.until_ns = now_ns};
	struct off_cpu_interval i = {
		.start_ns = t->changed_ns,
		.pid = (pid_t)t->tgid,
		.tid = (pid_t)t->tid,
		.cpu = t->cpu,
		.state = (enum thread_state)(unseen ? note->state : t->state),
		.syscall = unseen ? note->syscall : t->syscall,
		.was_open = unseen,
		.still_open = true,
		.stack = {.leaf = CAPTURE_NONE, .end = UNWIND_NO_REGS},
		.waker_stack = CAPTURE_NONE,
	};

	if (t->changed_ns >= now_ns || (unseen && (!known || i.state == STATE_ON_CPU)) ||
		(!unseen && now_ns - t->changed_ns < s->keep_ns))
		return;
	i.duration_ns = now_ns - t->changed_ns;
	add_open(t, note, now_ns, &times);
	i.queued_ns = times.ns[STATE_RUN_QUEUE] + times.ns[STATE_THROTTLED];
	i.blocked_ns = i.duration_ns - i.queued_ns;
	if (known)
		i.stack = note->stack;
	else
		session_lost(s->session, LOSS_OFF_CPU_STACK, 1);
	session_off_cpu(s->session, &i);
}

void bpf_finish(struct bpf_sampler *s, uint64_t now_ns)
{
	uint32_t used = slots_used(s);

	if (s->told_open)
		return;
	s->told_open = true;
	if (!s->stop_ns)
		bpf_look(s, UINT64_MAX, NULL);
	bpf_settle(s, UINT64_MAX);
	for (uint32_t slot = 0; slot < used; slot++)
		if (s->threads[slot].seq && is_off(&s->threads[slot]))
			tell_open(s, slot, now_ns);
	tell_all_times(s, now_ns, true);
	count_losses(s);
}
