/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which of the sampled processes run CPython, and which of their threads is which of its threads.
 *
 * Found out when it is first asked for, and again when more was mapped, or threads have begun.
 */
#ifndef SONDE_SAMPLE_PYTHON_KNOWN_H
#define SONDE_SAMPLE_PYTHON_KNOWN_H

#include "base/vec.h"
#include "python/python.h"
#include "sample/session.h"

struct process;
struct thread;

struct known_python_thread {
	pid_t tid; /* as we know it */
	struct python_thread thread;
};

/* Of struct process. Fields are for those who take stacks (stacks.c), which may change the last two. */
struct python_of_process {
	const struct source *source;
	pid_t reader;                  /* the thread by which memory is read; where that has ended, by: */
	pid_t pid;
	struct python *python;         /* NULL: not found, or refused */
	const struct module *module;   /* that holds the runtime */
	size_t looked_mappings;        /* there were so many when it was looked for */
	uint64_t open_again_ns, threads_ns;
	struct err refusal;
	VEC(struct known_python_thread) threads; /* ascending by tid */
	uint64_t look;                 /* raw_stack.look of what python_refresh() has not forgotten */
	VEC(uint32_t) functions;       /* by the serial of a code object: 1 + its function's number; 0: none yet */
};

/* NULL is fine. */
void python_of_process_free(struct python_of_process *p);

/* Reads memory of the process: `ctx` is its struct python_of_process. */
bool python_of_process_read(void *ctx, uint64_t addr, void *buf, size_t len);

/* The CPython of a process, its memory read by one of its threads that is alive; NULL: it has none, or none that
 * can be read. */
struct python *python_of_process(struct session *s, struct process *p, pid_t reader);

/*
 * Who copies chains himself is told where they are: of a process that runs CPython, that its memory is laid out so
 * (again after exec, when it is gone before); all its threads, ascending by tid, as often as they are read; a copy of it
 * that was forked; that a thread has ended, or with tid 0 the process, or its program.
 */
struct python_follower_ops {
	void (*process)(void *ctx, pid_t pid, struct python *python);
	void (*threads)(void *ctx, pid_t pid, struct python *python,
		const struct known_python_thread *threads, size_t count);
	void (*forked)(void *ctx, pid_t parent, pid_t child);
	void (*gone)(void *ctx, pid_t pid, pid_t tid);
};
struct python_follower {
	const struct python_follower_ops *ops;
	void *ctx;
};

/* `ops` and `ctx` are borrowed as long as the session lives. What is known already is told at once. 0 or -ENOMEM. */
int session_follow_python(struct session *s, const struct python_follower_ops *ops, void *ctx);

/* What the session passes on. */
void python_tell_fork(struct session *s, pid_t parent, pid_t child);
void python_tell_gone(struct session *s, pid_t pid, pid_t tid);
/* A process that was running before the session, or anew: if somebody follows, its CPython is looked for now. */
void python_tell_process(struct session *s, struct process *p, pid_t reader);

/* Among the states of its thread, the place of one: those of interpreters that it came to later are first. */
#define PYTHON_NO_PLACE SIZE_MAX /* it is none of them, as far as that is known */
size_t python_state_place(const struct python_of_process *of, pid_t tid, uint64_t state);

/* A sampler has met a thread with that state: if that is news, or it was long ago, the threads are read again. */
void python_thread_met(struct session *s, const struct thread *th, uint64_t state);

/* Why there is none though it was found: "CPython 3.7 is not supported..."; "": there is nothing to say. */
const char *python_of_process_refusal(const struct process *p);

/* What the program calls its threads; its CPython was found. The first thread of the process has no name here: what
 * "MainThread" means is known. */
void python_each_name(struct session *s, struct process *p,
	void (*each)(void *ctx, pid_t tid, const char *name), void *ctx);

/* The states of a thread, one for each interpreter it was in, the newest of these first, at most `limit`; how many. */
#define PYTHON_MOST_STATES 8u
size_t python_thread_states(struct session *s, const struct thread *th, struct python_thread *ret,
	size_t limit);

/* All its threads as they are now, ascending by tid; how many. All that was read of its memory before is forgotten. Valid until
 * the next call for the process. */
size_t python_threads_now(struct session *s, struct process *p, pid_t reader,
	const struct known_python_thread **ret);

#endif
