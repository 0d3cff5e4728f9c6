/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits of Python's library, which are locks below: for a condition, a queue, a thread, a future, a module. The
 * innermost frames say which, and what `self` of these says is told.
 */
#include "wait/futex.h"
#include "wait/kinds.h"
#include "wait/python_holders.h"

#include <string.h>

#include "python/layout.h"
#include "python/object.h"

#define BOOTSTRAP "<frozen importlib._bootstrap>"

/* One that was recognised. */
struct operation {
	struct wait_look *l;
	struct python_look *look;
	const struct operation_kind *kind;
	uint64_t self;    /* of its frame; 0: a plain function */
	size_t frame;
	uint64_t parked;  /* what the thread waits on, where that is no lock */
	char name[128];   /* of self, with a space before it; "" */
};

struct operation_kind {
	const char *file, *function;
	const char *mark;  /* an attribute that such a `self` has; NULL: it has no self */
	const char *kind;
	void (*tell)(const struct operation *o, struct wait *ret);
};

static uint64_t attribute(const struct operation *o, const char *name)
{
	return python_attribute(look_python(o->look), o->self, name);
}

/* -1: there is none. */
static int64_t number(const struct operation *o, const char *name)
{
	int64_t value;

	return python_int(look_python(o->look), attribute(o, name), &value) ? value : -1;
}

static void text(const struct operation *o, uint64_t str, char *buf, size_t size)
{
	struct buf b = {0};

	*buf = 0;
	if (python_text(look_python(o->look), str, 64, &b, NULL) && b.data)
		wait_say(buf, size, "%s", b.data);
	buf_release(&b);
}

/* ---- threading ---- */

static void tell_condition(const struct operation *o, struct wait *ret)
{
	WAIT_SAY(ret->what, "for threading.Condition%s to be notified", o->name);
}

static void tell_event(const struct operation *o, struct wait *ret)
{
	WAIT_SAY(ret->what, "for threading.Event%s to be set", o->name);
}

/* Who is inside of a `with` of it has one of its permits. */
static void tell_semaphore(const struct operation *o, struct wait *ret)
{
	WAIT_SAY(ret->what, "for threading.Semaphore%s", o->name);
	if (!python_blame_insides(o->l, o->look, o->self, ret))
		return;
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->name, "threading.Semaphore%s", o->name);
	for (size_t i = 0; ret->blocker_count > 1 && i < ret->blocker_count; i++)
		ret->blockers[i].grade = WAIT_CANDIDATE;
}

static void tell_barrier(const struct operation *o, struct wait *ret)
{
	int64_t come = number(o, "_count"), parties = number(o, "_parties");

	WAIT_SAY(ret->what, "at threading.Barrier%s", o->name);
	if (come >= 0 && parties >= 0)
		WAIT_SAY(ret->detail, "%lld of %lld have come", (long long)come, (long long)parties);
}

static void blame_thread(const struct operation *o, uint64_t thread, struct wait *ret)
{
	struct python *p = look_python(o->look);
	struct snapshot_thread *t = NULL;
	int64_t id;
	char name[64];

	text(o, python_attribute(p, thread, "_name"), name, sizeof(name));
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->what, "for the thread %s to end", *name ? name : "that it joins");
	if (python_int(p, python_attribute(p, thread, "_native_id"), &id) && id > 0 && id <= INT32_MAX)
		t = snapshot_thread_inside(o->l->process, (pid_t)id);
	if (t && t != o->l->thread)
		wait_add_blocker(ret, o->l->process->pid, t->look.tid, WAIT_PROVEN, "the thread that is joined");
}

static void tell_join(const struct operation *o, struct wait *ret)
{
	blame_thread(o, o->self, ret);
}

static void tell_start(const struct operation *o, struct wait *ret)
{
	WAIT_SAY(ret->what, "for a thread that it starts to begin");
}

/* At the end of the program all threads are joined that are no daemons: up to 3.12 by their lock, then by an
 * event in their handle, which is within so many bytes. */
#define HANDLE_BYTES 96u

struct join_search {
	const struct operation *o;
	uint64_t lock, found;
};

static bool is_joined(void *ctx, uint64_t ident, uint64_t object)
{
	struct join_search *s = ctx;
	struct python *p = look_python(s->o->look);
	uint64_t handle = python_attribute(p, object, "_os_thread_handle");

	(void)ident;
	if (!handle)
		handle = python_attribute(p, object, "_handle"); /* 3.13 */
	if (s->lock && python_attribute(p, object, "_tstate_lock") == s->lock)
		s->found = object;
	if (s->o->parked && handle && python_read_u64(p, handle + python_layout(p)->object.bytes, &handle) &&
		s->o->parked - handle < HANDLE_BYTES)
		s->found = object;
	return s->found;
}

static void tell_shutdown(const struct operation *o, struct wait *ret)
{
	const struct python_frames *frames = look_frames(o->look, o->l->look->tid);
	struct join_search s = {.o = o, .lock = look_local(o->look, &frames->data[o->frame], "lock")};

	WAIT_SAY(ret->what, "for threads that are no daemons to end");
	if (look_thread_objects(o->look, is_joined, &s))
		blame_thread(o, s.found, ret);
	WAIT_APPEND(ret->detail, "the program is at its end");
}

/* ---- queue ---- */

static void tell_get(const struct operation *o, struct wait *ret)
{
	WAIT_SAY(ret->what, "in queue.Queue.get() for an item of%s", *o->name ? o->name : " a queue");
}

static void tell_put(const struct operation *o, struct wait *ret)
{
	int64_t most = number(o, "maxsize");

	WAIT_SAY(ret->what, "in queue.Queue.put() for room in%s", *o->name ? o->name : " a queue");
	if (most > 0)
		WAIT_SAY(ret->detail, "it has all %lld that it may have", (long long)most);
}

static void tell_queue_join(const struct operation *o, struct wait *ret)
{
	int64_t left = number(o, "unfinished_tasks");

	WAIT_SAY(ret->what, "in queue.Queue.join() for all tasks of%s to be done", *o->name ? o->name : " a queue");
	if (left > 0)
		WAIT_SAY(ret->detail, "%lld are not done", (long long)left);
	python_blame_users(o->l, o->look, o->self, "its code works with the queue", ret);
	if (ret->blocker_count)
		ret->nature = WAIT_PEER;
}

/* ---- concurrent.futures ---- */

/* Threads that are in a worker's loop; and of these, who works on the future. */
static void blame_workers(const struct operation *o, bool pending, struct wait *ret)
{
	pid_t tid;

	for (size_t i = 0; (tid = look_thread(o->look, i)); i++) {
		const struct python_frames *frames = look_frames(o->look, tid);

		for (size_t k = 0; k < frames->len; k++) {
			const struct python_frame *f = &frames->data[k];
			uint64_t item;

			if (!look_is_in(f, "concurrent/futures/thread.py", "run"))
				continue;
			item = look_local(o->look, f, "self");
			if (pending)
				wait_add_blocker(ret, o->l->process->pid, tid, WAIT_INFERRED,
					"it is a worker, and has not come to it yet");
			else if (python_attribute(look_python(o->look), item, "future") == o->self)
				wait_add_blocker(ret, o->l->process->pid, tid, WAIT_INFERRED,
					"it works on the future");
		}
	}
	for (size_t i = 0; ret->blocker_count > 1 && i < ret->blocker_count; i++)
		ret->blockers[i].grade = WAIT_CANDIDATE;
}

static void tell_future(const struct operation *o, struct wait *ret)
{
	char state[32];
	bool pending;

	text(o, attribute(o, "_state"), state, sizeof(state));
	pending = !strcmp(state, "PENDING");
	WAIT_SAY(ret->what, "for the result of concurrent.futures.Future%s", o->name);
	if (pending)
		WAIT_SAY(ret->detail, "no worker has begun with it");
	blame_workers(o, pending, ret);
	if (ret->blocker_count)
		ret->nature = WAIT_PEER;
}

static void tell_futures(const struct operation *o, struct wait *ret)
{
	(void)o;
	WAIT_SAY(ret->what, "for futures of concurrent.futures to be done");
}

/* ---- import ---- */

/* Where the owner's own code imports the module: outside of the library's frames for it. */
static void say_import_place(const struct operation *o, const char *module, struct wait *ret)
{
	const struct python_frames *frames = look_frames(o->look, ret->blockers[0].tid);
	char name[64];

	ret->blockers[0].taken = NULL;
	for (size_t i = 0; i + 1 < frames->len; i++) {
		const struct python_frame *f = &frames->data[i], *outer = f + 1;

		if (!look_is_in(f, BOOTSTRAP, "_find_and_load") || !strcmp(outer->code->file, BOOTSTRAP))
			continue;
		text(o, look_local(o->look, f, "name"), name, sizeof(name));
		if (!strcmp(name, module))
			ret->blockers[0].taken = look_place(o->look, outer);
	}
}

static void tell_import(const struct operation *o, struct wait *ret)
{
	int64_t owner = number(o, "owner");
	char name[64];

	text(o, attribute(o, "name"), name, sizeof(name));
	ret->nature = WAIT_LOCK;
	ret->address = o->self;
	WAIT_SAY(ret->what, "for the lock of an import");
	WAIT_SAY(ret->name, "the import of module %s", *name ? name : "?");
	if (owner > 0)
		python_blame_ident(o->l, o->look, (uint64_t)owner, o->self, "the lock of the import says so", ret);
	if (ret->blocker_count)
		say_import_place(o, name, ret);
}

/* ---- which ---- */

/* Those of one file are asked in order; `mark` tells classes apart up to 3.10, where functions have no qualified
 * names. */
static const struct operation_kind kinds[] = {
	{"threading.py", "wait", "_waiters", "python_condition", tell_condition},
	{"threading.py", "wait_for", "_waiters", "python_condition", tell_condition},
	{"threading.py", "wait", "_flag", "python_event", tell_event},
	{"threading.py", "wait", "_parties", "python_barrier", tell_barrier},
	{"threading.py", "_wait", "_parties", "python_barrier", tell_barrier},
	{"threading.py", "_enter", "_parties", "python_barrier", tell_barrier},
	{"threading.py", "acquire", "_value", "python_semaphore", tell_semaphore},
	{"threading.py", "_wait_for_tstate_lock", "_started", "python_join", tell_join},
	{"threading.py", "join", "_started", "python_join", tell_join},
	{"threading.py", "start", "_started", "python_start", tell_start},
	{"threading.py", "_shutdown", NULL, "python_join", tell_shutdown},
	{"queue.py", "get", "unfinished_tasks", "python_queue", tell_get},
	{"queue.py", "put", "unfinished_tasks", "python_queue", tell_put},
	{"queue.py", "join", "unfinished_tasks", "python_queue", tell_queue_join},
	{"concurrent/futures/_base.py", "result", "_condition", "python_future", tell_future},
	{"concurrent/futures/_base.py", "exception", "_condition", "python_future", tell_future},
	{"concurrent/futures/_base.py", "wait", NULL, "python_future", tell_futures},
	{"concurrent/futures/_base.py", "as_completed", NULL, "python_future", tell_futures},
	{BOOTSTRAP, "acquire", "owner", "python_import", tell_import},
};

static const struct operation_kind *kind_of(
	struct python_look *look, const struct python_frame *frame, uint64_t *ret_self)
{
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (!look_is_in(frame, kinds[i].file, kinds[i].function))
			continue;
		*ret_self = look_local(look, frame, "self");
		if (!kinds[i].mark || python_attribute(look_python(look), *ret_self, kinds[i].mark))
			return &kinds[i];
	}
	return NULL;
}

/*
 * The innermost frame waits on purpose, and does not just want the lock that the object itself is
 * protected by: what it waits for is a lock that nobody has to have.
 */
static bool waits_on_purpose(
	struct python_look *look, const struct python_frame *innermost, const struct operation_kind *kind,
	uint64_t self, const struct python_lock *lock)
{
	struct python *p = look_python(look);

	if (kind->tell == tell_condition)
		return lock && look_local(look, innermost, "waiter") == lock->object;
	if (kind->tell == tell_join)
		return !lock || python_attribute(p, self, "_tstate_lock") == lock->object;
	if (kind->tell == tell_import)
		return lock && (python_attribute(p, self, "wakeup") == lock->object);
	if (kind->tell == tell_shutdown)
		return !lock || look_local(look, innermost, "lock") == lock->object;
	return false;
}

/* The outermost function of the library that waits for what the innermost one does. */
static bool recognise(struct operation *o, const struct python_lock *lock)
{
	const struct python_frames *frames = look_frames(o->look, o->l->look->tid);
	const struct operation_kind *kind;
	uint64_t self = 0;

	kind = frames->len ? kind_of(o->look, frames->data, &self) : NULL;
	if (!kind || !waits_on_purpose(o->look, frames->data, kind, self, lock))
		return false;
	for (size_t i = 0; kind; kind = ++i < frames->len ? kind_of(o->look, &frames->data[i], &self) : NULL) {
		o->kind = kind;
		o->self = kind->mark ? self : 0;
		o->frame = i;
	}
	return true;
}

static void find_name(struct operation *o)
{
	char name[sizeof(o->name) - 1];

	if (o->self && look_object_name(o->look, o->l->look->tid, o->frame + 1, o->self, name, sizeof(name)))
		WAIT_SAY(o->name, " %s", name);
}

static bool look_at_simple_queue(struct operation *o, const struct python_lock *lock, struct wait *ret)
{
	char name[128];

	if (!lock || lock->kind != PYTHON_SIMPLE_QUEUE)
		return false;
	ret->kind = "python_queue";
	if (look_object_name(o->look, o->l->look->tid, 0, lock->object, name, sizeof(name)))
		WAIT_SAY(ret->what, "in queue.SimpleQueue.get() for an item of %s", name);
	else
		WAIT_SAY(ret->what, "in queue.SimpleQueue.get() for an item");
	return true;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct operation o = {.l = l};
	struct python_lock lock;
	struct futex_call f;
	bool locked;

	if (!futex_decode(l, &f))
		return false;
	o.look = wait_python(l);
	if (!o.look || !look_frames(o.look, l->look->tid)->len)
		return false;
	locked = python_wanted(l, o.look, f.address, &lock);
	o.parked = locked ? 0 : python_parked_on(look_python(o.look), f.address);
	if (!locked && !o.parked)
		return false;
	ret->nature = WAIT_EVENT;
	if (!look_at_simple_queue(&o, locked ? &lock : NULL, ret)) {
		if (!recognise(&o, locked ? &lock : NULL))
			return false;
		find_name(&o);
		ret->kind = o.kind->kind;
		o.kind->tell(&o, ret);
	}
	futex_object(l, &f, ret);
	if (ret->nature == WAIT_LOCK && o.self)
		WAIT_SAY(ret->object, "python object %d:0x%llx", (int)l->process->pid, (unsigned long long)o.self);
	return true;
}

const struct wait_kind wait_kind_python_wait = {.name = "python_wait", .look = look, .from_memory = true};
