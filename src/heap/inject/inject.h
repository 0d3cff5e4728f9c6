/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Puts a shared library into a process that runs, and calls functions of it, without a debugger.
 *
 * One thread of the process is diverted for that, for less than a millisecond a call; all others run on. It is one
 * that waits in a system call, or else one that computes, and only where its stack says that it is inside nothing
 * that the called code could need as well: the allocator, the loader, fork, exit, a signal handler
 * (docs/heuristics/safe-points.md). Its registers, extended state, signal mask and errno are what they were
 * afterwards, and its system call goes on as if nothing had been: no EINTR, and time limits that end when they would have.
 * Signals that come meanwhile are delivered afterwards.
 *
 * Whoever calls this may be killed at any instruction: the diverted thread then finds its way back by itself (code.h).
 *
 * What is refused is refused with the reason, before anything was changed: static programs, 32-bit code,
 * seccomp filters that do not allow what is done, processes that are stopped or not ours. x86-64 and glibc or musl.
 *
 * All calls for one struct inject are made by one thread of ours at a time.
 */
#ifndef SONDE_HEAP_INJECT_INJECT_H
#define SONDE_HEAP_INJECT_INJECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct inject;

/* All-zero: the defaults. */
struct inject_options {
	uint64_t search_ns; /* so long is a safe point looked for: 3 s */
	uint64_t call_ns;   /* so long may what is called take before it is left alone: 2 s */
};

/*
 * Looks at the process and does nothing to it, but for threads with seccomp filters: each is stopped for a moment, and its
 * filters are read and judged (CAP_SYS_ADMIN). -ESRCH, -EPERM, -ENOEXEC (static, 32-bit), -EACCES (seccomp), -EBUSY (another
 * sonde is at it), -EAGAIN (stopped by a signal), -ENOTSUP (our architecture), with words.
 */
int inject_open(pid_t pid, const struct inject_options *options, struct inject **ret, struct err *err);
void inject_close(struct inject *i);

/*
 * Loads the library, the bytes of a whole ELF file, unless the same bytes are there from before. `name` (a word) shows in
 * the process' mappings. It stays mapped until the process ends. -EAGAIN: no safe point came; -ETIMEDOUT: what was called takes
 * too long, and finishes by itself; -ELIBBAD: dlopen() has refused it, with its words; -EFAULT: it crashed.
 */
int inject_load(struct inject *i, const char *name, const void *bytes, size_t size, struct err *err);

/* Calls `long symbol(const char *text, unsigned long number)` of the library that was loaded; fails as inject_load(), and -ENOENT: it has no
 * such function. */
int inject_call(struct inject *i, const char *symbol, const char *text, uint64_t number, int64_t *ret_value,
	struct err *err);

struct inject_stats {
	uint32_t stops;       /* of threads, each for a look or a call */
	uint32_t diversions;  /* of these: code was run */
	/* A stop is as long as it is from the moment that it was asked for to its end, less what the thread has to wait for a CPU
	 * that others have before it can stop. A diversion is one. */
	uint64_t longest_ns;
	uint64_t total_ns;
	uint64_t last_ns;     /* the last diversion */
	pid_t last_tid;
	bool last_ran;        /* that one was computing, not waiting */
};
void inject_stats(const struct inject *i, struct inject_stats *ret);

#endif
