/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Futex calls as kinds need them: which word a thread waits on, what it expects there, and who a
 * number in it stands for. docs/heuristics/futex-fingerprint.md.
 */
#ifndef SONDE_WAIT_FUTEX_H
#define SONDE_WAIT_FUTEX_H

#include "wait/kind.h"

struct futex_call {
	uint64_t address;  /* of the word */
	uint32_t expected; /* what stood there when it went to sleep; 0 for PI locks */
	bool pi;           /* FUTEX_LOCK_PI: the kernel wakes it as the owner */
	bool shared;       /* may be in memory shared with other processes */
	bool timed_form;   /* FUTEX_WAIT_BITSET: what a C library uses where there may be a time limit */
	bool realtime;
};

/* False: it does not wait in a futex call, or in one for several words (futex_waitv: see kinds/futex.c). */
bool futex_decode(const struct wait_look *l, struct futex_call *ret);

/* Whether another thread of the same process waits for the same word. */
bool futex_waits_too(const struct futex_call *f, const struct snapshot_thread *t);

/* Fills in object, address and what is left of a time limit. */
void futex_object(struct wait_look *l, const struct futex_call *f, struct wait *ret);

/*
 * A thread id that stands in a lock, as the process itself counts, names the holder: a thread of the
 * process; where the word is shared, of any process that maps the same memory. It becomes the blocker,
 * or the trouble (ended, or left behind in the parent of a fork). False: it is no thread's, nor was
 * it likely to be: `sure` says that the word is known to hold one.
 */
bool futex_blame(struct wait_look *l, const struct futex_call *f, uint32_t inner, bool sure,
	const char *how, struct wait *ret);

/* Where glibc's struct pthread holds the thread's id. */
#if defined(__aarch64__)
#define FUTEX_PTHREAD_TID 208
#else
#define FUTEX_PTHREAD_TID 720
#endif

/* The thread whose pthread_t this is; NULL. */
struct snapshot_thread *futex_thread_of(struct wait_look *l, uint64_t pthread);

/* glibc's pthread_mutex_t (sysdeps/nptl/bits/struct_mutex.h; the same on x86-64 and aarch64). */
struct glibc_mutex {
	uint32_t lock, count, owner, users;
	int32_t type;
	uint32_t spins;
};

/* Whether memory at `address` can be a mutex that is locked, with threads waiting. */
bool futex_read_mutex(struct wait_look *l, uint64_t address, struct glibc_mutex *ret);

#endif
