/* SPDX-License-Identifier: BSD-2-Clause */
/* Who has a lock of Python's: what the kinds that wait for one share. docs/heuristics/python-locks.md. */
#ifndef SONDE_WAIT_PYTHON_HOLDERS_H
#define SONDE_WAIT_PYTHON_HOLDERS_H

#include "wait/holders.h"
#include "wait/pythons.h"

/* The lock that the thread waits for. */
bool python_wanted(struct wait_look *l, struct python_look *look, uint64_t futex, struct python_lock *ret);

/* Those inside of a `with` of `object`, or of a Condition whose lock it is, become blockers; how many. Who waits for
 * such a Condition has let go of its lock. */
size_t python_blame_insides(struct wait_look *l, struct python_look *look, uint64_t object, struct wait *ret);

/* The owner by its ident becomes the blocker, or the trouble. */
void python_blame_ident(struct wait_look *l, struct python_look *look, uint64_t ident, uint64_t object,
	const char *how, struct wait *ret);

/* Threads whose code refers to the object become candidates, where they are few. */
void python_blame_users(struct wait_look *l, struct python_look *look, uint64_t object, const char *how,
	struct wait *ret);

/* It was taken by a thread of the process that this one was forked from, which still has it there: the trouble is
 * told. False: no sign of that. */
bool python_inherited(struct wait_look *l, const struct python_lock *lock, struct wait *ret);

#endif
