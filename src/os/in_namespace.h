/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Asking something from inside a namespace of another process, by a short-lived thread of ours that
 * enters it: our own namespaces stay what they are. Entering needs CAP_SYS_ADMIN, unless it is the one
 * we are in.
 */
#ifndef SONDE_OS_IN_NAMESPACE_H
#define SONDE_OS_IN_NAMESPACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

#define IN_NAMESPACE_MOST_BYTES 4096u

/* The number of a namespace ("net", "ipc", "pid") of a process; 0: it cannot be told. */
uint64_t namespace_of(pid_t pid, const char *which);

/*
 * Runs run(arg) in the "net" or "ipc" namespace of `pid`. It works on a copy of the `bytes` at `arg`
 * (at most IN_NAMESPACE_MOST_BYTES), which is copied back when it has ended in time. `limit_ns` is how
 * long to wait. 0, -EPERM, -ESRCH, -ETIMEDOUT (it may run on for ever, on its copy), -ENOMEM.
 */
int in_namespace(pid_t pid, const char *which, void (*run)(void *arg), void *arg, size_t bytes,
	uint64_t limit_ns, struct err *err);

/* The id by which the processes of the pid namespace of `observer` know `pid` (an id of ours); 0: they do
 * not see it, or it is gone. */
pid_t pid_seen_by(pid_t observer, pid_t pid);

/* The process of ours that `observer` knows as `inner`; 0: there is none. All processes are looked at,
 * unless observer's namespace is ours. */
pid_t pid_from_inside(pid_t observer, pid_t inner);

#endif
