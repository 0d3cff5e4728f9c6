/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * glibc's pthread_rwlock_t (sysdeps/nptl/bits/struct_rwlock.h), and so std::shared_mutex. A reader waits on
 * __wrphase_futex until no writer has it; a writer waits there for the readers to leave, and on
 * __writers_futex for another writer. Which writer has it is written down, which readers have it is not:
 * they are looked for by their guards (guards.h).
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <stddef.h>

struct glibc_rwlock {
	uint32_t readers, writers, wrphase_futex, writers_futex, pad[2];
	int32_t cur_writer, shared;
};

#define READER_SHIFT 3 /* PTHREAD_RWLOCK_READER_SHIFT */
#define FUTEX_USED 2u  /* PTHREAD_RWLOCK_FUTEX_USED: somebody sleeps on it */
#define MOST_READERS (1u << 22)

static bool is_plausible(const struct glibc_rwlock *r)
{
	return r->readers >> READER_SHIFT < MOST_READERS && (r->writers & ~(1u << 31)) < MOST_READERS &&
		r->wrphase_futex <= 3 && r->writers_futex <= 3 && r->cur_writer >= 0 &&
		(uint32_t)r->shared <= 1 && (r->readers || r->writers) && !r->pad[0] && !r->pad[1];
}

static bool read_at(struct wait_look *l, uint64_t address, struct glibc_rwlock *ret)
{
	return snapshot_read(l->snapshot, l->process, address, ret, sizeof(*ret)) && is_plausible(ret);
}

static bool waits_in(struct wait_look *l, const char *const *functions)
{
	return wait_find_function(l, l->thread, functions, WAIT_LEAF_FRAMES) >= 0;
}

static bool may_be_in_rwlock(struct wait_look *l)
{
	static const char *const functions[] = {
		"pthread_rwlock_*", "__pthread_rwlock_*", "___pthread_rwlock_*", NULL};

	return waits_in(l, functions) || !*wait_function(l, l->thread, 0);
}

/* Where the lock begins, 0: it is none. *ret_writes: the thread wants to write. */
static uint64_t find_lock(struct wait_look *l, const struct futex_call *f, struct glibc_rwlock *ret,
	bool *ret_writes)
{
	uint64_t phase = f->address - offsetof(struct glibc_rwlock, wrphase_futex);
	uint64_t writers = f->address - offsetof(struct glibc_rwlock, writers_futex);

	if (!f->timed_form || !(f->expected & FUTEX_USED) || f->expected > 3 || !may_be_in_rwlock(l))
		return 0;
	if (read_at(l, phase, ret) && (ret->wrphase_futex & FUTEX_USED)) {
		/* A reader sleeps while a writer's phase lasts, a writer while it has not begun. */
		*ret_writes = f->expected == FUTEX_USED;
		return phase;
	}
	if (read_at(l, writers, ret) && (ret->writers_futex & FUTEX_USED)) {
		*ret_writes = true;
		return writers;
	}
	return 0;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	struct glibc_rwlock lock;
	uint32_t readers;
	bool writes;

	if (!futex_decode(l, &f))
		return false;
	f.address = find_lock(l, &f, &lock, &writes);
	if (!f.address)
		return false;
	ret->nature = WAIT_LOCK;
	ret->object_bytes = sizeof(lock);
	WAIT_SAY(ret->what, "for a reader-writer lock, to %s", writes ? "write" : "read");
	futex_object(l, &f, ret);
	if (lock.cur_writer &&
		futex_blame(l, &f, (uint32_t)lock.cur_writer, true,
			"its thread id stands in the lock as the writer's", ret))
		return true;
	readers = lock.readers >> READER_SHIFT;
	ret->ownerless = true;
	WAIT_SAY(ret->detail, "%u reader%s", readers, readers == 1 ? " has it" : "s have it or wait for it");
	return true;
}

const struct wait_kind wait_kind_rwlock = {.name = "rwlock", .look = look, .from_memory = true};
