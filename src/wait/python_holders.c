/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/python_holders.h"

#include <string.h>

#include "python/object.h"

#define MOST_USERS 8u
#define MOST_ANCESTORS 3u

bool python_wanted(struct wait_look *l, struct python_look *look, uint64_t futex, struct python_lock *ret)
{
	const struct python_frames *frames = look_frames(look, l->look->tid);

	return frames->len && python_lock_wanted(look_python(look), futex, frames->data, frames->len, ret);
}

/* ---- with ---- */

/* The lock behind what a `with` is of: a Condition's, or itself. */
static bool is_of(struct python *p, uint64_t with, uint64_t object)
{
	return with == object || python_attribute(p, with, "_lock") == object;
}

/* Condition.wait() lets go of the lock until it returns. */
static bool let_go(struct python_look *look, const struct look_inside *inside, uint64_t object)
{
	const struct python_frames *frames = look_frames(look, inside->tid);

	for (size_t i = 0; i < inside->frame && i < frames->len; i++) {
		uint64_t self;

		if (!look_is_in(&frames->data[i], "threading.py", "wait"))
			continue;
		self = look_local(look, &frames->data[i], "self");
		if (self && python_attribute(look_python(look), self, "_lock") == object)
			return true;
	}
	return false;
}

static void add(struct wait *ret, pid_t pid, const struct look_inside *inside)
{
	size_t before = ret->blocker_count;

	wait_add_blocker(ret, pid, inside->tid, WAIT_INFERRED, "it is inside a with statement of the lock");
	if (ret->blocker_count > before)
		ret->blockers[before].taken = inside->place;
}

/* The place is told where somebody is the blocker already. */
static void add_place(struct wait *ret, const struct look_inside *inside)
{
	for (size_t i = 0; i < ret->blocker_count; i++)
		if (ret->blockers[i].tid == inside->tid && !ret->blockers[i].taken)
			ret->blockers[i].taken = inside->place;
}

/* How many; with `places` alone nobody is added. */
static size_t each_holder(struct python_look *look, pid_t pid, uint64_t object, bool places, struct wait *ret)
{
	const struct look_inside *insides;
	size_t count = look_insides(look, &insides), found = 0;

	for (size_t i = 0; i < count; i++) {
		if (!is_of(look_python(look), insides[i].object, object) || let_go(look, &insides[i], object))
			continue;
		found++;
		if (places)
			add_place(ret, &insides[i]);
		else
			add(ret, pid, &insides[i]);
	}
	return found;
}

size_t python_blame_insides(struct wait_look *l, struct python_look *look, uint64_t object, struct wait *ret)
{
	return each_holder(look, l->process->pid, object, false, ret);
}

/* ---- owners ---- */

static struct snapshot_process *parent_of(struct wait_look *l, const struct snapshot_process *p)
{
	struct snapshot_process *parent;

	if (p->source->still || p->status.ppid <= 1 ||
		snapshot_process(l->snapshot, p->status.ppid, &parent, NULL) || parent->refused)
		return NULL;
	return parent;
}

/* The ancestor has a thread of that ident, which this process has not. */
static bool blame_ancestor(struct wait_look *l, uint64_t ident, struct wait *ret)
{
	struct snapshot_process *p = l->process;

	for (unsigned i = 0; i < MOST_ANCESTORS && (p = parent_of(l, p)); i++) {
		struct python_look *look = wait_python_of(l->world, l->snapshot, p);
		pid_t tid = look ? look_tid(look, ident) : 0;

		if (!look)
			return false;
		if (!tid)
			continue;
		ret->trouble = WAIT_FORK_INHERITED;
		ret->trouble_tid = tid;
		WAIT_SAY(ret->detail, "thread %d of process %d held it when it forked this one", (int)tid,
			(int)p->pid);
		return true;
	}
	return false;
}

void python_blame_ident(struct wait_look *l, struct python_look *look, uint64_t ident, uint64_t object,
	const char *how, struct wait *ret)
{
	pid_t tid = look_tid(look, ident);

	if (tid) {
		wait_add_blocker(ret, l->process->pid, tid, WAIT_PROVEN, how);
		each_holder(look, l->process->pid, object, true, ret);
	} else if (!blame_ancestor(l, ident, ret)) {
		ret->trouble = WAIT_DEAD_OWNER;
	}
}

bool python_inherited(struct wait_look *l, const struct python_lock *lock, struct wait *ret)
{
	struct snapshot_process *p = l->process;

	for (unsigned i = 0; i < MOST_ANCESTORS && (p = parent_of(l, p)); i++) {
		struct python_look *look = wait_python_of(l->world, l->snapshot, p);
		struct python_lock theirs;
		struct wait holders = {0};

		if (!look || !python_lock_look(look_python(look), lock->object, &theirs) ||
			theirs.kind != lock->kind)
			return false;
		if (!theirs.locked || !each_holder(look, p->pid, lock->object, false, &holders))
			continue;
		ret->trouble = WAIT_FORK_INHERITED;
		ret->trouble_tid = holders.blockers[0].tid;
		ret->grade = WAIT_INFERRED;
		WAIT_SAY(ret->detail, "thread %d of process %d holds it there%s%s", (int)ret->trouble_tid, (int)p->pid,
			*holders.blockers[0].taken ? ", taken at " : "", holders.blockers[0].taken);
		return true;
	}
	return false;
}

/* ---- whoever else works with it ---- */

static bool uses(struct python_look *look, pid_t tid, uint64_t object)
{
	const struct python_frames *frames = look_frames(look, tid);

	for (size_t i = 0; i < frames->len; i++)
		if (look_mentions(look, &frames->data[i], object))
			return true;
	return false;
}

void python_blame_users(struct wait_look *l, struct python_look *look, uint64_t object, const char *how,
	struct wait *ret)
{
	pid_t users[MOST_USERS], tid;
	struct python_lock wanted;
	size_t count = 0;

	for (size_t i = 0; (tid = look_thread(look, i)); i++) {
		const struct snapshot_thread *t = snapshot_thread(l->process, tid);

		if (tid == l->look->tid || !t || !uses(look, tid, object))
			continue;
		/* Others who wait for the same. */
		if (t->reason.state == STATE_FUTEX && look_frames(look, tid)->len &&
			python_lock_wanted(look_python(look), t->look.wait.args[0], look_frames(look, tid)->data,
				look_frames(look, tid)->len, &wanted) &&
			wanted.object == object)
			continue;
		if (count == MOST_USERS)
			return; /* one of so many says nothing */
		users[count++] = tid;
	}
	for (size_t i = 0; i < count; i++)
		wait_add_blocker(ret, l->process->pid, users[i], WAIT_CANDIDATE, how);
}
