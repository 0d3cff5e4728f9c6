/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who holds a lock that does not say who holds it, and what a lock is called.
 *
 * Locks without an owner (readers of an rwlock, Rust's Mutex, Qt's) are mostly taken by a guard: a local
 * variable whose destructor lets go. DWARF says which guards are alive in a frame and where; a guard that leads
 * to the lock means that its thread holds it (docs/heuristics/guard-variables.md). Names of locks come the same
 * way: a global's symbol, or the member of the object that a function of the waiter works on.
 *
 * Without debug information nothing is found, and nothing is said. What was found out about code and about
 * threads is kept until guards_free(). Not for two threads at once.
 */
#ifndef SONDE_WAIT_GUARDS_H
#define SONDE_WAIT_GUARDS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "wait/kind.h"

struct guards;

/* The snapshot is borrowed. */
int guards_new(struct snapshot *s, struct guards **ret, struct err *err);
void guards_free(struct guards *g);

/* After snapshot_renew(): what was found out about code is kept, about threads and processes not. */
void guards_forget_threads(struct guards *g);

struct guard_holder {
	struct snapshot_thread *thread;
	size_t frame;          /* index into thread->frames */
	enum wait_grade grade;
	/* Of the guard; NULL where the holder is a candidate without one. Kept until guards_free(). */
	const char *type;      /* "std::shared_lock<std::shared_mutex>" */
	const char *variable;
	const char *file;      /* where it is declared, which is where the lock was taken; may be NULL */
	uint32_t line;         /* 0: not known */
};

/* Threads of the process that have a guard of the lock which holds the byte at `address`, but for those in
 * waiters[0 .. waiter_count), which ascend. Reads stacks. WAIT_INFERRED; WAIT_CANDIDATE for a thread that may
 * have let go of it, and for all where only one of several can have it. How many, at most `limit`. */
size_t guards_holders(struct guards *g, struct snapshot_process *p, uint64_t address,
	const pid_t *waiters, size_t waiter_count, struct guard_holder *ret, size_t limit);

/* The guard by which a thread that is known to hold the lock has taken it. */
bool guards_taken(
	struct guards *g, struct snapshot_thread *t, uint64_t address, struct guard_holder *ret);

/* Who may hold the lock that `waiter` waits for, WAIT_CANDIDATE: threads with a guard for locks of its type, of
 * which the compiler has left no more than that; when there is none, threads in the function that the waiter
 * called the lock from, which says little. For when nothing else is known. */
size_t guards_candidates(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	const pid_t *waiters, size_t waiter_count, struct guard_holder *ret, size_t limit);

struct wait_lock_name {
	char name[192];    /* "Cache::rw", "g_lock", "m in main()" */
	char type[96];     /* "std::shared_mutex"; "" */
	const char *file;  /* of the declaration, kept until guards_free(); NULL */
	uint32_t line;
};

/* A name for the lock at `address`, which the thread waits for. False: nothing tells. */
bool wait_lock_name(struct guards *g, struct snapshot_thread *waiter, uint64_t address,
	struct wait_lock_name *ret);

#endif
