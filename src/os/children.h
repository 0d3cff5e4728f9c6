/* SPDX-License-Identifier: BSD-2-Clause */
/* The children of a process. */
#ifndef SONDE_OS_CHILDREN_H
#define SONDE_OS_CHILDREN_H

#include "os/proc.h"

/* What stat(5) of /proc tells that status does not. */
struct proc_family {
	pid_t ppid, group, session;
	uint64_t terminal;   /* the controlling terminal, as makedev(); 0: none */
	pid_t foreground;    /* the process group that may use it; -1: none */
	char state;
};

/* 0, -ESRCH or -EBADMSG. */
int proc_family_read(pid_t pid, struct proc_family *ret);
/* The same of the text of stat. False when it makes no sense. */
bool proc_family_parse(const char *text, struct proc_family *ret);

/* Children of one thread of `pid`, or of all of them (`tid` 0): those that it forked and has not waited
 * for, and those it was given as orphans. Ascending. 0, -ESRCH, -ENOMEM. */
int proc_children(pid_t pid, pid_t tid, struct pid_vec *ret, struct err *err);

/* Processes whose first thread is traced by `pid` (any thread of it may be the tracer); ascending. */
int proc_tracees(pid_t pid, struct pid_vec *ret, struct err *err);

#endif
