/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * asyncio's tasks: which there are, what each has awaited its way to, and what it waits for there.
 *
 * All that asyncio itself knows of: _asyncio.Task, the same in Python, what derives from them, and tasks of other
 * loops (uvloop's are asyncio's). Those that are done are left out. Whoever does not use asyncio (trio, curio) has
 * none. Nothing is run in the process, and it need not have been prepared.
 *
 * A task that does not run is a chain of coroutines, each of which awaits the next; where a link is found is in
 * docs/heuristics/await-chain.md. What the last one waits for is told by the library's own frame there (Lock.acquire,
 * sleep, ...) or by the future that the task waits for; what cannot be told is PYTHON_WAIT_FUTURE or
 * PYTHON_WAIT_UNKNOWN, never a guess.
 *
 * The process may run meanwhile: a task whose chain did not hold is marked torn, and one that was gone is counted.
 */
#ifndef SONDE_PYTHON_TASKS_H
#define SONDE_PYTHON_TASKS_H

#include "base/intern.h"
#include "python/object.h"
#include "python/python.h"

#define PYTHON_MOST_TASKS (1u << 20)
#define PYTHON_MOST_AWAITS 4096u /* links of one chain */
#define PYTHON_NO_LOOP UINT32_MAX

enum python_task_state {
	PYTHON_TASK_RUNS,  /* its thread is in it just now */
	PYTHON_TASK_READY, /* it waits for nothing: its loop will go on with it */
	PYTHON_TASK_WAITS,
};

enum python_wait_kind {
	PYTHON_WAIT_NOTHING, /* it runs, or is ready to */
	PYTHON_WAIT_UNKNOWN,
	PYTHON_WAIT_FUTURE,  /* one of which no more is known */
	PYTHON_WAIT_TASK,    /* for the end of one, or of several: waits_for */
	PYTHON_WAIT_SLEEP,
	PYTHON_WAIT_LOCK,    /* asyncio.Lock, */
	PYTHON_WAIT_EVENT,
	PYTHON_WAIT_CONDITION,
	PYTHON_WAIT_SEMAPHORE,
	PYTHON_WAIT_BARRIER,
	PYTHON_WAIT_QUEUE,
	PYTHON_WAIT_STREAM,  /* a connection, pipe or file by asyncio's streams */
	PYTHON_WAIT_SOCKET,  /* loop.sock_recv() and the like */
	PYTHON_WAIT_EXECUTOR, /* a function in a pool of threads or processes */
	PYTHON_WAIT_PROCESS, /* a child process */
	PYTHON_WAIT_SERVER,
};

struct python_task_wait {
	enum python_wait_kind kind;
	const char *words; /* "asyncio.Lock, held, 2 wait for it": what it waits for; "" for nothing */
	uint64_t object;  /* the lock, queue, stream...; 0 */
	uint64_t future;  /* that the task waits for; a task may be one; 0 */
	uint64_t until_ns; /* PYTHON_WAIT_SLEEP: when it ends, by CLOCK_MONOTONIC; 0: not told */
	int fd;           /* that it waits for; -1 */
	int64_t pid;      /* of a child process, in the pid namespace of the process; 0 */
	uint64_t thread;  /* PYTHON_WAIT_EXECUTOR: thread state of who runs the function now; 0 */
};

VEC_TYPE(python_task_numbers, uint32_t); /* indices into struct python_tasks.tasks */

struct python_task {
	uint64_t address;
	const char *name;      /* "Task-3"; "" where it has none that can be read */
	const struct python_type *type; /* never NULL */
	uint32_t loop;         /* index; PYTHON_NO_LOOP */
	enum python_task_state state;
	bool begun;            /* false: its coroutine has not run yet */
	uint64_t coroutine;
	size_t first_frame, frame_count; /* in struct python_tasks.frames, the innermost first */
	enum python_torn torn; /* of its frames */
	const char *foreign;   /* type of what the innermost frame awaits, where that is nothing that has frames, no future
				  either: "_cython_3_0_11.coroutine"; NULL */
	struct python_task_wait wait;
	struct python_task_numbers waits_for, awaited_by; /* tasks: it ends when they do, or goes on */
};

/* A task that is inside of `async with` of a Lock, a Semaphore, or the Lock of a Condition. Who has called acquire() alone
 * is not known, nor what a task holds that runs. */
struct python_hold {
	uint64_t lock;
	uint32_t task;   /* index */
	size_t frame;    /* in struct python_tasks.frames: whose block it is */
};

struct python_loop {
	uint64_t address;
	const struct python_type *type; /* NULL: not readable */
	uint64_t interpreter;
	uint64_t thread;       /* PyThreadState that is in it; 0: none, it does not run */
};

struct python_tasks {
	VEC(struct python_task) tasks; /* ascending by address */
	VEC(struct python_loop) loops;
	VEC(struct python_hold) holds; /* ascending by lock */
	struct python_frames frames;
	uint64_t lost;  /* were no tasks any more when they were looked at */
	uint64_t torn;  /* tasks whose frames did not hold, in whole or in part */
	bool cut;       /* there are more than PYTHON_MOST_TASKS */
	bool incomplete; /* a list of tasks did not hold while it was read: some may be missing */
	bool asyncio;   /* some interpreter has imported it */
	struct intern texts;
};

/*
 * *ret is zero before, and to be released after any return. `threads` are those of python_threads().
 * -EOPNOTSUPP with words: _asyncio.Task is laid out as in no build that is known. -ENOMEM. A process without
 * asyncio has no tasks: 0.
 */
int python_tasks(struct python *p, const struct python_threads *threads, struct python_tasks *ret,
	struct err *err);
void python_tasks_release(struct python_tasks *t);

/* Who holds a lock: the first of *ret_count; NULL: nobody of whom it is known. */
const struct python_hold *python_tasks_holds(const struct python_tasks *t, uint64_t lock, size_t *ret_count);

/* What a waiting task waits for, in words that are the same for all that wait for such a thing: "asyncio.Lock",
 * "asyncio.sleep", "another task". */
void python_task_label(const struct python_task *task, struct buf *ret);

/* Index of a task by its address; -1. */
int64_t python_tasks_find(const struct python_tasks *t, uint64_t address);

#endif
