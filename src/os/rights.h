/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What this machine lets us do, and what to do about what it does not.
 *
 * One table in rights.c holds every wall we know: why it stands, what it costs, and the command
 * that takes it away. `sonde doctor` prints the table against the machine; the commands use the
 * same words at the moment they are refused. Features are found by trying, never from versions.
 *
 * Nothing here changes a setting or keeps anything open. No function needs privileges.
 */
#ifndef SONDE_OS_RIGHTS_H
#define SONDE_OS_RIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

/*
 * Is `pid` something one can sample at all? 0, or -ESRCH (no such process), -EINVAL (a kernel
 * thread), -ENOEXEC (32-bit code), -ECHILD (a zombie), -EPERM (another user's, and we have no capability that helps).
 * Asking does not touch the process.
 */
int rights_check_target(pid_t pid, struct err *err);

/*
 * Words for a refused perf_event_open(). `code` is the positive errno, `pid` the process or thread
 * asked for, 0 for ourselves or a child of ours, -1 for the whole machine. Returns -code.
 */
int rights_perf_refused(int code, pid_t pid, struct err *err);

/* The same for mmap() of a ring of `bytes` on a perf_event descriptor. Returns -code. */
int rights_ring_refused(int code, size_t bytes, struct err *err);

/* The same for reading `what` of a process ("maps", "memory"). Returns -code. */
int rights_read_refused(int code, pid_t pid, const char *what, struct err *err);

/* The same for attaching to a thread of `pid` with ptrace(2). Returns -code. */
int rights_trace_refused(int code, pid_t pid, struct err *err);

/* The same for loading a BPF program. Returns -code. */
int rights_bpf_refused(int code, struct err *err);

/* One line on why a recording made by us now has no kernel frames, with the command; "" when it can
 * have them. */
void rights_kernel_frames_note(char *buf, size_t size);

/* The same for time off the CPU by perf events, which lacks more without the kernel's side. */
void rights_off_cpu_note(char *buf, size_t size);

enum right_state {
	RIGHT_YES,
	RIGHT_PARTLY, /* something is missing, recording works */
	RIGHT_NO,
};

/* One thing that was looked at. */
struct right {
	const char *id; /* stable, for machines: "perf_event_paranoid" */
	enum right_state state;
	bool needed;     /* recording one's own processes needs it */
	char found[200]; /* what is there */
	char cost[200];  /* what is lost without it; "" when nothing is missing */
	char fix[400];   /* the command; "" when there is nothing to fix, or no way */
};

VEC_TYPE(right_vec, struct right);

/* Looks at everything about the machine and ourselves, in a stable order. 0 or -ENOMEM. */
int rights_probe_machine(struct right_vec *ret, struct err *err);

/* The same about one process: owner, state, namespaces, readability, perf map. 0, -ENOMEM or
 * -ESRCH. */
int rights_probe_process(pid_t pid, struct right_vec *ret, struct err *err);

/* A capability of ours that is effective now, by its number in linux/capability.h. */
bool rights_capable(unsigned capability);

#endif
