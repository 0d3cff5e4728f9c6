/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Probes in the kernel at the functions of an allocator, for programs that take no library: those that are static or
 * have an allocator of their own, and those in a sandbox. Samples alone: every probe costs a trap, and a stack for each
 * call would cost too much. What the program does bpf/heap_probes.h says.
 *
 * Or at probes that a program has of its own (heap/told.h), to read what it has sampled itself.
 *
 * All of it goes when it is freed or when we die, also by kill -9: probes live as long as our descriptors. The target is never
 * stopped, and none of its memory is written but the probed instructions, by the kernel.
 *
 * Not for two threads at once.
 */
#ifndef SONDE_HEAP_PROBES_H
#define SONDE_HEAP_PROBES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "bpf/heap_probes.h"
#include "heap/entries.h"
#include "heap/told.h"
#include "unwind/unwind.h"

struct heap_probes;

struct heap_probes_options {
	const char *path;     /* the object file, as it can be opened by us; /proc/PID/exe is fine */
	const struct heap_entries *entries;   /* NULL: probes of the program's own instead, */
	const struct heap_told *told; /* these, in `path`. They are placed for only_pid, which is not 0 then */
	pid_t only_pid;       /* probes hit this process alone; 0: all processes that run the file hit them, and those that
				 are watched are seen, with what they fork */
	uint64_t rate;        /* bytes, 1 to HEAP_PROBE_RATE_MOST */
	uint64_t throw_most;  /* larger blocks are not followed in functions that throw exceptions: a return that is awaited
				 cannot be passed by one */
};

/* What it takes to have it here: 0, or -errno with the reason in words. Loads nothing. */
int heap_probes_possible(struct err *err);

/*
 * Whether programs with a seccomp filter survive a probe at a return: some kernels let them return by a system call, which
 * the filter then forbids. Tried with a child of ours. Words when they do not.
 */
int heap_probes_try_sandbox(struct err *err);

int heap_probes_new(const struct heap_probes_options *options, struct heap_probes **ret, struct err *err);
void heap_probes_free(struct heap_probes *p); /* NULL is fine */

/* `at_exec`: a child of ours, from its next exec on. */
int heap_probes_watch(struct heap_probes *p, pid_t pid, bool at_exec, struct err *err);
void heap_probes_unwatch(struct heap_probes *p, pid_t pid);
bool heap_probes_watches(const struct heap_probes *p, pid_t pid);

/* Readable when something happened that cannot wait. */
int heap_probes_fd(const struct heap_probes *p);

/* Hands over what was written, at most `limit` events; how many. Of samples `sample` is set, and has head.stack_bytes of
 * stack. Valid during the call. */
size_t heap_probes_drain(struct heap_probes *p, size_t limit,
	void (*take)(void *ctx, const struct heap_probe_event *e, const struct heap_probe_sample *sample), void *ctx);

/* Registers of a sample, as the unwinder has them; false: of 32-bit code. */
bool heap_probes_regs(const struct heap_probe_sample *sample, struct unwind_regs *ret);

void heap_probes_set_rate(struct heap_probes *p, uint64_t rate);
/* Nothing is written any more. */
void heap_probes_stop(struct heap_probes *p);

struct heap_probes_stats {
	uint64_t calls, inner;     /* that allocate; those that are part of another one */
	uint64_t lost;             /* samples and frees that found no room, or could not be followed */
	uint64_t bytes;            /* that were read */
	unsigned functions, slow;  /* probed; of those at an instruction that the kernel has to run on the side */
	uint64_t told;             /* samples of the program's own that were read */
	unsigned left_out;         /* that throw exceptions, where the kernel cannot leave out returns */
	bool all_returns;          /* the kernel cannot leave out returns */
};
void heap_probes_stats(const struct heap_probes *p, struct heap_probes_stats *ret);

#endif
