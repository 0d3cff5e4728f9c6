/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/locks.h"

#include <string.h>

#include "python/inside.h"
#include "python/object_priv.h"

/* The lock is in the hands of the innermost of them, nearly always. */
#define MOST_FRAMES_LOOKED_AT 3u

/*
 * These structs are in no header of CPython; they begin behind the object's own one (Modules/_threadmodule.c,
 * Modules/_queuemodule.c, Modules/_multiprocessing/semaphore.c).
 *
 *	lockobject, to 3.13.0      PyThread_type_lock; PyObject *weak references; char locked
 *	lockobject, later          PyMutex
 *	rlockobject, to 3.13       PyThread_type_lock; unsigned long owner, count
 *	rlockobject, 3.14          PyMutex, 7 bytes; unsigned long long thread; size_t level
 *	simplequeueobject, to 3.12 PyThread_type_lock; ...
 *	simplequeueobject, 3.13    bool has_threads_waiting; ...
 *	SemLockObject              SEM_HANDLE; unsigned long last_tid; int count, maxvalue, kind
 *
 * Some 3.13.x has another lockobject than 3.13.0; which one it is, its size tells.
 */
#define LOCK_LOCKED 16u
#define RLOCK_OWNER 8u
#define RLOCK_COUNT 16u
#define SHARED_OWNER 8u
#define SHARED_COUNT 16u
#define MUTEX_LOCKED 1u
#define MUTEX_OBJECT_BYTES 8u     /* behind the header */
#define FIRST_WITH_MUTEX 14u      /* threading.RLock */
#define FIRST_WITH_PARKED_QUEUE 13u

static bool read_byte(struct python *p, uint64_t at, uint8_t *ret)
{
	return python_read(p, at, ret, 1);
}

static bool look_at_lock(struct python *p, const struct python_type *type, struct python_lock *l)
{
	uint64_t at = l->object + p->layout.object.bytes;
	uint8_t byte;

	if (type->basic_bytes == p->layout.object.bytes + MUTEX_OBJECT_BYTES) {
		l->word = at;
		if (!read_byte(p, at, &byte))
			return false;
		l->locked = byte & MUTEX_LOCKED;
		return true;
	}
	if (!python_read_u64(p, at, &l->word) || !read_byte(p, at + LOCK_LOCKED, &byte))
		return false;
	l->locked = byte;
	return true;
}

/* The level that 3.14 keeps counts from 0. */
static bool look_at_rlock(struct python *p, const struct python_type *type, struct python_lock *l)
{
	uint64_t at = l->object + p->layout.object.bytes;
	bool mutex = p->minor >= FIRST_WITH_MUTEX;

	l->word = at;
	if ((!mutex && !python_read_u64(p, at, &l->word)) || !python_read_u64(p, at + RLOCK_OWNER, &l->owner) ||
		!python_read_u64(p, at + RLOCK_COUNT, &l->depth))
		return false;
	if (mutex)
		l->depth += l->owner != 0;
	else if (!l->depth)
		l->owner = 0;
	l->locked = l->owner != 0;
	return true;
}

static bool look_at_queue(struct python *p, const struct python_type *type, struct python_lock *l)
{
	l->word = l->object + p->layout.object.bytes;
	return p->minor >= FIRST_WITH_PARKED_QUEUE || python_read_u64(p, l->word, &l->word);
}

static bool look_at_shared(struct python *p, const struct python_type *type, struct python_lock *l)
{
	uint64_t at = l->object + p->layout.object.bytes;
	uint32_t count;

	if (!python_read_u64(p, at, &l->word) || !python_read_u64(p, at + SHARED_OWNER, &l->owner) ||
		!python_read_u32(p, at + SHARED_COUNT, &count))
		return false;
	l->locked = (int32_t)count > 0;
	l->depth = l->locked ? count : 0;
	if (!l->locked)
		l->owner = 0;
	return true;
}

bool python_lock_look(struct python *p, uint64_t object, struct python_lock *ret)
{
	static const struct {
		const char *type;
		bool (*look)(struct python *p, const struct python_type *type, struct python_lock *l);
	} kinds[] = {
		[PYTHON_LOCK] = {"_thread.lock", look_at_lock},
		[PYTHON_RLOCK] = {"_thread.RLock", look_at_rlock},
		[PYTHON_SIMPLE_QUEUE] = {"_queue.SimpleQueue", look_at_queue},
		[PYTHON_SHARED_LOCK] = {"_multiprocessing.SemLock", look_at_shared},
	};
	const struct python_type *type = python_type_of_object(p, object);
	struct python_lock l = {.object = object};

	for (size_t i = 0; type && i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(type->name, kinds[i].type) != 0)
			continue;
		l.kind = (enum python_lock_kind)i;
		if (!kinds[i].look(p, type, &l))
			return false;
		*ret = l;
		return true;
	}
	return false;
}

/* struct wait_entry of Python/parking_lot.c: {void *; uintptr_t address; semaphore; ...} */
uint64_t python_parked_on(struct python *p, uint64_t futex)
{
	uint64_t address;

	if (p->minor < FIRST_WITH_PARKED_QUEUE || futex < 8 || !python_read_u64(p, futex - 8, &address))
		return 0;
	return address >= 4096 && address < 1ULL << 56 ? address : 0;
}

struct search {
	struct python *p;
	uint64_t futex, parked;
	struct python_lock *ret;
};

static bool is_wanted(const struct search *s, const struct python_lock *l)
{
	return l->word && (l->word == s->futex || l->word == s->parked);
}

static bool try(struct search *s, uint64_t object)
{
	struct python_lock l;

	if (!object || !python_lock_look(s->p, object, &l) || !is_wanted(s, &l))
		return false;
	*s->ret = l;
	return true;
}

static bool try_slot(void *ctx, uint64_t object)
{
	struct search *s = ctx;

	return try(s, object) || try(s, python_method_self(s->p, object));
}

bool python_lock_wanted(struct python *p, uint64_t futex, const struct python_frame *frames, size_t count,
	struct python_lock *ret)
{
	struct search s = {p, futex, python_parked_on(p, futex), ret};
	uint64_t before = p->layout.object.bytes;

	/* What is parked on lies within the object itself. */
	if (s.parked > before && python_pointer_ok(s.parked - before) && try(&s, s.parked - before))
		return true;
	for (size_t i = 0; i < count && i < MOST_FRAMES_LOOKED_AT; i++)
		if (python_slots_each(p, &frames[i], try_slot, &s))
			return true;
	return false;
}
