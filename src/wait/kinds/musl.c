/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * musl's locks: a waiter expects the word that it found, with the highest bit (mutex: src/thread/
 * pthread_mutex_timedlock.c) or the one below it (FILE: src/stdio/__lockfile.c) set, and below that the
 * holder's thread id. A mutex of the normal type holds EBUSY there instead, and nobody's id.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <errno.h>

#define MUTEX_WAITERS 0x80000000u
#define FILE_WAITERS 0x40000000u
#define TID_MASK 0x3fffffffu

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	bool mutex, blamed;

	if (!futex_decode(l, &f) || f.timed_form || f.pi)
		return false;
	mutex = f.expected & MUTEX_WAITERS;
	if (f.expected == (MUTEX_WAITERS | EBUSY)) {
		ret->ownerless = blamed = true;
		WAIT_SAY(ret->detail, "a mutex of musl's normal type does not say who holds it");
	} else {
		blamed = (mutex || f.expected & FILE_WAITERS) &&
			futex_blame(l, &f, f.expected & TID_MASK, false,
				"its thread id stands in the lock", ret);
	}
	if (!blamed)
		return false;
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for %s", mutex ? "a mutex" : "the lock of a FILE (stdio)");
	futex_object(l, &f, ret);
	return true;
}

const struct wait_kind wait_kind_musl = {.name = "mutex", .look = look, .from_memory = true};
