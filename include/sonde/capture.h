/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libsonde-capture: what a program tells the profiler that records it. Marks in time, counters, log messages, the
 * blocks of its own allocators, and names of code that it generates.
 *
 *	uint64_t begin = sonde_mark_begin();
 *	render(page);
 *	sonde_mark_end(begin, "render", "page", page->url);
 *
 * A program that is started by `sonde heap ... -- CMD` is recorded, and so are the programs that it starts. In all others
 * the calls return at once: what they cost is one load and one branch. Whether somebody records is decided when the
 * program starts and only then.
 *
 * What may be relied on:
 *
 * Threads      All functions may be called by any thread at any time, without locks of the caller's, from constructors and
 *              destructors, and from signal handlers. A handler that interrupts one of these functions in its own
 *              thread is not heard: that is counted, and reports say so.
 * Order        What one thread says stays in its order; between threads the time decides.
 * Waiting      Nothing here takes a lock, allocates with malloc, or waits for the recorder. (The first sonde_alloc() of a process
 *              waits until the recorder knows its code, 2 s at most.) When the recorder is too slow, or is killed, the
 *              program goes on; what found no room is counted.
 * Errors       None reach the caller: what cannot be written down is counted or, without a recorder, forgotten. errno stays.
 * Texts        UTF-8 that ends with a NUL; NULL is as "". They are copied before the call returns and stay the caller's. More
 *              than SONDE_TEXT_MOST bytes are cut, at the end of a character.
 * Times        Nanoseconds of CLOCK_MONOTONIC.
 * fork, exec   A forked child is recorded as a process of its own from its first call on; counters and pools that its
 *              parent defined are its own as well. After exec the new program begins anew.
 * Copies       The static library may be in the program and in any number of its shared objects, beside the shared library. Each
 *              copy stands for itself: it has its own numbers of counters and pools, which are good for that copy alone, its own
 *              memory, and 128 bytes or so of each thread's static TLS. All of them end up in one recording. An object
 *              with a static copy that is unloaded (dlclose) leaves the memory that it shares mapped; the shared
 *              library itself stays loaded.
 *
 * C99 and C++98; nothing but libc is linked. This interface only grows: soname 0.
 */
#ifndef SONDE_CAPTURE_H
#define SONDE_CAPTURE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SONDE_EXPORT __attribute__((visibility("default")))
#else
#define SONDE_EXPORT
#endif

#define SONDE_TEXT_MOST 4096

/* 1 while somebody records, else 0: for what would be costly to find out in vain. */
SONDE_EXPORT int sonde_is_recording(void);

/* Now, in ns of CLOCK_MONOTONIC; recorded or not. */
SONDE_EXPORT uint64_t sonde_clock(void);

/* ---- marks: something took from begin_ns for duration_ns ---- */

/*
 * `group` says what kind of thing ("gc", "http"), `name` which one ("minor", "GET"), `message` what else there is to say
 * about this one. A duration of 0: a moment. begin_ns may lie in the past. Durations of more than 2 years are cut.
 */
SONDE_EXPORT void sonde_mark(
	uint64_t begin_ns, uint64_t duration_ns, const char *group, const char *name, const char *message);

/* The time now while somebody records, else 0, without asking for the time. */
SONDE_EXPORT uint64_t sonde_mark_begin(void);

/* A mark from begin_ns until now. 0: nobody recorded when it began, and nothing is done. */
SONDE_EXPORT void sonde_mark_end(uint64_t begin_ns, const char *group, const char *name, const char *message);

/* ---- counters: numbers that change ---- */

enum sonde_counter_kind {
	SONDE_COUNTER_INT64 = 0,
	SONDE_COUNTER_DOUBLE = 1
};

/*
 * Its number, for the following calls; it is good until the process ends. 0: nobody records, or there is no room (some
 * thousands of counters); calls with 0 do nothing. Counters are never undefined; two of the same group and name are two.
 */
SONDE_EXPORT uint32_t sonde_counter_define(
	const char *group, const char *name, const char *description, enum sonde_counter_kind kind);

/* The value from now on. Of the other kind: it is converted as C does, and a double that no int64_t holds to the
 * nearest that there is. */
SONDE_EXPORT void sonde_counter_set(uint32_t counter, int64_t value);
SONDE_EXPORT void sonde_counter_set_double(uint32_t counter, double value);

/* ---- log messages ---- */

enum sonde_severity {
	SONDE_DEBUG = 1,
	SONDE_INFO = 2,
	SONDE_MESSAGE = 3,
	SONDE_WARNING = 4,
	SONDE_CRITICAL = 5,
	SONDE_ERROR = 6
};

/* `domain`: which part of the program says it. Severities that are not above count as SONDE_MESSAGE. */
SONDE_EXPORT void sonde_log(const char *domain, enum sonde_severity severity, const char *message);

/* ---- allocators of the program's own ---- */

/* Number of a pool with this name, as of a counter. */
SONDE_EXPORT uint32_t sonde_pool_define(const char *name);

/*
 * A block of `size` bytes at `address` was given out by a pool. Call it from the allocator after the block was got from
 * the pool and before anybody can have freed it; the stack is that of the caller of sonde_alloc. One block at an
 * address of a pool at a time.
 */
SONDE_EXPORT void sonde_alloc(uint32_t pool, const void *address, size_t size);

/* It is about to be given back: call it before the pool can give the address out again. NULL: nothing happens. */
SONDE_EXPORT void sonde_free(uint32_t pool, const void *address);

/* ---- generated code ---- */

/*
 * From now on the `size` bytes at `address` are the function `name`, from `file` (may be NULL). What was said before about
 * code there is no longer so.
 */
SONDE_EXPORT void sonde_jit_map(const void *address, size_t size, const char *name, const char *file);

#ifdef __cplusplus
}
#endif

#endif
