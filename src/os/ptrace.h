/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * ptrace(2) without its traps: attaching that stops nobody, and waiting that never waits.
 *
 * A thread is traced by a thread, not by a process: every call here is made by the one that seized.
 * When that one ends, in whatever way, the kernel lets go of everything it traced, without a stop
 * and without a signal. There is no other way out for a thread that sleeps: PTRACE_DETACH wants it
 * stopped, and a stop makes epoll_wait() and others return EINTR. So there is no detach here.
 *
 * Values are 0 or -errno: -ESRCH is a thread that has ended, or one that is not stopped.
 */
#ifndef SONDE_OS_PTRACE_H
#define SONDE_OS_PTRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/user.h>

typedef struct user_regs_struct ptrace_gregs;

/* Begins to trace one thread, which goes on undisturbed. `follow`: threads and processes that it
 * starts are traced as well, from their first instruction, and its exec is told. */
int ptrace_seize(pid_t tid, bool follow);

/* Asks a traced thread to stop; returns at once. */
int ptrace_interrupt(pid_t tid);

/* A stopped thread goes on; `signal` is delivered to it, 0: none. */
int ptrace_go(pid_t tid, int signal);

/* A thread in PTRACE_GROUP_STOP stays stopped, and still hears SIGCONT. */
int ptrace_stay(pid_t tid);

/* Registers of a stopped thread. */
int ptrace_get_regs(pid_t tid, ptrace_gregs *ret);
int ptrace_set_regs(pid_t tid, const ptrace_gregs *regs);

/* Of PTRACE_STARTED, the id of what was started; of PTRACE_EXEC, the thread's id before it. */
int ptrace_message(pid_t tid, unsigned long *ret);

enum ptrace_what {
	PTRACE_NOTHING,
	PTRACE_ENDED,      /* the thread is no more, and no longer traced */
	PTRACE_SIGNALLED,  /* stopped: `signal` is about to be delivered to it */
	PTRACE_STOPPED,    /* by ptrace_interrupt(), or as one that was just started */
	PTRACE_GROUP_STOP, /* by a job control signal, with its whole process */
	PTRACE_STARTED,    /* stopped: it has started a thread or a process */
	PTRACE_EXECED,     /* stopped: it is a new program now, and alone */
};

struct ptrace_event {
	enum ptrace_what what;
	pid_t tid;
	int signal;      /* SIGNALLED, GROUP_STOP */
	int status;      /* ENDED: as from waitpid() */
	uint64_t cpu_ns; /* ENDED: of the thread; of the first one of a process, of all of it */
};

/* What happened to a traced thread (-1: any), PTRACE_NOTHING when nothing did. Never waits. -ECHILD:
 * there is no such thread any more. */
int ptrace_next(pid_t tid, struct ptrace_event *ret);

/* A thread of ours that was the tracer of others was joined. That is not yet its end: the kernel wakes who
 * joins, and then lets go of what was traced. Returns after that. */
void ptrace_tracer_gone(pid_t tracer);

/*
 * A stop that interrupted a system call has an after-effect in the target: most calls are started
 * again by the kernel, a few return EINTR. At a stop we asked for, this says that the kernel should
 * start also those again: then the program never learns of the stop, unless a signal with a handler
 * comes as well, which makes it EINTR after all. A time limit of the call begins anew: `slept` says that the
 * thread may have slept for long, and then a call that has a limit is left alone. True when `regs` was
 * changed and is to be set. Calls that had done a part of their work return that part, as ever.
 * x86-64 alone: elsewhere a tracer cannot tell.
 */
bool ptrace_restart(ptrace_gregs *regs, bool slept);

#endif
