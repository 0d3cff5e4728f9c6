/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One thread, from where it stood to our code, and back: code.h says what runs there.
 *
 * The order of the steps is what makes it safe to be killed between any two of them. Registers are set before the
 * signal mask, and the mask is put back before they are: a thread whose tracer is gone either runs our code,
 * which puts everything back, or its own with its own mask and policy.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/inject/inject_priv.h"

#define LOOK_AGAIN_NS (200 * (long)NS_PER_US)
/* One that runs on another CPU has stopped by then; one of ours needs it to stop. */
#define ACTIVE_NS (30 * NS_PER_US)

/* Setting user ids is done by this signal in all threads, and waited for with locks that dlopen() wants. */
#define SIGNAL_SETXID 33

static void sleep_a_little(void)
{
	const struct timespec limit = {.tv_nsec = LOOK_AGAIN_NS};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigtimedwait(&set, NULL, &limit);
}

int divert_wait(pid_t tid, uint64_t until_ns, struct ptrace_event *ret)
{
	uint64_t began_ns = clock_monotonic_ns();

	for (;;) {
		uint64_t now_ns;

		if (ptrace_next(tid, ret))
			return -ESRCH;
		if (ret->what == PTRACE_ENDED || ret->what == PTRACE_EXECED)
			return -ESRCH;
		if (ret->what != PTRACE_NOTHING)
			return 0;
		now_ns = clock_monotonic_ns();
		if (now_ns > until_ns)
			return -ETIMEDOUT;
		if (now_ns > began_ns + ACTIVE_NS)
			sleep_a_little();
	}
}

/* ---- what a thread has besides its registers ---- */

static int get_state(struct divert *d)
{
	struct iovec v = {d->state, sizeof(d->state)};

	if (ptrace(PTRACE_GETREGSET, d->tid, (void *)(uintptr_t)NT_X86_XSTATE, &v))
		return -errno;
	/* Filled to the brim: there may be more. */
	d->state_bytes = v.iov_len;
	return v.iov_len < sizeof(d->state) ? 0 : -E2BIG;
}

static int set_state(struct divert *d)
{
	struct iovec v = {d->state, d->state_bytes};

	return ptrace(PTRACE_SETREGSET, d->tid, (void *)(uintptr_t)NT_X86_XSTATE, &v) ? -errno : 0;
}

static int set_mask(const struct divert *d, uint64_t mask)
{
	return ptrace(PTRACE_SETSIGMASK, d->tid, (void *)sizeof(mask), &mask) ? -errno : 0;
}

static uint64_t bit(int signal)
{
	return 1ull << (signal - 1);
}

/* A signal without a handler that is ignored by default: SIGURG, unless that has one. */
static int quiet_signal(pid_t pid)
{
	static const int signals[] = {SIGURG, SIGWINCH, SIGCHLD};
	unsigned long long caught = 0;
	char path[64], line[256];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "SigCgt:", 7))
			caught = strtoull(line + 7, NULL, 16);
	if (f)
		fclose(f);
	for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++)
		if (!(caught & bit(signals[i])))
			return signals[i];
	return SIGURG;
}

/* ---- its turn on the CPU ---- */

/* Each time that it goes on it would wait behind all others for a CPU, and what waits for it would wait as well. So it runs
 * before them meanwhile, where we may ask for that. Its own policy stands in the block: it takes that back by itself, too. */
static void note_policy(struct divert *d)
{
	int policy = sched_getscheduler(d->tid), bare = policy & ~SCHED_RESET_ON_FORK;

	d->policy = policy >= 0 && (bare == SCHED_OTHER || bare == SCHED_BATCH || bare == SCHED_IDLE) ? policy : -1;
}

/* While it stands in our code. */
static void hurry(struct divert *d)
{
	const struct sched_param first = {.sched_priority = 1};

	/* The flag stays as it was: who has no privileges cannot take it back. */
	if (d->policy >= 0)
		sched_setscheduler(d->tid, SCHED_RR | (d->policy & SCHED_RESET_ON_FORK), &first);
}

static void hurry_no_more(struct divert *d)
{
	const struct sched_param none = {0};

	if (d->policy >= 0)
		sched_setscheduler(d->tid, d->policy, &none);
	d->policy = -1;
}

/* ---- registers of our code ---- */

#if defined(__x86_64__)

/* include/linux/errno.h of the kernel */
#define ERESTARTSYS 512
#define ERESTARTNOINTR 513
#define ERESTARTNOHAND 514
#define ERESTART_RESTARTBLOCK 516
#define SYS_RESTART 219
#define SYSCALL_BYTES 2

/* As the kernel does when a stopped thread goes on: arch_do_signal_or_restart(). */
static void begin_call_again(ptrace_gregs *r)
{
	if ((int64_t)r->orig_rax < 0)
		return;
	switch (-(int64_t)r->rax) {
	case ERESTARTSYS:
	case ERESTARTNOINTR:
	case ERESTARTNOHAND:
		r->rax = r->orig_rax;
		r->rip -= SYSCALL_BYTES;
		break;
	case ERESTART_RESTARTBLOCK:
		r->rax = SYS_RESTART;
		r->rip -= SYSCALL_BYTES;
		break;
	default:
		break;
	}
}

static void resume_regs(const ptrace_gregs *regs, uint64_t *ret)
{
	ptrace_gregs r = *regs;

	begin_call_again(&r);
	const uint64_t order[] = {r.rax, r.rbx, r.rcx, r.rdx, r.rsi, r.rdi, r.rbp, r.rsp, r.r8, r.r9, r.r10, r.r11, r.r12,
		r.r13, r.r14, r.r15, r.rip, r.eflags};

	memcpy(ret, order, sizeof(order));
}

static uint64_t entry(const struct divert *d, const uint8_t *what)
{
	return d->place->address + (uint64_t)(what - inject_code_start);
}

/* The flags: interrupts, and the bit that is always 1; no direction, no trap. */
#define PLAIN_FLAGS 0x202u

static ptrace_gregs code_regs(const struct divert *d, const uint8_t *where)
{
	ptrace_gregs r = d->regs;

	r.orig_rax = (unsigned long long)-1;
	r.rip = entry(d, where);
	r.eflags = PLAIN_FLAGS;
	r.r12 = d->region ? d->region : (unsigned long long)-1;
	r.r13 = (unsigned long long)(int64_t)d->memfd;
	r.r15 = d->region ? d->region + REGION_STATE_AT : 0;
	r.rbx = 1;
	if (where == inject_code_call)
		r.rsp = d->region + REGION_BYTES - 64;
	return r;
}

static void take_prepared(struct divert *d, const ptrace_gregs *r, int64_t *ret_memory, int64_t *ret_memfd)
{
	*ret_memory = (int64_t)r->r12;
	*ret_memfd = (int64_t)r->r13;
}

#define PC(r) ((r)->rip)

#else
#error "written for x86-64"
#endif

/* ---- steps ---- */

static int gone(struct divert *d, struct err *err)
{
	d->ended = true;
	return err_set(err, ESRCH, "process %d ended, or became another program, meanwhile", (int)d->pid);
}

static int crashed(struct divert *d, int signal, struct err *err)
{
	ptrace_gregs r = {0};

	ptrace_get_regs(d->tid, &r);
	return err_set(err, EFAULT, "what was called in process %d got signal %d (%s) at 0x%llx; the thread is put back "
		"where it was, but what it held then is not", (int)d->pid, signal, sigabbrev_np(signal), (unsigned long long)PC(&r));
}

/* 0: to be waited for again; 1: it stands at inject_code_met. */
static int attend(struct divert *d, const struct ptrace_event *e, int quiet, struct err *err)
{
	siginfo_t info = {0};
	ptrace_gregs r;

	switch (e->what) {
	case PTRACE_SIGNALLED:
		if (ptrace_get_regs(d->tid, &r))
			return gone(d, err);
		if (e->signal == quiet && PC(&r) == entry(d, inject_code_met))
			return 1;
		ptrace(PTRACE_GETSIGINFO, d->tid, NULL, &info);
		if (e->signal == quiet)
			ptrace_go(d->tid, 0); /* it has no handler: nothing would happen */
		else if (e->signal != SIGNAL_SETXID && info.si_code > 0)
			return crashed(d, e->signal, err);
		else
			ptrace_go(d->tid, e->signal);
		return 0;
	case PTRACE_GROUP_STOP:
		ptrace_stay(d->tid);
		return 0;
	default:
		ptrace_go(d->tid, 0);
		return 0;
	}
}

/* Lets it run until it stands at inject_code_met. */
static int meet(struct divert *d, int quiet, struct err *err)
{
	uint64_t until_ns = clock_monotonic_ns() + d->call_ns;
	struct ptrace_event e;
	int rc;

	if (ptrace_go(d->tid, 0))
		return gone(d, err);
	for (;;) {
		rc = divert_wait(d->tid, until_ns, &e);
		if (rc == -ETIMEDOUT) {
			hurry_no_more(d);
			d->ended = true;
			return err_set(err, ETIMEDOUT, "what was called in process %d has not returned within %.1f s; it is left "
				"alone, and its thread finds its way back by itself", (int)d->pid,
				(double)d->call_ns / (double)NS_PER_S);
		}
		if (rc)
			return gone(d, err);
		rc = attend(d, &e, quiet, err);
		if (rc)
			return rc < 0 ? rc : 0;
	}
}

static int put_code(struct divert *d, const char *memfd_name, int quiet)
{
	size_t code_bytes = (size_t)(inject_code_end - inject_code_start);
	struct inject_block b = {.magic = INJECT_MAGIC, .tid = (uint64_t)d->tid, .region_bytes = REGION_BYTES,
		.signal = (uint64_t)quiet, .mask = d->mask, .policy = d->policy};
	uint8_t bytes[sizeof(d->place->before)];

	snprintf(b.name, sizeof(b.name), "%s", memfd_name);
	resume_regs(&d->regs, b.resume);
	memcpy(bytes, inject_code_start, code_bytes);
	memcpy(bytes + code_bytes, &b, sizeof(b));
	return inject_poke(d->mem_fd, d->tid, d->place->address, bytes, d->place->size);
}

static int note_region(const struct divert *d, uint64_t region)
{
	size_t at = (size_t)(inject_code_end - inject_code_start) + offsetof(struct inject_block, region);

	return inject_poke(d->mem_fd, d->tid, d->place->address + at, &region, sizeof(region));
}

static int jump(struct divert *d, const uint8_t *where)
{
	ptrace_gregs r = code_regs(d, where);

	return ptrace_set_regs(d->tid, &r);
}

static int written(const struct divert *d, uint64_t at, const void *bytes, size_t size)
{
	return pwrite(d->mem_fd, bytes, size, (off_t)(d->region + at)) == (ssize_t)size ? 0 : -EIO;
}

static int take_memory(struct divert *d, bool wants_memfd, struct err *err)
{
	int64_t memory = 0, memfd = 0;
	ptrace_gregs r;

	if (ptrace_get_regs(d->tid, &r))
		return gone(d, err);
	take_prepared(d, &r, &memory, &memfd);
	if (memfd >= 0)
		d->memfd = (int)memfd;
	if (memory < 0 && memory >= -4095)
		return err_errno(err, (int)-memory, "process %d cannot have %u KiB of memory (mmap)", (int)d->pid,
			REGION_BYTES >> 10);
	d->region = (uint64_t)memory;
	if (wants_memfd && memfd < 0)
		return err_errno(err, (int)-memfd, "process %d cannot make a file in memory (memfd_create)", (int)d->pid);
	if (note_region(d, d->region) || written(d, REGION_STATE_AT, d->state, d->state_bytes))
		return err_set(err, EIO, "memory of process %d cannot be written", (int)d->pid);
	return 0;
}

int divert_begin(struct divert *d, const char *memfd_name, struct err *err)
{
	int quiet = quiet_signal(d->pid), rc;
	uint64_t open = bit(quiet) | bit(SIGSEGV) | bit(SIGBUS) | bit(SIGFPE) | bit(SIGILL) | bit(SIGTRAP) |
		bit(SIGSYS) | bit(SIGNAL_SETXID);

	d->memfd = -1;
	d->region = 0;
	d->ended = false;
	d->quiet = quiet;
	note_policy(d);
	rc = get_state(d);
	if (!rc && ptrace(PTRACE_GETSIGMASK, d->tid, (void *)sizeof(d->mask), &d->mask))
		rc = -errno;
	if (!rc)
		rc = put_code(d, memfd_name, quiet);
	if (!rc)
		rc = jump(d, inject_code_prepare);
	if (rc == -ESRCH)
		return gone(d, err);
	if (rc)
		return err_errno(err, -rc, "thread %d of process %d cannot be diverted", (int)d->tid, (int)d->pid);
	d->diverted = true;
	set_mask(d, REGION_SIGNALS_ALL & ~open);
	hurry(d);
	rc = meet(d, quiet, err);
	return rc ? rc : take_memory(d, *memfd_name, err);
}

int divert_call(struct divert *d, uint64_t errno_location, uint64_t function, const uint64_t args[6], uint64_t *ret,
	struct err *err)
{
	struct inject_call call = {.function = function, .errno_location = errno_location};
	int rc;

	memcpy(call.args, args, sizeof(call.args));
	if (written(d, 0, &call, sizeof(call)) || jump(d, inject_code_call))
		return err_set(err, EIO, "thread %d of process %d cannot be called", (int)d->tid, (int)d->pid);
	rc = meet(d, d->quiet, err);
	if (rc)
		return rc;
	if (pread(d->mem_fd, &call, sizeof(call), (off_t)d->region) != (ssize_t)sizeof(call))
		return err_set(err, EIO, "memory of process %d cannot be read", (int)d->pid);
	*ret = call.result;
	return 0;
}

static int let_go_of_memory(struct divert *d, struct err *err)
{
	int rc;

	if (!d->region && d->memfd < 0)
		return 0;
	if (jump(d, inject_code_finish))
		return gone(d, err);
	rc = meet(d, d->quiet, err);
	if (rc)
		return rc;
	d->region = 0;
	d->memfd = -1;
	note_region(d, 0);
	return 0;
}

int divert_end(struct divert *d, struct err *err)
{
	int rc = 0;

	if (!d->diverted || d->ended)
		return 0;
	rc = let_go_of_memory(d, err);
	if (d->ended)
		return rc;
	hurry_no_more(d);
	set_state(d);
	set_mask(d, d->mask);
	if (ptrace_set_regs(d->tid, &d->regs))
		return gone(d, err);
	d->diverted = false;
	inject_poke(d->mem_fd, d->tid, d->place->address, d->place->before, d->place->size);
	return rc;
}
