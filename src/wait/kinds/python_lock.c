/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * threading.Lock and RLock, and multiprocessing's locks. An RLock says who has it. A Lock does not: whoever
 * is inside of a `with` of it has it, and where nobody is, those whose code refers to it are candidates.
 * docs/heuristics/python-locks.md.
 */
#include "wait/futex.h"
#include "wait/kinds.h"
#include "wait/python_holders.h"

#include "os/children.h"
#include "python/object.h"

#define MOST_FAMILY 256u

static const char *type_name(const struct python_lock *lock)
{
	switch (lock->kind) {
	case PYTHON_LOCK:
		return "threading.Lock";
	case PYTHON_RLOCK:
		return "threading.RLock";
	case PYTHON_SHARED_LOCK:
		return "multiprocessing.Lock";
	case PYTHON_SIMPLE_QUEUE:
		break;
	}
	return "queue.SimpleQueue";
}

/* Objects of the library in front of a lock have frames of their own: `self` of these leads to the name. */
static bool named_by_owner(struct wait_look *l, struct python_look *look, const struct python_lock *lock,
	char *buf, size_t size)
{
	const struct python_frames *frames = look_frames(look, l->look->tid);
	uint64_t self = frames->len ? look_local(look, frames->data, "self") : 0;
	const struct python_type *type = python_type_of_object(look_python(look), self);
	char name[96];

	if (!type || (python_attribute(look_python(look), self, "_lock") != lock->object &&
			     python_attribute(look_python(look), self, "_semlock") != lock->object))
		return false;
	if (!look_object_name(look, l->look->tid, 1, self, name, sizeof(name)))
		return false;
	wait_say(buf, size, "%s.%s %s",
		lock->kind == PYTHON_SHARED_LOCK ? "multiprocessing" : "threading", type->name, name);
	return true;
}

static void say_name(struct wait_look *l, struct python_look *look, const struct python_lock *lock, struct wait *ret)
{
	char name[128];

	if (named_by_owner(l, look, lock, ret->name, sizeof(ret->name)))
		return;
	if (look_object_name(look, l->look->tid, 0, lock->object, name, sizeof(name)))
		WAIT_SAY(ret->name, "%s %s", type_name(lock), name);
	else
		WAIT_SAY(ret->name, "a %s at 0x%llx", type_name(lock), (unsigned long long)lock->object);
}

/* ---- multiprocessing ---- */

/* Each process has an object of its own for the semaphore; those that were forked, at the same address. It counts how
 * often its process has taken it, and says which thread did. */
static bool blame_process(struct wait_look *l, struct snapshot_process *p, const struct python_lock *lock,
	struct wait *ret)
{
	struct python_look *look = p->refused ? NULL : wait_python_of(l->world, l->snapshot, p);
	struct python_lock theirs;
	pid_t tid;

	if (!look || !python_lock_look(look_python(look), lock->object, &theirs) ||
		theirs.kind != PYTHON_SHARED_LOCK || theirs.word != lock->word || !theirs.owner)
		return false;
	tid = look_tid(look, theirs.owner);
	if (!tid)
		return false;
	wait_add_blocker(ret, p->pid, tid, WAIT_INFERRED, "its process has taken the lock, and says that it did");
	return true;
}

static void blame_children(struct wait_look *l, pid_t parent, const struct python_lock *lock, struct wait *ret)
{
	struct pid_vec children = {0};
	struct snapshot_process *p;

	if (!proc_children(parent, 0, &children, NULL))
		for (size_t i = 0; i < children.len && i < MOST_FAMILY; i++)
			if (!snapshot_process(l->snapshot, children.data[i], &p, NULL))
				blame_process(l, p, lock, ret);
	vec_release(&children);
}

/* The process itself, its parent, its children, and those of its parent. */
static void blame_family(struct wait_look *l, const struct python_lock *lock, struct wait *ret)
{
	struct snapshot_process *p;

	blame_process(l, l->process, lock, ret);
	if (l->process->source->still)
		return;
	blame_children(l, l->process->pid, lock, ret);
	if (l->process->status.ppid > 1 && !snapshot_process(l->snapshot, l->process->status.ppid, &p, NULL) &&
		blame_process(l, p, lock, ret))
		return;
	if (!ret->blocker_count && l->process->status.ppid > 1)
		blame_children(l, l->process->status.ppid, lock, ret);
}

/* ---- all ---- */

static void blame(struct wait_look *l, struct python_look *look, const struct python_lock *lock, struct wait *ret)
{
	if (lock->kind == PYTHON_SHARED_LOCK) {
		blame_family(l, lock, ret);
		return;
	}
	if (lock->owner) {
		python_blame_ident(l, look, lock->owner, lock->object, "the lock says that it has it", ret);
		return;
	}
	if (lock->kind == PYTHON_RLOCK)
		return; /* it is being handed over */
	ret->grade = WAIT_PROVEN;
	if (!python_blame_insides(l, look, lock->object, ret) && !python_inherited(l, lock, ret))
		python_blame_users(l, look, lock->object, "its code works with the lock", ret);
	for (size_t i = 0; ret->blocker_count > 1 && i < ret->blocker_count; i++)
		ret->blockers[i].grade = WAIT_CANDIDATE;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct python_look *look;
	struct python_lock lock;
	struct futex_call f;

	if (!futex_decode(l, &f))
		return false;
	look = wait_python(l);
	if (!look || !python_wanted(l, look, f.address, &lock) || lock.kind == PYTHON_SIMPLE_QUEUE)
		return false;
	futex_object(l, &f, ret);
	ret->nature = WAIT_LOCK;
	ret->address = lock.object;
	if (lock.kind != PYTHON_SHARED_LOCK)
		WAIT_SAY(ret->object, "python lock %d:0x%llx", (int)l->process->pid,
			(unsigned long long)lock.object);
	WAIT_SAY(ret->what, "for a %s", type_name(&lock));
	say_name(l, look, &lock, ret);
	blame(l, look, &lock, ret);
	return true;
}

const struct wait_kind wait_kind_python_lock = {.name = "python_lock", .look = look, .from_memory = true};
