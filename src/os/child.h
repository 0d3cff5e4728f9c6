/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Running a command so that it can be watched from its first instruction.
 *
 * The child is forked, waits at a gate, and calls exec when the gate opens. It inherits nothing of
 * ours: descriptors are close-on-exec; signal mask, dispositions and the limit on open files are as
 * we were started.
 */
#ifndef SONDE_OS_CHILD_H
#define SONDE_OS_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"

/* What we change for ourselves, as it was before. */
struct child_inherits {
	sigset_t mask;
	struct rlimit files;
	bool ignores_child; /* SIGCHLD was ignored */
};

struct child {
	pid_t pid;
	int gate_fd;  /* writing a byte opens the gate; closing it lets the child exit */
	int error_fd; /* the child's exec errno arrives here */
};

/* Notes the present state; call before any of it is changed. */
void child_inherits_now(struct child_inherits *ret);

/* Whether there is a command of that name (as execvp looks for it) to be started: asked before
 * anything is done for its sake. 0, -ENOENT or -EACCES with the words of child_go(); -ENOEXEC: it is
 * 32-bit code. */
int child_check(const char *name, struct err *err);

/* Which file that is; `buf` as for a path. The same errors. */
int child_find(const char *name, char *buf, size_t size, struct err *err);

/* `argv` is NULL-terminated. */
int child_start(char *const *argv, const struct child_inherits *inherits, struct child *ret,
	struct err *err);

/* Opens the gate. When the command cannot be executed: -errno with its name in the words; the
 * child has exited then and was waited for. */
int child_go(struct child *c, const char *name, struct err *err);

/* Never opened: the child exits without having run the command. */
void child_abandon(struct child *c);

/* A thread of ours that traces `pid`, a child, has waited for its end; `status` as from waitpid(). What
 * is below knows it from then on. One child at a time. */
void child_has_ended(pid_t pid, int status, uint64_t cpu_ns);

/* CPU time of the command, which has ended and was not waited for yet, and of those it waited for;
 * 0 when it cannot be told. */
uint64_t child_cpu_ns(const struct child *c);

/* Waits for the end of the command; its exit status as shells count it (128 + signal). */
int child_wait(const struct child *c);

#endif
