/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks of Python as they stand in memory, and which of them a thread waits for.
 *
 * A thread that waits in the kernel waits for a word. Up to 3.13 the word of a lock is a semaphore of its own;
 * what 3.13 and later make of PyMutex waits on the thread's own stack, beside the address of the mutex
 * (Python/parking_lot.c). docs/heuristics/python-locks.md.
 */
#ifndef SONDE_PYTHON_LOCKS_H
#define SONDE_PYTHON_LOCKS_H

#include "python/python.h"

enum python_lock_kind {
	PYTHON_LOCK,         /* _thread.lock: does not say who has it */
	PYTHON_RLOCK,
	PYTHON_SIMPLE_QUEUE, /* _queue.SimpleQueue, of which somebody wants an item */
	PYTHON_SHARED_LOCK,  /* _multiprocessing.SemLock */
};

struct python_lock {
	enum python_lock_kind kind;
	uint64_t object;
	uint64_t word;    /* what those who want it wait on: the address of a futex, or what python_parked_on() gives */
	bool locked;      /* of shared ones: by this process */
	uint64_t owner;   /* pthread_t of who has it, RLock and (of this process) SemLock alone; 0: nobody */
	uint64_t depth;   /* so often has the owner taken it */
};

/* False: it is no lock. */
bool python_lock_look(struct python *p, uint64_t object, struct python_lock *ret);

/* What a thread that waits for the futex wants, where that is a PyMutex or an event of the interpreter; 0: it is
 * not known to be such. */
uint64_t python_parked_on(struct python *p, uint64_t futex);

/* The lock that a thread wants which waits for the futex; `frames`, innermost first, are its. */
bool python_lock_wanted(struct python *p, uint64_t futex, const struct python_frame *frames, size_t count,
	struct python_lock *ret);

#endif
