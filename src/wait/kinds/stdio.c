/* SPDX-License-Identifier: BSD-2-Clause */
/* The lock of a FILE in glibc (sysdeps/nptl/stdio-lock.h): the pthread_t of the holder stands in it. */
#include "wait/futex.h"
#include "wait/kinds.h"

struct stdio_lock {
	uint32_t lock, count;
	uint64_t owner;
};

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	struct stdio_lock lock;
	struct snapshot_thread *owner;

	if (!futex_decode(l, &f) || f.shared || f.timed_form || f.expected != 2 ||
		!snapshot_read(l->snapshot, l->process, f.address, &lock, sizeof(lock)) ||
		lock.lock > 2 || !lock.count || lock.owner >> 32 == 0)
		return false;
	owner = futex_thread_of(l, lock.owner);
	if (!owner)
		return false;
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for the lock of a FILE (stdio)");
	futex_object(l, &f, ret);
	wait_add_blocker(ret, owner->process->pid, owner->look.tid, WAIT_PROVEN,
		"its pthread_t stands in the lock");
	return true;
}

const struct wait_kind wait_kind_stdio = {.name = "stdio_lock", .look = look, .from_memory = true};
