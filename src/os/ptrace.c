/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/ptrace.h"

#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"

static int request(int what, pid_t tid, uintptr_t addr, uintptr_t data)
{
	return ptrace((enum __ptrace_request)what, tid, (void *)addr, (void *)data) ? -errno : 0;
}

int ptrace_seize(pid_t tid, bool follow)
{
	unsigned options = PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK;

	return request(PTRACE_SEIZE, tid, 0, PTRACE_O_TRACEEXEC | (follow ? options : 0));
}

int ptrace_interrupt(pid_t tid)
{
	return request(PTRACE_INTERRUPT, tid, 0, 0);
}

int ptrace_go(pid_t tid, int signal)
{
	return request(PTRACE_CONT, tid, 0, (uintptr_t)signal);
}

int ptrace_stay(pid_t tid)
{
	return request(PTRACE_LISTEN, tid, 0, 0);
}

int ptrace_get_regs(pid_t tid, ptrace_gregs *ret)
{
	struct iovec v = {ret, sizeof(*ret)};

	return request(PTRACE_GETREGSET, tid, NT_PRSTATUS, (uintptr_t)&v);
}

int ptrace_set_regs(pid_t tid, const ptrace_gregs *regs)
{
	struct iovec v = {(void *)(uintptr_t)regs, sizeof(*regs)};

	return request(PTRACE_SETREGSET, tid, NT_PRSTATUS, (uintptr_t)&v);
}

int ptrace_message(pid_t tid, unsigned long *ret)
{
	return request(PTRACE_GETEVENTMSG, tid, 0, (uintptr_t)ret);
}

/* ptrace(2), "Stopped states" and "PTRACE_EVENT stops". */
static enum ptrace_what what_of(int status)
{
	int signal = WSTOPSIG(status);

	if (!WIFSTOPPED(status))
		return PTRACE_ENDED;
	switch (status >> 16) {
	case 0:
		return PTRACE_SIGNALLED;
	case PTRACE_EVENT_STOP:
		return signal == SIGTRAP ? PTRACE_STOPPED : PTRACE_GROUP_STOP;
	case PTRACE_EVENT_EXEC:
		return PTRACE_EXECED;
	default: /* clone, fork, vfork: no other was asked for */
		return PTRACE_STARTED;
	}
}

static uint64_t timeval_ns(struct timeval t)
{
	return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_usec * NS_PER_US;
}

int ptrace_next(pid_t tid, struct ptrace_event *ret)
{
	struct rusage usage;
	int status;
	pid_t got;

	/* __WNOTHREAD: what other threads of ours have started is theirs to wait for. */
	do
		got = wait4(tid, &status, __WALL | __WNOTHREAD | WNOHANG, &usage);
	while (got < 0 && errno == EINTR);
	*ret = (struct ptrace_event){0};
	if (got <= 0)
		return got ? -errno : 0;
	ret->what = what_of(status);
	ret->tid = got;
	ret->status = status;
	if (ret->what == PTRACE_ENDED)
		ret->cpu_ns = timeval_ns(usage.ru_utime) + timeval_ns(usage.ru_stime);
	else
		ret->signal = WSTOPSIG(status);
	return 0;
}

void ptrace_tracer_gone(pid_t tracer)
{
	while (!syscall(SYS_tgkill, getpid(), tracer, 0))
		usleep(50);
}

#if defined(__x86_64__)

/* In include/linux/errno.h of the kernel: the call is started again, or becomes EINTR when a signal
 * handler is run. Not an errno that a program ever sees. */
#define ERESTARTNOHAND 514

#define IORING_ENTER_EXT_ARG (1u << 3) /* io_uring_enter(2): there may be a time limit */

/* Whether EINTR of this call means that nothing was done: it may be made again. The second: it has a
 * time limit, or may have one that does not show in its arguments (SO_RCVTIMEO). */
static bool can_repeat(const ptrace_gregs *r, bool *ret_limit)
{
	switch (r->orig_rax) {
	case SYS_epoll_wait:
	case SYS_epoll_pwait:
		*ret_limit = (int)r->r10 >= 0;
		return true;
	case SYS_epoll_pwait2:
	case SYS_semtimedop:
		*ret_limit = r->r10 != 0;
		return true;
	case SYS_semop:
		*ret_limit = false;
		return true;
	case SYS_rt_sigtimedwait:
		*ret_limit = r->rdx != 0;
		return true;
	case SYS_io_uring_enter:
		*ret_limit = r->r10 & IORING_ENTER_EXT_ARG;
		return true;
	case SYS_io_getevents:
		*ret_limit = r->r8 != 0;
		return true;
	case SYS_read:
	case SYS_readv:
	case SYS_recvfrom:
	case SYS_recvmsg:
	case SYS_recvmmsg:
	case SYS_write:
	case SYS_writev:
	case SYS_sendto:
	case SYS_sendmsg:
	case SYS_sendmmsg:
	case SYS_accept:
	case SYS_accept4:
	case SYS_connect:
		*ret_limit = true;
		return true;
	default:
		return false;
	}
}

bool ptrace_restart(ptrace_gregs *regs, bool slept)
{
	bool limit;

	/* orig_rax is -1 outside of calls. A stop comes before the kernel looks at what the call
	 * returned (exit_to_user_mode_loop, then arch_do_signal_or_restart). */
	if ((int64_t)regs->orig_rax < 0 || (int64_t)regs->rax != -EINTR)
		return false;
	if (!can_repeat(regs, &limit) || (slept && limit))
		return false;
	regs->rax = (unsigned long long)-ERESTARTNOHAND;
	return true;
}

#else

bool ptrace_restart(ptrace_gregs *regs, bool slept)
{
	return false;
}

#endif
