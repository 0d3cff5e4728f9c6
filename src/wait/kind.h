/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Kinds of waits: what a blocked thread waits for, and who is in its way.
 *
 * A kind is one file in kinds/ and one row in kinds.c. Rows are asked in order; the first that
 * recognises the thread's call fills in a struct wait. It says what it knows and how it knows it; the
 * graph (graph.c) follows the blockers, into other processes as well, and judges.
 *
 * Everything that is read of a target may be a lie, or change while it is read: kinds check every
 * thread id against threads that exist, bound every loop, and claim nothing they have not seen.
 */
#ifndef SONDE_WAIT_KIND_H
#define SONDE_WAIT_KIND_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/vec.h"
#include "sample/snapshot/snapshot.h"

/* How sure an edge is. Values are ordered: a chain is as good as its worst edge. */
enum wait_grade {
	WAIT_PROVEN,    /* the lock or the kernel names the holder, and it was checked */
	WAIT_OBSERVED,  /* the holder was seen to release it before */
	WAIT_INFERRED,  /* it follows from what was read, by a rule that can be wrong */
	WAIT_CANDIDATE, /* one of several who may be it */
};
const char *wait_grade_name(enum wait_grade grade);

/* What a thread's waiting means where nobody is seen to be in its way. */
enum wait_nature {
	WAIT_LOCK,    /* somebody holds what it wants */
	WAIT_PEER,    /* somebody has to do something: write, read, end */
	WAIT_EVENT,   /* for work or news that may come or not: idle pools, event loops */
	WAIT_TIME,    /* for a time to come */
	WAIT_DEVICE,  /* for a disk or another piece of the machine */
	WAIT_STOPPED, /* it was made to stop */
};

/* Something that is wrong with the wait itself; the verdict is made of it. */
enum wait_trouble {
	WAIT_NO_TROUBLE,
	WAIT_DEAD_OWNER,     /* the holder ended without letting go */
	WAIT_FORK_INHERITED, /* locked when the process was forked, by a thread only its parent has */
	WAIT_OWN_PIPE,       /* only the waiting process itself holds the other end */
	WAIT_REMOTE,         /* the other end is on another machine */
	WAIT_NOBODY,         /* nobody at all holds the other end */
	WAIT_FROZEN,         /* by a cgroup freezer */
	WAIT_TRACED,         /* by a debugger, which is the blocker */
	WAIT_TASK_CIRCLE,    /* tasks that the thread runs wait for each other */
};

struct wait_blocker {
	pid_t pid;
	pid_t tid;               /* 0: the process as a whole, any of its threads */
	enum wait_grade grade;
	const char *how;         /* static words on why it is the one: "__owner of the mutex" */
	const char *taken;       /* where it took the lock, "app.py:41", or NULL; the world's (wait_world_forget()) */
};

#define WAIT_MOST_BLOCKERS 64u

struct wait {
	const char *kind;        /* "mutex": stable, for JSON; a static string */
	enum wait_nature nature;
	enum wait_trouble trouble;
	enum wait_grade grade;   /* of what is said about the object */
	char object[96];         /* two threads with the same text wait for the same thing: "futex 812:0x7f..",
				    "pipe:[1234]"; "" where there is no such thing */
	char what[160];          /* for a person, behind the word "waits": "for a mutex", "to read from a pipe" */
	char detail[384];        /* more, where there is: "64 KiB in it, full"; "" */
	char name[192];          /* of the object, where it has one: "std::mutex Cache::rw"; "" */
	char declared[128];      /* where that is declared: "cache.cc:118"; "" */
	uint64_t address;        /* of the object in the process's memory, so that it can be named; 0 */
	uint64_t object_bytes;   /* at `address`; 0: one word */
	bool ownerless;          /* the lock does not say who holds it: the graph looks for guards on stacks */
	bool polls;              /* it sleeps for a moment, looks, and sleeps again: that it runs means nothing */
	pid_t trouble_tid;       /* of the trouble: who it was */
	bool own;                /* only the process itself, another thread of it, can end the wait */
	uint64_t counter;        /* of a GIL: how often it went from one thread to another so far; 0 */
	uint64_t timeout_ns;     /* what is left of a time limit, LOOK_UNKNOWN: none or not known */
	struct wait_blocker blockers[WAIT_MOST_BLOCKERS];
	size_t blocker_count;
	size_t blockers_more;    /* that there was no room for */
};

struct wait_world; /* world.h: what is open where, sockets, file locks */

/* What a kind is asked about. */
struct wait_look {
	struct snapshot *snapshot;
	struct wait_world *world;
	struct snapshot_process *process;
	struct snapshot_thread *thread;
	const struct thread_look *look; /* of the thread */
	int call;                /* the system call, with restart_syscall seen through; -1 */
	const uint64_t *args;    /* of it */
};

struct wait_kind {
	const char *name;
	/* Whether the thread waits for this; fills *ret, which is all zero but for timeout_ns. A `kind`
	 * that it leaves NULL becomes the name above. */
	bool (*look)(struct wait_look *l, struct wait *ret);
	/* The thread has run since, and is back in a call that it waits in: whether it still waits for the same, of
	 * those that `polls`. `now` is what it is in; *ret may be told more. NULL: whether it waits at the same
	 * place of its stack. */
	bool (*again)(struct wait_look *l, const struct thread_look *now, struct wait *ret);
	/* It reads the process's memory and stacks and asks nothing else: such kinds are all that is asked
	 * about a core. */
	bool from_memory;
};

/* kinds.c: the table, ended by NULL. */
extern const struct wait_kind *const wait_kinds[];

/* For kinds: the function that frame `index` of a thread is in (leaf first; not what was inlined there),
 * "" where it has no name or there is no such frame. The stack is read when it was not. Valid until the
 * next call for any thread. */
const char *wait_function(struct wait_look *l, struct snapshot_thread *t, size_t index);

/* Whether a function has that name; one that ends in '*' stands for all that begin so. */
bool wait_is_name(const char *function, const char *name);

/* The first frame below `limit` of a thread whose function is one of the names (ended by NULL); -1: none. */
#define WAIT_LEAF_FRAMES 12
int wait_find_function(struct wait_look *l, struct snapshot_thread *t, const char *const *names,
	size_t limit);

/* Adds a blocker unless it is there already. */
void wait_add_blocker(struct wait *w, pid_t pid, pid_t tid, enum wait_grade grade, const char *how);

/* Control characters become '?': names come from files and processes, and nothing in them may move a terminal's
 * cursor. wait_say() does that. */
void wait_make_printable(char *text);

void wait_say(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define WAIT_SAY(field, ...) wait_say((field), sizeof(field), __VA_ARGS__)

#endif
