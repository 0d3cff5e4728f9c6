/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/perf/early.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/priority.h"
#include "sample/perf/perf_priv.h"

/* Of the copy's end, read again to see whether it still stands. */
#define OVERLAP_BYTES 16384u
#define WANT_FIRST_BYTES 32768u
#define WANT_MAX_BYTES 131072u
#define WANT_LEFT_SHIFT 20
#define WANT_BYTES_MASK ((1u << WANT_LEFT_SHIFT) - 1)
/* Of the copy's beginning, the same where the stack goes on in another place. */
#define NEAR_BYTES 8192u
#define ADDRESS_MIN 65536u
#define MAX_LINKS 64 /* frame pointers that are followed to that place */
/* Threads whose stacks are read in one go; more than one only where samples come in bunches. */
#define MAX_AT_ONCE 4
/* What was read can wait; but not longer than a new process may live. */
#define KICK_NS (4 * NS_PER_MS)
#define THREAD_STACK_BYTES ((size_t)64 << 10)

/* ---- how much ---- */

static uint64_t *want_slot(struct early_wants *w, pid_t tid)
{
	return &w->slots[(uint32_t)tid % EARLY_WANTS];
}

size_t early_wants_get(const struct early_wants *w, pid_t tid)
{
	uint64_t slot = __atomic_load_n(&w->slots[(uint32_t)tid % EARLY_WANTS], __ATOMIC_RELAXED);

	return slot >> 32 == (uint32_t)tid ? slot & WANT_BYTES_MASK : WANT_FIRST_BYTES;
}

/* Samples left in which to look for another stack. */
static uint64_t wants_left(const struct early_wants *w, pid_t tid)
{
	uint64_t slot = __atomic_load_n(&w->slots[(uint32_t)tid % EARLY_WANTS], __ATOMIC_RELAXED);

	return slot >> 32 == (uint32_t)tid ? slot >> WANT_LEFT_SHIFT & 0xff : 0;
}

bool early_wants_other(const struct early_wants *w, pid_t tid)
{
	return wants_left(w, tid);
}

void early_wants_note(
	struct early_wants *w, pid_t tid, size_t bytes, bool cut, bool switched)
{
	size_t before = early_wants_get(w, tid), want = before - before / 64;
	uint64_t left = wants_left(w, tid);

	left = switched ? 0xff : left - (left > 0);

	if (cut)
		bytes = before * 2 < WANT_FIRST_BYTES ? WANT_FIRST_BYTES : before * 2;
	if (bytes && want < bytes + 4096) /* the next stack may be deeper */
		want = (bytes + 8191) & ~(size_t)4095;
	if (want < 4096)
		want = 0;
	if (want > WANT_MAX_BYTES)
		want = WANT_MAX_BYTES;
	__atomic_store_n(want_slot(w, tid),
		(uint64_t)(uint32_t)tid << 32 | left << WANT_LEFT_SHIFT | want, __ATOMIC_RELAXED);
}

/* ---- samples in the ring ---- */

struct early_sample {
	uint64_t position, time_ns;
	pid_t tid;
	uint64_t sp, copied_end; /* of the stack */
	size_t copied;
	uint64_t other; /* another stack, 0: none is looked for */
};

/* The 8 bytes at an offset of a record; 0 beyond its end. */
struct peeker {
	const struct perf_ring *ring;
	uint64_t position;
	size_t size;
};

static uint64_t word(const struct peeker *p, size_t offset)
{
	return offset < p->size ? perf_ring_word(p->ring, p->position + offset) : 0;
}

/* Where the frame pointers lead out of the copy, whose first byte is at `offset` of the record: 0 when
 * they do not, or only a bit further up. */
static uint64_t find_other(const struct peeker *p, size_t offset, uint64_t fp, const struct early_sample *sample)
{
	uint64_t end = sample->copied_end;

	for (unsigned i = 0; i < MAX_LINKS; i++) {
		uint64_t at = fp - sample->sp;

		if (fp % sizeof(uint64_t) || sample->copied < sizeof(uint64_t))
			return 0;
		if (at > sample->copied - sizeof(uint64_t))
			break;
		fp = word(p, offset + at);
	}
	return fp < ADDRESS_MIN || fp - sample->sp < end - sample->sp + WANT_FIRST_BYTES ? 0 : fp;
}

#define PERIOD_OFFSET 48u

/* The layout is told in decode.c. False: nothing beyond the copy to be read. */
static bool peek_sample(const struct perf_sampler *s, const struct peeker *p, struct early_sample *ret)
{
	size_t at = PERIOD_OFFSET + sizeof(uint64_t);

	ret->position = p->position;
	ret->tid = (pid_t)(word(p, 24) >> 32);
	ret->time_ns = word(p, 32);
	if (s->attr.sample_type & PERF_SAMPLE_CALLCHAIN) {
		uint64_t nr = word(p, at);

		if (nr > p->size / sizeof(uint64_t))
			return false;
		at += (1 + nr) * sizeof(uint64_t);
	}
	if (word(p, at) != PERF_SAMPLE_REGS_ABI_64)
		return false;
	uint64_t fp = word(p, at + (1 + PERF_REG_FP) * sizeof(uint64_t));
	ret->sp = word(p, at + (1 + PERF_REG_SP) * sizeof(uint64_t));
	at += (1 + PERF_REG_COUNT) * sizeof(uint64_t);
	uint64_t size = word(p, at);

	if (size > p->size)
		return false;
	ret->copied = word(p, at + sizeof(uint64_t) + size);
	if (ret->copied > size)
		return false;
	ret->copied_end = ret->sp + ret->copied;
	ret->other = early_wants_other(&s->wants, ret->tid)
			     ? find_other(p, at + sizeof(uint64_t), fp, ret)
			     : 0;
	/* Copied less than asked for: there is no more. */
	return size && (ret->copied == size || ret->other);
}

struct early_batch {
	struct early_sample samples[MAX_AT_ONCE]; /* the last one of each thread, in order */
	size_t count;
};

static void choose(struct early_batch *b, const struct early_sample *sample)
{
	size_t kept = 0;

	for (size_t i = 0; i < b->count; i++)
		if (b->samples[i].tid != sample->tid)
			b->samples[kept++] = b->samples[i];
	if (kept == MAX_AT_ONCE) {
		for (size_t i = 1; i < kept; i++)
			b->samples[i - 1] = b->samples[i];
		kept--;
	}
	b->samples[kept++] = *sample;
	b->count = kept;
}

/* A sample of a running thread: its period is over, and its stack may be wanted. */
static void take_sample(struct perf_sampler *s, struct cpu_ring *r, const struct peeker *p,
	struct early_batch *b)
{
	struct early_sample sample;
	struct watched_event *e = event_table_find(&r->events, word(p, 8));

	if (!e || e->off_cpu)
		return;

	bool more = peek_sample(s, p, &sample);

	if (!perf_is_copy(s, e, sample.tid, word(p, PERIOD_OFFSET)))
		perf_note_sample(r, e, sample.time_ns);
	if (more)
		choose(b, &sample);
}

/* Looks at what is new in the ring. The drain leaves it there for us, but not for ever: when it has
 * been here meanwhile, what we saw may have been overwritten. Where the new part ends. */
static uint64_t look(struct perf_sampler *s, struct cpu_ring *r, struct early_batch *b)
{
	uint64_t head = perf_ring_head(&r->ring), from = r->seen;
	uint64_t tail = perf_ring_tail(&r->ring);

	if (from < tail)
		from = tail;
	b->count = 0;
	pthread_mutex_lock(&r->lock);
	for (uint64_t at = from; at < head;) {
		uint64_t header = perf_ring_word(&r->ring, at);
		size_t size = header >> 48;

		if (size < sizeof(header) || size % 8 || size > head - at)
			break;
		if ((uint32_t)header == PERF_RECORD_SAMPLE)
			take_sample(s, r, &(struct peeker){&r->ring, at, size}, b);
		at += size;
	}
	pthread_mutex_unlock(&r->lock);
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	if (perf_ring_tail(&r->ring) > from)
		b->count = 0;
	return head;
}

/* ---- reading ---- */

static void read_stack(struct cpu_ring *r, const struct early_sample *sample, size_t want)
{
	size_t overlap = sample->copied < OVERLAP_BYTES ? sample->copied : OVERLAP_BYTES;
	struct early_entry *e = early_store_reserve(&r->early, overlap + want);
	uint64_t start = sample->copied_end - overlap;

	if (!e)
		return;

	/* The kernel reads one piece after the other: what of the overlap stands after the rest was
	 * read stood then. */
	struct iovec local[2] = {{e->bytes + overlap, want}, {e->bytes, overlap}};
	struct iovec remote[2] = {{(void *)(uintptr_t)sample->copied_end, want},
		{(void *)(uintptr_t)start, overlap}};
	ssize_t got = process_vm_readv(sample->tid, local, 2, remote, 2, 0);

	if (got < (ssize_t)sizeof(uint64_t))
		return;
	if ((size_t)got < want + overlap) { /* the mapping ends before */
		want = (size_t)got < want ? (size_t)got : want;
		if (process_vm_readv(sample->tid, local + 1, 1, remote + 1, 1, 0) !=
			(ssize_t)overlap)
			return;
	}
	e->position = sample->position;
	e->read_ns = clock_monotonic_ns();
	e->start = start;
	e->size = (uint32_t)(overlap + want);
	early_store_publish(&r->early);
}

/* The same where the frame pointers lead to another stack: all of this one that matters is in the copy. */
static void read_other(struct cpu_ring *r, const struct early_sample *sample, size_t want)
{
	size_t near = sample->copied < NEAR_BYTES ? sample->copied : NEAR_BYTES;
	struct early_entry *e = early_store_reserve(&r->early, near + want);

	if (!e)
		return;

	struct iovec local[2] = {{e->bytes + near, want}, {e->bytes, near}};
	struct iovec remote[2] = {{(void *)(uintptr_t)sample->other, want},
		{(void *)(uintptr_t)sample->sp, near}};
	ssize_t got = process_vm_readv(sample->tid, local, 2, remote, 2, 0);

	if (got < (ssize_t)sizeof(uint64_t))
		return;
	if ((size_t)got < want + near) {
		want = (size_t)got < want ? (size_t)got : want;
		if (process_vm_readv(sample->tid, local + 1, 1, remote + 1, 1, 0) != (ssize_t)near)
			return;
	}
	e->position = sample->position;
	e->read_ns = clock_monotonic_ns();
	e->start = sample->sp;
	e->size = (uint32_t)near;
	e->other_start = sample->other;
	e->other_size = (uint32_t)want;
	early_store_publish(&r->early);
}

/* Has the drain called, soon or now. */
static void kick(struct perf_sampler *s, bool now)
{
	struct itimerspec timer = {.it_value.tv_nsec = now ? 1 : KICK_NS};

	if (!__atomic_exchange_n(&s->kicked, true, __ATOMIC_ACQ_REL) || now)
		timerfd_settime(s->timer_fd, 0, &timer, NULL);
}

static void work(struct perf_sampler *s, struct cpu_ring *r)
{
	struct early_batch batch;
	uint64_t head = look(s, r, &batch);

	for (size_t i = batch.count; i-- > 0;) {
		const struct early_sample *sample = &batch.samples[i];
		size_t want = early_wants_get(&s->wants, sample->tid);

		if (sample->other)
			read_other(r, sample, want < WANT_FIRST_BYTES ? WANT_FIRST_BYTES : want);
		else if (want)
			read_stack(r, sample, want);
	}
	__atomic_store_n(&r->seen, head, __ATOMIC_RELEASE);
	perf_jitter(s, r);
	kick(s, early_store_is_filling(&r->early));
}

bool early_is_due(const struct cpu_ring *r, uint64_t position)
{
	return r->has_thread && position >= __atomic_load_n(&r->seen, __ATOMIC_ACQUIRE);
}

/* ---- the threads ---- */

static void *run(void *arg)
{
	struct cpu_ring *r = arg;
	struct perf_sampler *s = r->sampler;
	struct pollfd fds[2] = {
		{.fd = r->fd, .events = POLLIN},
		{.fd = s->stop_fd, .events = POLLIN},
	};
	struct priority before;

	priority_raise(&before);
	while (!fds[1].revents) {
		if (poll(fds, 2, -1) < 0 && errno != EINTR)
			break;
		work(s, r);
	}
	return NULL;
}

static int start_thread(struct cpu_ring *r)
{
	pthread_attr_t attr;
	cpu_set_t cpus;
	int rc;

	if (r->cpu >= CPU_SETSIZE)
		return -EINVAL;
	CPU_ZERO(&cpus);
	CPU_SET(r->cpu, &cpus);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
	pthread_attr_setaffinity_np(&attr, sizeof(cpus), &cpus);
	rc = pthread_create(&r->thread, &attr, run, r);
	pthread_attr_destroy(&attr);
	return -rc;
}

static void start(struct perf_sampler *s, struct cpu_ring *r)
{
	r->sampler = s;
	r->seen = r->ring.tail;
	if (early_store_init(&r->early))
		return;
	r->has_thread = true;
	if (!epoll_ctl(s->epoll_fd, EPOLL_CTL_DEL, r->fd, NULL) && !start_thread(r))
		return;
	r->has_thread = false;
	early_store_release(&r->early);
	epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, r->fd, &(struct epoll_event){.events = EPOLLIN});
}

void early_start(struct perf_sampler *s)
{
	struct epoll_event ready = {.events = EPOLLIN};
	sigset_t all, before;

	if (s->timer_fd >= 0)
		return;
	s->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	s->stop_fd = eventfd(0, EFD_CLOEXEC);
	if (s->timer_fd < 0 || s->stop_fd < 0 ||
		epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->timer_fd, &ready))
		return;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	vec_each(&s->rings, r)
		if (s->options.on_cpu && !r->copies)
			start(s, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void early_stop(struct perf_sampler *s)
{
	uint64_t one = 1;

	if (s->stop_fd < 0 || write(s->stop_fd, &one, sizeof(one)) != sizeof(one))
		return;
	vec_each(&s->rings, r) {
		if (r->has_thread)
			pthread_join(r->thread, NULL);
		r->has_thread = false;
	}
}
