/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/ptrace/ptrace_priv.h"

#include <errno.h>
#include <sched.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "os/priority.h"

/* Half a second of a dozen busy threads with deep stacks, while the session opens a large file. */
#define RING_BYTES ((size_t)8 << 20)

/* ---- notes ---- */

struct note *tracer_note(struct tracer *t, enum note_kind kind, const struct traced *th, size_t extra)
{
	struct note *n = note_ring_reserve(&t->ring, sizeof(*n) + extra);

	if (!n) {
		bool sample = kind == NOTE_SAMPLE || kind == NOTE_SHOWN;

		t->lost += sample;
		t->lost_others += !sample && kind != NOTE_LOST;
		return NULL;
	}
	*n = (struct note){
		.kind = kind,
		.pid = th ? th->pid : 0,
		.tid = th ? th->tid : 0,
		.time_ns = clock_monotonic_ns(),
	};
	return n;
}

void tracer_tell(struct tracer *t, struct note *n)
{
	if (note_ring_commit(&t->ring, note_bytes(n)))
		eventfd_write(t->notes_fd, 1);
}

static void tell_losses(struct tracer *t)
{
	struct note *n = t->lost + t->lost_others ? tracer_note(t, NOTE_LOST, NULL, 0) : NULL;

	if (!n)
		return;
	n->count = t->lost;
	n->other_tid = (pid_t)t->lost_others;
	t->lost = t->lost_others = 0;
	tracer_tell(t, n);
}

/* ---- sleeping ---- */

/* What we waited for a CPU so far, after we were woken. */
static uint64_t own_queued_ns(const struct tracer *t, uint64_t *ret_arrivals)
{
	unsigned long long run, queued = 0, arrivals = 0;
	char text[96];
	ssize_t n = t->own_times_fd < 0 ? -1 : pread(t->own_times_fd, text, sizeof(text) - 1, 0);

	text[n > 0 ? n : 0] = '\0';
	if (n > 0 && sscanf(text, "%llu %llu %llu", &run, &queued, &arrivals) != 3)
		queued = arrivals = 0;
	*ret_arrivals = arrivals;
	return queued;
}

/*
 * Sleeps until something happens or the next tick is due. Returns a time at which nothing had
 * happened yet, as late as that can be known: the kernel wakes us right when a thread stops, so what
 * we then waited for a CPU is a part of its pause.
 */
static uint64_t sleep_until(struct tracer *t, uint64_t until_ns)
{
	uint64_t arrivals, before = own_queued_ns(t, &arrivals), now = clock_monotonic_ns();
	uint64_t ns = until_ns > now ? until_ns - now : 0, arrivals_then, queued;
	struct timespec timeout = {(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
	int got = sigtimedwait(&t->waits_for, NULL, until_ns == UINT64_MAX ? NULL : &timeout);

	now = clock_monotonic_ns();
	if (got < 0)
		return now;
	queued = own_queued_ns(t, &arrivals_then) - before;
	/* It was there already, or we slept more than once: it may be as old as our last look. */
	if (arrivals_then != arrivals + 1 || now - queued < t->quiet_ns)
		return t->quiet_ns;
	return now - queued;
}

/* ---- the thread ---- */

static bool answer_request(struct tracer *t)
{
	struct tracer_request *r;
	bool quit;

	pthread_mutex_lock(&t->lock);
	r = t->request;
	quit = t->quit;
	pthread_mutex_unlock(&t->lock);
	if (!r)
		return !quit;
	targets_answer(t, r);
	pthread_mutex_lock(&t->lock);
	t->request = NULL;
	pthread_cond_signal(&t->answered);
	pthread_mutex_unlock(&t->lock);
	return true;
}

/* From half to one and a half of the mean, so that a program whose phases repeat in step with it is
 * not seen always in the same phase. */
static uint64_t draw_period(struct tracer *t)
{
	t->random += 0x9e3779b97f4a7c15ULL;
	return t->period_ns / 2 + hash_u64(t->random) % (t->period_ns + 1);
}

/*
 * Whoever stands stopped waits for us, so we come first where we have the right to: as a realtime
 * thread, since on a busy machine even nice -20 waits for milliseconds. As long as that takes little: else
 * it would be a harm of its own, and we are as quick as an ordinary thread can be.
 */
static void come_first(struct tracer *t)
{
	struct sched_param first = {.sched_priority = 1};

	t->realtime = !sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
	if (!t->realtime)
		priority_raise(&(struct priority){0});
}

static void stand_back(struct tracer *t)
{
	struct sched_param none = {0};

	sched_setscheduler(0, SCHED_OTHER, &none);
	priority_raise(&(struct priority){0});
	t->realtime = false;
}

#define LOAD_CHECK_NS NS_PER_S

/* More than a fifth of a CPU. */
static void check_own_load(struct tracer *t)
{
	uint64_t cpu_ns;

	if (!t->realtime || t->quiet_ns - t->load_since_ns < LOAD_CHECK_NS)
		return;
	cpu_ns = clock_read_ns(CLOCK_THREAD_CPUTIME_ID);
	if (cpu_ns - t->load_cpu_ns > (t->quiet_ns - t->load_since_ns) / 5)
		stand_back(t);
	t->load_cpu_ns = cpu_ns;
	t->load_since_ns = t->quiet_ns;
}

static void tick(struct tracer *t)
{
	tracer_tick(t);
	tell_losses(t);
	check_own_load(t);
	t->tick_ns += draw_period(t);
	if (t->tick_ns < t->quiet_ns) /* late: do not make up for it */
		t->tick_ns = t->quiet_ns + draw_period(t);
}

static void *trace(void *arg)
{
	struct tracer *t = arg;

	pthread_mutex_lock(&t->lock);
	t->tid = gettid();
	pthread_mutex_unlock(&t->lock);
	come_first(t);
	t->own_times_fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	t->quiet_ns = t->tick_ns = t->load_since_ns = clock_monotonic_ns();
	for (uint64_t since = t->quiet_ns; answer_request(t);) {
		tracer_events(t, since);
		since = t->quiet_ns;

		uint64_t wake_ns = snapshot_go_on(t);

		if (t->period_ns && t->tick_ns < wake_ns)
			wake_ns = t->tick_ns;
		if (t->quiet_ns < wake_ns)
			since = sleep_until(t, wake_ns);
		else if (t->period_ns)
			tick(t);
	}
	vec_each(&t->threads, th)
		waits_end(t, *th, false);
	tell_losses(t);
	return NULL;
}

/* ---- the caller's side ---- */

int tracer_init(struct tracer *t, struct err *err)
{
	t->own_times_fd = t->notes_fd = -1;
	t->random = clock_monotonic_ns();
	sigemptyset(&t->waits_for);
	sigaddset(&t->waits_for, SIGCHLD);
	pthread_mutex_init(&t->lock, NULL);
	pthread_cond_init(&t->answered, NULL);
	if (note_ring_init(&t->ring, RING_BYTES))
		return err_nomem(err);
	t->notes_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return t->notes_fd < 0 ? err_errno(err, errno, "eventfd") : 0;
}

void tracer_release(struct tracer *t)
{
	if (t->notes_fd >= 0)
		close(t->notes_fd);
	note_ring_release(&t->ring);
	pthread_cond_destroy(&t->answered);
	pthread_mutex_destroy(&t->lock);
}

int tracer_start(struct tracer *t, struct err *err)
{
	int rc;

	if (t->started)
		return 0;
	/* The kernel tells of stops by SIGCHLD, and not at all while that is ignored. Blocked in all
	 * our threads, it is there for sigtimedwait(). */
	signal(SIGCHLD, SIG_DFL);
	pthread_sigmask(SIG_BLOCK, &t->waits_for, NULL);
	rc = -pthread_create(&t->thread, NULL, trace, t);
	if (rc)
		return err_errno(err, -rc, "starting a thread");
	t->started = true;
	return 0;
}

static void wake(struct tracer *t)
{
	pthread_kill(t->thread, SIGCHLD);
}

int tracer_ask(struct tracer *t, struct tracer_request *r, struct err *err)
{
	r->err = (struct err){0};
	pthread_mutex_lock(&t->lock);
	t->request = r;
	wake(t);
	while (t->request)
		pthread_cond_wait(&t->answered, &t->lock);
	pthread_mutex_unlock(&t->lock);
	if (r->rc && err)
		*err = r->err;
	return r->rc;
}

void tracer_end(struct tracer *t)
{
	if (!t->started)
		return;
	pthread_mutex_lock(&t->lock);
	t->quit = true;
	wake(t);
	pthread_mutex_unlock(&t->lock);
	pthread_join(t->thread, NULL);
	ptrace_tracer_gone(t->tid);
	t->started = false;
	traced_free_all(t);
	if (t->own_times_fd >= 0)
		close(t->own_times_fd);
	t->own_times_fd = -1;
}
