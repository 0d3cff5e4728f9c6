/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether threads that have not run for long are held up, or idle. */
#ifndef SONDE_WAIT_HELD_UP_H
#define SONDE_WAIT_HELD_UP_H

#include "wait/verdict.h"

enum held_up {
	HELD_UP_BLOCKED,  /* by anybody or anything; not idle: for work or for a time, and nobody is in its way */
	HELD_UP_DEADLOCK, /* it is in a circle of waits, or behind one */
};

/* Whether the thread that a verdict is about is. */
bool verdict_is_held_up(const struct wait_verdict *v, enum held_up how);

/* The first of these threads of the process that is: *ret_tid, 0 for none of them. -ESRCH: the process is gone. */
int wait_held_up(const struct snapshot_options *options, pid_t pid, const pid_t *tids, size_t count,
	enum held_up how, pid_t *ret_tid, struct err *err);

#endif
