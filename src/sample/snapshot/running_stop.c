/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A thread that runs, by stopping it for some microseconds.
 *
 * A thread of ours does it that ends when it is done: then the kernel lets go of what it traced, stopped or
 * not, and whatever it was asked for. So no way out of here leaves anyone stopped.
 */
#include "sample/snapshot/running_priv.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "os/rights.h"
#include "os/thread_wait.h"
#include "sample/ptrace/user_stack.h"

/* Between the stops of a thread; as long it is looked after all the same, for a signal stops it as well. */
#define SPACING_NS (3 * NS_PER_MS)

/* One that runs on another CPU has stopped by then; one of ours needs it to stop. */
#define ACTIVE_NS (50 * NS_PER_US)
#define LOOK_AGAIN_NS (100 * (long)NS_PER_US)

struct stopper {
	const struct running_thread *thread;
	struct running_samples *ret;
	struct running_cost *cost;
	struct err *err;
	int rc;
	pid_t tracer;
	struct python_stopped *python; /* NULL: its Python frames are not copied */
	uint8_t *bytes;    /* RUNNING_STACK_BYTES */
	uint64_t *chains;  /* PYTHON_STOPPED_ROOM */
	uint64_t quiet_ns; /* then it was not known to stand stopped */
	uint64_t until_ns; /* for all of it */
	bool over;         /* it has ended, or is another program, or was stopped by others */
};

static bool runs(const struct running_thread *thread)
{
	struct thread_wait wait = {0};

	thread_wait_read(thread->pid, thread->tid, &wait, NULL);
	return wait.state == 'R';
}

static void go(struct stopper *s, int signal)
{
	struct running_cost *cost = s->cost;
	uint64_t now_ns;

	if (ptrace_go(s->thread->tid, signal))
		return;
	now_ns = clock_monotonic_ns();
	cost->stops++;
	cost->pause_ns += now_ns - s->quiet_ns;
	if (now_ns - s->quiet_ns > cost->longest_ns)
		cost->longest_ns = now_ns - s->quiet_ns;
}

static void copy(struct stopper *s)
{
	struct raw_stack stack = {0};
	uint64_t time_ns = clock_monotonic_ns();
	size_t got, chain_bytes = 0;
	ptrace_gregs regs;

	if (ptrace_get_regs(s->thread->tid, &regs)) {
		go(s, 0);
		return;
	}
	got = ptrace_copy_stack(s->thread->tid, &regs, &stack.regs, s->bytes, RUNNING_STACK_BYTES);
	if (s->python)
		chain_bytes = python_stopped_copy(s->python, s->thread->pid, s->thread->tid,
			ptrace_thread_pointer(&regs), s->chains);
	if (ptrace_restart(&regs, false)) {
		ptrace_set_regs(s->thread->tid, &regs);
		s->cost->restarted_calls++;
	}
	go(s, 0);
	stack.has_regs = stack.regs.known;
#if defined(__x86_64__)
	stack.dump = (struct unwind_dump){stack.regs.value[UNWIND_X86_RSP], s->bytes, got};
#else
	stack.dump = (struct unwind_dump){stack.regs.value[UNWIND_A64_SP], s->bytes, got};
#endif
	if (running_keep(s->ret, s->thread, time_ns, &stack))
		s->rc = err_nomem(s->err);
	else
		running_keep_chains(s->ret, s->chains, chain_bytes);
}

/* Sees to what has happened to the thread; what it was. */
static enum ptrace_what attend(struct stopper *s, bool wanted)
{
	struct ptrace_event e;

	if (ptrace_next(s->thread->tid, &e)) {
		s->over = true;
		return PTRACE_ENDED;
	}
	switch (e.what) {
	case PTRACE_NOTHING:
		s->quiet_ns = clock_monotonic_ns();
		break;
	case PTRACE_STOPPED:
		if (wanted)
			copy(s);
		else
			go(s, 0);
		break;
	case PTRACE_SIGNALLED:
		go(s, e.signal);
		break;
	case PTRACE_GROUP_STOP:
		ptrace_stay(s->thread->tid);
		s->over = true;
		break;
	case PTRACE_ENDED:
		s->over = true;
		break;
	case PTRACE_STARTED:
	case PTRACE_EXECED:
		s->over = true;
		go(s, 0);
		break;
	}
	return e.what;
}

/* Sleeps until something may have happened. The kernel tells of it by SIGCHLD, which comes here while we wait for it,
 * though not at other times: then it takes the time limit. */
static void sleep_a_little(void)
{
	const struct timespec limit = {.tv_nsec = LOOK_AGAIN_NS};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigtimedwait(&set, NULL, &limit);
}

/* Asks it to stop and waits for that, a while. */
static void stop_once(struct stopper *s)
{
	uint64_t began_ns = clock_monotonic_ns();
	enum ptrace_what what;

	s->quiet_ns = began_ns;
	if (!runs(s->thread) || ptrace_interrupt(s->thread->tid)) {
		s->over = true;
		return;
	}
	while (!s->over && clock_monotonic_ns() < s->until_ns) {
		what = attend(s, true);
		if (what == PTRACE_STOPPED)
			return;
		if (what == PTRACE_SIGNALLED) /* the kernel forgets that it was asked */
			ptrace_interrupt(s->thread->tid);
		else if (s->quiet_ns > began_ns + ACTIVE_NS)
			sleep_a_little();
	}
	s->over = true;
}

static void wait_a_while(struct stopper *s)
{
	uint64_t until_ns = clock_monotonic_ns() + SPACING_NS;

	while (!s->over && clock_monotonic_ns() < until_ns) {
		attend(s, false);
		sleep_a_little();
	}
}

static void *trace(void *arg)
{
	struct sched_param first = {.sched_priority = 1};
	struct stopper *s = arg;
	sigset_t set;
	int rc;

	s->tracer = gettid();
	s->until_ns = clock_monotonic_ns() + RUNNING_DEADLINE_NS;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	/* Who stands stopped waits for us. Refused to most, and done without then. */
	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
	if (!runs(s->thread))
		return NULL;
	rc = ptrace_seize(s->thread->tid, false);
	if (rc) {
		s->rc = rc == -ESRCH ? 0 : rights_trace_refused(-rc, s->thread->pid, s->err);
		return NULL;
	}
	for (unsigned i = 0; i < RUNNING_STOPS && !s->over; i++) {
		if (i)
			wait_a_while(s);
		stop_once(s);
	}
	return NULL;
}

static void release(struct stopper *s)
{
	free(s->bytes);
	free(s->chains);
}

int running_stop(const struct running_thread *thread, struct python_stopped *python,
	struct running_samples *ret, struct running_cost *cost, struct err *err)
{
	struct stopper s = {.thread = thread, .ret = ret, .cost = cost, .err = err, .python = python,
		.bytes = malloc(RUNNING_STACK_BYTES), .chains = malloc(PYTHON_STOPPED_ROOM)};
	pthread_t tracer;
	int code;

	if (!s.bytes || !s.chains) {
		release(&s);
		return err_nomem(err);
	}
	code = pthread_create(&tracer, NULL, trace, &s);
	if (code) {
		release(&s);
		return err_errno(err, code, "starting a thread");
	}
	pthread_join(tracer, NULL);
	ptrace_tracer_gone(s.tracer);
	release(&s);
	return s.rc;
}
