/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files about tasks and greenlets share. */
#ifndef SONDE_PYTHON_TASKS_PRIV_H
#define SONDE_PYTHON_TASKS_PRIV_H

#include "python/object_priv.h"
#include "python/tasks.h"

/* The frames of a thread, as they stood when the look began. */
struct thread_stack {
	const struct python_thread *thread;
	size_t first, count; /* in struct tasks_look.stacks, the innermost first */
};

/* A lock whose __aexit__ a frame has. */
struct held {
	uint64_t lock, frame;
};

/* A word that was read, and has not changed as long as what was made of it holds. */
struct watched {
	uint64_t addr, value;
};

/* Bits of references in frames (pycore_stackref.h), 3.14. */
#define PYTHON_REFERENCE_TAGS 3ULL

/* Where the fields of _asyncio.Future and _asyncio.Task are; they are in none of CPython's headers. */
struct future_layout {
	bool known;
	uint32_t loop, callback, callbacks, state;         /* of both; state: int, 0: pending */
	uint32_t awaited_by;                               /* of both, 3.14: a task or a set of them; or 0 */
	uint32_t waiter, coroutine, name;                  /* of tasks */
	uint32_t node;                                     /* of tasks, 3.14: links of the ring; or 0 */
};

struct tasks_look {
	struct python *p;
	const struct python_threads *threads;
	struct python_tasks *ret;
	struct err *err;
	struct future_layout layout;
	struct python_frames stacks;
	VEC(struct thread_stack) by_thread;
	VEC(uint64_t) found;   /* addresses of tasks */
	VEC(struct held) held; /* of the task that is being read, the outermost frame's first */
	VEC(struct watched) watched; /* the same */
	struct python_link *links; /* room for PYTHON_MOST_AWAITS */
};

/* A future or a task, in C or in Python. */
struct future {
	uint64_t address;
	bool c;    /* one of _asyncio's */
	bool task;
	bool done;
};

/* The text, kept as long as look->ret; NULL: out of memory. */
const char *tasks_text(struct tasks_look *look, const struct buf *text);

/* ---- futures.c ---- */

/* Sets look->layout for what the type _asyncio.Task says of itself. -EOPNOTSUPP: it is none that is known. */
int future_layout(struct tasks_look *look, const struct python_type *task);

/* False: it is no future, or one of _asyncio's without a layout. */
bool future_look(struct tasks_look *look, uint64_t object, struct future *ret);

/* 0: none. */
uint64_t future_loop(struct tasks_look *look, const struct future *f);
uint64_t task_waiter(struct tasks_look *look, const struct future *f);
uint64_t task_coroutine(struct tasks_look *look, const struct future *f);
void task_name(struct tasks_look *look, const struct future *f, struct buf *ret);

/* What is to be called when it is done, until `each` returns true, which is returned. */
bool future_callbacks(struct tasks_look *look, const struct future *f, bool (*each)(void *ctx, uint64_t callback),
	void *ctx);

/* Each task that is known to await it: 3.14 keeps them. */
bool future_awaited_by(struct tasks_look *look, const struct future *f, bool (*each)(void *ctx, uint64_t task),
	void *ctx);

/* Items of a list, tuple, set or frozenset; of a weakref.WeakSet, what its references lead to. */
bool python_each_item(struct python *p, uint64_t object, bool (*each)(void *ctx, uint64_t item), void *ctx);

/* Whether a type, or one that it derives from, has this full name ("asyncio.locks.Lock"). */
bool python_derives(struct python *p, const struct python_type *type, const char *full_name);
const struct python_type *python_base(struct python *p, const struct python_type *type); /* NULL: none */

/* ---- await_chain.c ---- */

/* How far a coroutine or the like has come. */
enum progress {
	PROGRESS_UNREADABLE,
	PROGRESS_NOT_BEGUN,
	PROGRESS_SUSPENDED,
	PROGRESS_RUNS,
	PROGRESS_ENDED,
};

struct await_chain {
	enum progress progress; /* of the last one that has frames */
	uint64_t end;           /* what that awaits: a future, or what is not known; 0: nothing */
	enum python_torn torn;
	bool failed;            /* out of memory */
};

/* Frames of a coroutine, and of what it awaits, and so on; appended to look->ret->frames, the innermost
 * first. -ENOMEM. */
int await_chain(struct tasks_look *look, uint64_t coroutine, struct await_chain *ret);

/* Reads the word and remembers it; whether all that were remembered are what they were. */
void tasks_watch(struct tasks_look *look, uint64_t addr);
bool tasks_stood_still(struct tasks_look *look);

/* ---- task_holds.c ---- */

/* Looks through the value stack of one frame, for look->held. -ENOMEM. */
int task_holds_in(struct tasks_look *look, uint64_t frame, uint64_t stack, uint64_t top);

/* Of the task that will be the next in look->ret: moves look->held there. -ENOMEM. */
int task_holds_end(struct tasks_look *look, const struct python_task *task);
void task_holds_sort(struct tasks_look *look);

/* The Lock or Semaphore that an object of asyncio's is, or (a Condition) uses; 0: it is none of them. */
uint64_t task_lock(struct python *p, uint64_t object);

/* ---- task_wait.c ---- */

/* Fills task->wait, and pushes addresses of tasks that it waits for to `waits_for`. `f` is the task. */
VEC_TYPE(addresses, uint64_t);
int task_wait(struct tasks_look *look, const struct future *f, const struct await_chain *chain,
	struct python_task *task, struct addresses *waits_for);

/* A variable of a frame by its name; 0: it has none such, or no value. */
uint64_t python_local(struct python *p, const struct python_frame *frame, const char *name);

/* Whether the frame is of a function of asyncio's file, "locks.py". */
bool is_asyncio(const struct python_frame *frame, const char *file);

#endif
