/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The CPython of a process as kinds of waits need it, at one look: its threads and their frames, its
 * GILs, and which thread is inside of which `with` statement. Read once, when it is first asked for.
 *
 * Pointers stay valid until wait_world_forget(). Nothing here says more than the memory of the process does:
 * docs/heuristics/python-locks.md.
 */
#ifndef SONDE_WAIT_PYTHONS_H
#define SONDE_WAIT_PYTHONS_H

#include "base/table.h"
#include "python/locks.h"
#include "wait/kind.h"

struct python_look;

/* A GIL; all interpreters have one together, up to 3.11. */
struct look_gil {
	struct python_gil now;
	int64_t interpreter_id; /* of one that has it */
	bool sure;              /* its holder was the same a moment later */
	pid_t holder;           /* tid, 0: nobody, or not known */
};

/* A `with` statement that a thread is inside of. */
struct look_inside {
	uint64_t object;   /* a lock, or whatever has an __exit__ */
	pid_t tid;
	const char *place; /* "app.py:41" */
	size_t frame;      /* of the thread's; innermost is 0 */
};

/* NULL: the process has no CPython, or none that can be read. */
struct python_look *wait_python(struct wait_look *l);
struct python_look *wait_python_of(struct wait_world *world, struct snapshot *s, struct snapshot_process *p);

/* Forgets all that was read: for world.c. */
void wait_pythons_forget(struct table *pythons);

struct python *look_python(const struct python_look *look);

/* The GIL that waits on `futex`, or the GIL number `index`; NULL. */
struct look_gil *look_gil_at(struct python_look *look, uint64_t futex);

/* Whether the thread is one of Python's, and another one has had the GIL that it would need for a moment or longer. */
bool look_gil_is_held(struct python_look *look, pid_t tid);

/* False when it was asked `most` times before: for what takes a while. */
bool look_takes_time(struct python_look *look, unsigned most);

/* Frames of a thread, innermost first; of all its interpreters. Never NULL. */
const struct python_frames *look_frames(struct python_look *look, pid_t tid);

/* The thread by its pthread_t, which threading.get_ident() says; 0: there is none such. */
pid_t look_tid(const struct python_look *look, uint64_t pthread);

/* Threads by number; 0: there are not so many. One thread may be there twice. */
pid_t look_thread(const struct python_look *look, size_t index);

/* All threads, appended. */
void look_copy_threads(const struct python_look *look, struct python_threads *ret);

/* All that threads are inside of; how many. */
size_t look_insides(struct python_look *look, const struct look_inside **ret);

/* "app.py:41" of a frame; "" where it has no line. */
const char *look_place(struct python_look *look, const struct python_frame *frame);

/* Whether a frame is of this file (the end of its path) and function (its last name). */
bool look_is_in(const struct python_frame *frame, const char *file, const char *function);

/* A local variable of a frame; 0: it has none such. */
uint64_t look_local(struct python_look *look, const struct python_frame *frame, const char *name);

/* What threading calls a thread ("Thread-1 (worker)"); false: it does not know it. */
bool look_thread_name(struct python_look *look, pid_t tid, char *buf, size_t size);

/* The threading.Thread objects that run: each with its ident. */
bool look_thread_objects(struct python_look *look, bool (*each)(void *ctx, uint64_t ident, uint64_t object),
	void *ctx);

/*
 * How a frame of the thread's refers to an object: "app.lock" of a global, "Cache.lock" of an attribute of
 * one of its variables, "lock in work()". Looks at frames [from, from + few). False: nothing does.
 */
bool look_object_name(struct python_look *look, pid_t tid, size_t from, uint64_t object, char *buf, size_t size);

/* The same of one frame. */
bool look_name_in(struct python_look *look, const struct python_frame *frame, uint64_t object, char *buf, size_t size);

/* Whether the code of a frame names a global, a variable or an attribute that is the object. */
bool look_mentions(struct python_look *look, const struct python_frame *frame, uint64_t object);

#endif
