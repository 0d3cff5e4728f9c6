/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which thread to divert: one after the other is stopped for some microseconds, its registers and the top of its stack are
 * copied, and it goes on; then the copy is walked. The one that stands well is stopped again, and taken when it
 * stands as before. One that computes does not, so it is walked where it stands, by tables that are known by then.
 *
 * Everything is done by a thread of ours that ends with it: whatever happens, the kernel then lets go of all it traced.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/inject/inject_priv.h"
#include "os/rights.h"
#include "os/thread_wait.h"
#include "os/usage.h"

/* Behind others on a busy CPU, or where its group has used up its time, a thread comes to its stop late. */
#define STOP_NS (500 * NS_PER_MS)
/* include/linux/errno.h of the kernel */
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define MOST_SECONDS (1u << 30)
static const struct timespec BETWEEN = {.tv_nsec = 2 * NS_PER_MS};

struct candidate {
	pid_t tid;
	bool waits;
	int number;        /* the call it waits in */
	int order;         /* lower ones first */
	uint64_t since_ns; /* it has waited since about then; 0: not known */
};
VEC_TYPE(candidates, struct candidate);

struct search {
	struct inject *i;
	const struct inject_act *act;
	struct err *err;
	int rc;
	bool done;
	bool anew; /* a thread does not come to its stop: the tracer ends, which lets go of it, and another one goes on */
	pid_t tracer;
	uint64_t until_ns;
	uint64_t asked_ns;        /* the stop was asked for, */
	uint64_t stopped_ns;      /* and seen */
	uint64_t queued_ns;       /* between these, it waited for a CPU that others had */
	char why[SAFE_WHY_BYTES]; /* of the last one that was looked at */
	pid_t why_tid;
	int number;               /* the call that the thread was in when it was copied; -1 */
};

/* ---- a stop ---- */

/* So long has the thread waited for a CPU in all its life; 0: not known. */
static uint64_t queued_ns(const struct search *s, pid_t tid)
{
	char path[64], text[96];
	uint64_t ran, queued;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", (int)s->i->pid, (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	return sscanf(text, "%" SCNu64 " %" SCNu64, &ran, &queued) == 2 ? queued : 0;
}

/* What others on its CPU make it wait for before it stands is not our doing. */
static uint64_t stop_ns(const struct search *s)
{
	return clock_monotonic_ns() - s->asked_ns - s->queued_ns;
}

static void stands(struct search *s, pid_t tid, uint64_t before_ns)
{
	uint64_t now_ns = queued_ns(s, tid), most_ns = s->stopped_ns - s->asked_ns;

	s->queued_ns = now_ns > before_ns && before_ns ? now_ns - before_ns : 0;
	if (s->queued_ns > most_ns)
		s->queued_ns = most_ns;
}

static void count_stop(struct search *s)
{
	struct inject_stats *stats = &s->i->stats;
	uint64_t took_ns = stop_ns(s);

	stats->stops++;
	stats->total_ns += took_ns;
	if (took_ns > stats->longest_ns)
		stats->longest_ns = took_ns;
}

/* It would stop later, and nobody would let it go on. */
static int not_stopped(struct search *s, pid_t tid)
{
	snprintf(s->why, sizeof(s->why), "not to be stopped: it waits in the kernel, or for a CPU");
	s->why_tid = tid;
	s->anew = true;
	return -EAGAIN;
}

/* 0; -EAGAIN: it is not to be had. */
static int stop(struct search *s, pid_t tid)
{
	uint64_t before_ns = queued_ns(s, tid);
	struct ptrace_event e;
	int rc = ptrace_seize(tid, false);

	if (rc == -ESRCH)
		return -EAGAIN;
	if (rc)
		return rights_trace_refused(-rc, s->i->pid, s->err);
	s->asked_ns = clock_monotonic_ns();
	if (ptrace_interrupt(tid))
		return -EAGAIN;
	for (;;) {
		rc = divert_wait(tid, s->asked_ns + STOP_NS, &e);
		if (rc == -ETIMEDOUT)
			return not_stopped(s, tid);
		if (rc)
			return -EAGAIN;
		s->stopped_ns = clock_monotonic_ns();
		if (e.what == PTRACE_STOPPED) {
			stands(s, tid, before_ns);
			return 0;
		}
		if (e.what == PTRACE_GROUP_STOP) {
			ptrace(PTRACE_DETACH, tid, NULL, NULL);
			return -EAGAIN;
		}
		/* The kernel forgets that it was asked. */
		ptrace_go(tid, e.what == PTRACE_SIGNALLED ? e.signal : 0);
		ptrace_interrupt(tid);
	}
}

static void let_go(struct search *s, pid_t tid)
{
	ptrace(PTRACE_DETACH, tid, NULL, NULL);
	count_stop(s);
}

static bool copy(const struct candidate *c, struct safe_stack *ret)
{
	struct unwind_regs regs;

	if (ptrace_get_regs(c->tid, &ret->regs))
		return false;
	ret->size = ptrace_copy_stack(c->tid, &ret->regs, &regs, ret->bytes, sizeof(ret->bytes));
	return ret->size > 0;
}

/* ---- calls that would return EINTR ---- */

#if defined(__x86_64__)

/* -1: in none. */
static int call_of(const ptrace_gregs *r)
{
	return (int64_t)r->orig_rax < 0 ? -1 : (int)r->orig_rax;
}

static bool may_be_left(const ptrace_gregs *r)
{
	const uint64_t args[6] = {r->rdi, r->rsi, r->rdx, r->r10, r->r8, r->r9};

	return call_of(r) < 0 || safe_syscall(call_of(r), args);
}

/* These calls leave what was left of their time limit when they were broken off. The stop counts as well. */
static void shorten(const struct search *s, pid_t tid, const ptrace_gregs *r)
{
	uint64_t at = r->orig_rax == SYS_ppoll ? r->rdx : r->r8, unit = r->orig_rax == SYS_select ? NS_PER_US : 1;
	uint64_t stopped_ns = clock_monotonic_ns() - s->stopped_ns, left_ns;
	uint64_t limit[2]; /* seconds, and parts of them */

	if ((r->orig_rax != SYS_ppoll && r->orig_rax != SYS_pselect6 && r->orig_rax != SYS_select) ||
		(int64_t)r->rax != -ERESTARTNOHAND || !at || !proc_read_memory(tid, at, limit, sizeof(limit)) ||
		limit[0] > MOST_SECONDS)
		return;
	left_ns = limit[0] * NS_PER_S + limit[1] * unit;
	left_ns = left_ns > stopped_ns ? left_ns - stopped_ns : 0;
	limit[0] = left_ns / NS_PER_S;
	limit[1] = left_ns % NS_PER_S / unit;
	if (pwrite(s->i->mem_fd, limit, sizeof(limit), (off_t)at) != (ssize_t)sizeof(limit))
		return; /* then it waits for a little longer */
}

/* A call that is begun again has what is left of its time limit: when it stands stopped no longer. */
static void pass_time(const struct search *s, pid_t tid, ptrace_gregs *r, uint64_t since_ns)
{
	struct inject_part *part = &s->i->part;
	bool epoll = r->orig_rax == SYS_epoll_wait || r->orig_rax == SYS_epoll_pwait;
	uint64_t now_ns = clock_monotonic_ns(), waited_ns;

	shorten(s, tid, r);
	if (!epoll || (int64_t)r->rax != -ERESTARTNOHAND || (int)r->r10 <= 0 || !since_ns)
		return;
	/* Parts of milliseconds are kept for the next stop, so they do not add up over many. */
	waited_ns = now_ns - since_ns + (part->tid == tid ? part->ns : 0);
	*part = (struct inject_part){tid, waited_ns % NS_PER_MS};
	r->r10 = waited_ns / NS_PER_MS < (uint64_t)r->r10 ? (uint64_t)r->r10 - waited_ns / NS_PER_MS : 0;
}

#define PC(r) ((r)->rip)
#define SP(r) ((r)->rsp)
#define RESULT(r) ((r)->rax)

#else
#error "written for x86-64"
#endif

/* A restartable sequence (rseq(2)) that is left cannot be gone on with. */
static bool in_rseq(pid_t tid, uint64_t pc)
{
#if defined(PTRACE_GET_RSEQ_CONFIGURATION)
	struct __ptrace_rseq_configuration c = {0};
	struct { uint32_t version, flags; uint64_t start, bytes, abort; } section;
	uint64_t at = 0;

	if (ptrace(PTRACE_GET_RSEQ_CONFIGURATION, tid, (void *)sizeof(c), &c) <= 0 || !c.rseq_abi_pointer ||
		!proc_read_memory(tid, c.rseq_abi_pointer + 8, &at, sizeof(at)) || !at ||
		!proc_read_memory(tid, at, &section, sizeof(section)))
		return false;
	return pc >= section.start && pc - section.start < section.bytes;
#else
	return false;
#endif
}

/* ---- one thread ---- */

static bool same(const struct safe_stack *a, const struct safe_stack *b)
{
	return PC(&a->regs) == PC(&b->regs) && SP(&a->regs) == SP(&b->regs) && a->size == b->size &&
		!memcmp(a->bytes, b->bytes, a->size);
}

static bool stands_well(struct search *s, const struct candidate *c, const struct safe_stack *stack)
{
	s->why_tid = c->tid;
	return safe_stand(&s->i->modules, &s->i->walker, s->i->pid, c->tid, stack, s->number, s->why);
}

/* From a stop in which nothing was done to it. */
static void go_on(struct search *s, struct candidate *c, ptrace_gregs *regs)
{
	ptrace_gregs before = *regs;

	ptrace_restart(regs, false);
	pass_time(s, c->tid, regs, c->since_ns);
	if (memcmp(regs, &before, sizeof(before)))
		ptrace_set_regs(c->tid, regs);
	let_go(s, c->tid);
	/* The call is a new one, with the rest of the time. */
	if (c->since_ns)
		c->since_ns = clock_monotonic_ns();
}

/* Stopped, and let go at once: would it do? */
static bool look(struct search *s, struct candidate *c)
{
	struct safe_stack *seen = &s->i->seen;
	ptrace_gregs regs;
	bool good;

	s->rc = stop(s, c->tid);
	if (s->rc)
		return false;
	good = copy(c, seen);
	regs = seen->regs;
	s->number = call_of(&regs);
	if (!may_be_left(&regs)) {
		snprintf(s->why, sizeof(s->why), "in a system call that cannot be left (%d)", s->number);
		s->why_tid = c->tid;
		good = false;
	}
	go_on(s, c, &regs);
	return good && stands_well(s, c, seen);
}

static void divert(struct search *s, const struct candidate *c)
{
	struct inject *i = s->i;
	struct divert *d = &i->divert;
	struct err late = {0};
	int rc;

	*d = (struct divert){.pid = i->pid, .tid = c->tid, .mem_fd = i->mem_fd, .place = &i->place,
		.call_ns = i->options.call_ns, .regs = i->now.regs};
	s->done = true;
	ptrace_restart(&d->regs, false);
	s->rc = divert_begin(d, s->act->memfd_name, s->err);
	if (!s->rc)
		s->rc = s->act->act(i, s->act->ctx, s->err);
	pass_time(s, c->tid, &d->regs, c->since_ns);
	rc = divert_end(d, &late);
	if (!s->rc && rc) {
		s->rc = rc;
		if (s->err)
			*s->err = late;
	}
	i->stats.diversions++;
	if (!d->ended)
		ptrace(PTRACE_DETACH, c->tid, NULL, NULL);
	count_stop(s);
	i->stats.last_ns = stop_ns(s);
	i->stats.last_tid = c->tid;
	i->stats.last_ran = s->number < 0;
}

static void take(struct search *s, struct candidate *c)
{
	struct safe_stack *now = &s->i->now;
	bool good;

	s->rc = stop(s, c->tid);
	if (s->rc)
		return;
	good = copy(c, now);
	if (good && !same(now, &s->i->seen)) {
		s->number = call_of(&now->regs);
		good = may_be_left(&now->regs) && stands_well(s, c, now);
	}
	if (good && in_rseq(c->tid, PC(&now->regs))) {
		snprintf(s->why, sizeof(s->why), "in a restartable sequence");
		good = false;
	}
	if (good) {
		divert(s, c);
		return;
	}
	go_on(s, c, &now->regs);
}

/* ---- all of them ---- */

static uint64_t waiting_since(struct inject *i, pid_t tid)
{
	struct usage_sched sched;
	uint64_t ago_ns;

	if (usage_sched(i->pid, tid, &sched, NULL) || !sched.last_ns)
		return 0;
	ago_ns = sched_clock_ago(&i->clock, sched.cpu, sched.last_ns);
	return ago_ns == UINT64_MAX ? 0 : clock_monotonic_ns() - ago_ns;
}

/* Calls that the kernel begins again by itself come first, those whose time limit we have to find out last. */
static int order_of(const struct thread_wait *w)
{
	bool epoll = w->syscall == SYS_epoll_pwait;

#if defined(__x86_64__)
	epoll |= w->syscall == SYS_epoll_wait;
#endif
	if (!w->blocked)
		return 3;
	return epoll ? (int)w->args[3] < 0 ? 1 : 2 : 0;
}

static int take_candidate(struct search *s, pid_t tid, struct candidates *ret)
{
	struct candidate c = {.tid = tid, .number = -1};
	struct thread_wait w;
	int rc = thread_wait_read(s->i->pid, tid, &w, NULL);

	if (rc == -EACCES || rc == -EPERM)
		return rights_trace_refused(-rc, s->i->pid, s->err);
	if (rc || (w.state != 'R' && w.state != 'S'))
		return 0;
	if (w.blocked && (w.syscall < 0 || !safe_syscall(w.syscall, w.args))) {
		snprintf(s->why, sizeof(s->why), "in a system call that cannot be left (%d)", w.syscall);
		s->why_tid = tid;
		return 0;
	}
	c.waits = w.blocked;
	c.number = w.blocked ? w.syscall : -1;
	c.order = order_of(&w);
	if (c.order == 2)
		c.since_ns = waiting_since(s->i, tid);
	return vec_push(ret, c) ? err_nomem(s->err) : 0;
}

static int by_order(const void *a, const void *b)
{
	const struct candidate *x = a, *y = b;
	int order = (x->order > y->order) - (x->order < y->order);

	return order ? order : (x->tid > y->tid) - (x->tid < y->tid);
}

static int list(struct search *s, struct candidates *ret)
{
	struct pid_vec tids = {0};
	int rc = proc_threads(s->i->pid, &tids, s->err);

	ret->len = 0;
	vec_each(&tids, tid)
		if (!rc)
			rc = take_candidate(s, *tid, ret);
	vec_release(&tids);
	if (!rc && ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), by_order);
	return rc;
}

/* Whether the thread that one who died has diverted has its last instructions there still to do: its memory is given back by
 * then. */
static bool last_is_there(struct search *s)
{
	const struct inject_place *place = &s->i->place;
	struct candidate c = {.tid = place->last};
	struct thread_wait w;
	ptrace_gregs regs;
	uint64_t pc = 0;
	int rc;

	if (!c.tid || thread_wait_read(s->i->pid, c.tid, &w, NULL))
		return false;
	if (w.blocked) {
		pc = w.pc;
	} else {
		rc = stop(s, c.tid);
		if (rc)
			return true;
		if (!ptrace_get_regs(c.tid, &regs)) {
			pc = PC(&regs);
			go_on(s, &c, &regs);
		}
	}
	snprintf(s->why, sizeof(s->why), "in what a sonde that was killed has put there");
	s->why_tid = c.tid;
	return pc >= place->address && pc < place->address + place->size;
}

/* The last words before giving up. */
static int no_safe_point(struct search *s)
{
	return err_set(s->err, EAGAIN, "no thread of process %d could be diverted safely within %.1f s; the last one, %d, was %s",
		(int)s->i->pid, (double)s->i->options.search_ns / (double)NS_PER_S, (int)s->why_tid,
		*s->why ? s->why : "not to be stopped");
}

static bool is_over(const struct search *s)
{
	return s->done || s->anew || (s->rc && s->rc != -EAGAIN);
}

static void search(struct search *s)
{
	struct candidates all = {0};

	while (!is_over(s)) {
		if (last_is_there(s)) {
			all.len = 0;
		} else {
			s->i->place.last = 0;
			s->rc = list(s, &all);
		}
		vec_each(&all, c) {
			if (is_over(s))
				break;
			if (look(s, c))
				take(s, c);
		}
		if (s->done || (s->rc && s->rc != -EAGAIN))
			break;
		if (clock_monotonic_ns() > s->until_ns) {
			s->rc = no_safe_point(s);
			s->anew = false;
			break;
		}
		if (!s->anew)
			nanosleep(&BETWEEN, NULL);
	}
	vec_release(&all);
}

/* ---- seccomp ---- */

#define MOST_FILTERS 64u

/* How many filters threads have that were judged, and others. */
struct judged {
	bool good[MOST_FILTERS], unseen[MOST_FILTERS];
};

/* Where going on with a call is what the filter forbids, the call is made anew. */
static void restart_otherwise(ptrace_gregs *regs, const struct inject_filters *filters)
{
	if (call_of(regs) >= 0 && (int64_t)RESULT(regs) == -ERESTART_RESTARTBLOCK && !inject_filters_restart(filters))
		RESULT(regs) = (unsigned long long)-ERESTARTNOHAND;
}

/* 0; -EAGAIN: it cannot be stopped now. */
static int judge_thread(struct search *s, pid_t tid)
{
	struct inject_filters filters = {0};
	struct candidate c = {.tid = tid};
	struct thread_wait w;
	ptrace_gregs regs;
	int rc = thread_wait_read(s->i->pid, tid, &w, NULL);

	if (rc || (w.blocked && (w.syscall < 0 || !safe_syscall(w.syscall, w.args))))
		return -EAGAIN;
	if (order_of(&w) == 2)
		c.since_ns = waiting_since(s->i, tid);
	rc = stop(s, tid);
	if (rc)
		return rc;
	if (ptrace_get_regs(tid, &regs))
		return -EAGAIN;
	rc = inject_filters_read(tid, &filters, s->err);
	restart_otherwise(&regs, &filters);
	ptrace_set_regs(tid, &regs);
	go_on(s, &c, &regs);
	if (!rc)
		rc = inject_filters_judge(&filters, tid, s->err);
	inject_filters_release(&filters);
	return rc == -ESRCH ? -EAGAIN : rc;
}

static int judge_one(struct search *s, pid_t tid, struct judged *j)
{
	unsigned filters = 0;
	int mode = seccomp_mode(s->i->pid, tid, &filters), rc;

	if (mode <= 0)
		return 0;
	if (mode == 1)
		return err_set(s->err, EACCES, "thread %d is under strict seccomp: it may read, write and exit, and nothing else",
			(int)tid);
	filters = filters < MOST_FILTERS ? filters : MOST_FILTERS - 1;
	rc = judge_thread(s, tid);
	if (!rc)
		j->good[filters] = true;
	else if (rc == -EAGAIN)
		j->unseen[filters] = true;
	return rc == -EAGAIN ? 0 : rc;
}

/* Those that cannot be stopped now have the filters of others with as many: they are inherited. */
static bool all_judged(const struct judged *j)
{
	for (unsigned i = 0; i < MOST_FILTERS; i++)
		if (j->unseen[i] && !j->good[i])
			return false;
	return true;
}

static void judge(struct search *s)
{
	struct pid_vec tids = {0};

	for (;;) {
		struct judged j = {0};

		s->rc = proc_threads(s->i->pid, &tids, s->err);
		vec_each(&tids, tid)
			if (!s->rc && !s->anew)
				s->rc = judge_one(s, *tid, &j);
		if (s->rc || s->anew || all_judged(&j))
			break;
		if (clock_monotonic_ns() > s->until_ns) {
			s->rc = err_set(s->err, EAGAIN, "the seccomp filters of process %d could not be read within %.1f s: its threads are in "
				"calls that cannot be interrupted unnoticed", (int)s->i->pid,
				(double)s->i->options.search_ns / (double)NS_PER_S);
			break;
		}
		nanosleep(&BETWEEN, NULL);
	}
	vec_release(&tids);
}

static void *trace(void *arg)
{
	struct sched_param first = {.sched_priority = 1};
	struct search *s = arg;

	s->tracer = gettid();
	/* Who stands stopped waits for us. Refused to most, and done without then. */
	sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK, &first);
	if (s->act)
		search(s);
	else
		judge(s);
	return NULL;
}

static int run(struct inject *i, const struct inject_act *act, struct err *err)
{
	struct search s = {.i = i, .act = act, .err = err, .until_ns = clock_monotonic_ns() + i->options.search_ns};
	sigset_t child, before;
	pthread_t thread;
	int rc;

	/* The kernel drops it, and wakes nobody, where the thread that joins would ignore it. */
	sigemptyset(&child);
	sigaddset(&child, SIGCHLD);
	pthread_sigmask(SIG_BLOCK, &child, &before);
	do {
		s.anew = false;
		rc = pthread_create(&thread, NULL, trace, &s);
		if (!rc) {
			pthread_join(thread, NULL);
			ptrace_tracer_gone(s.tracer);
		}
	} while (!rc && s.anew && clock_monotonic_ns() <= s.until_ns + NS_PER_S);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc ? err_errno(err, rc, "a thread to trace with") : s.rc;
}

int inject_divert(struct inject *i, const struct inject_act *act, struct err *err)
{
	return run(i, act, err);
}

int inject_judge_filters(struct inject *i, struct err *err)
{
	struct pid_vec tids = {0};
	int rc = proc_threads(i->pid, &tids, err);
	bool any = false;
	unsigned count;

	if (!rc)
		vec_each(&tids, tid)
			any |= seccomp_mode(i->pid, *tid, &count) > 0;
	vec_release(&tids);
	return any ? run(i, NULL, err) : rc;
}
