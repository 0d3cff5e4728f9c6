/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Slow, not hung: the wait graph looked at again and again, and where the time of threads went.
 *
 * Time on the CPU, and time in which a thread was ready and had none, is what the kernel counts: exact. What
 * is left of a thread's time is divided by what it was seen in (docs/heuristics/over-time.md). Blame is handed on:
 * where a thread waits for another, what counts is what the end of its chain was doing at that moment.
 *
 * Nothing is stopped. The caller owns the loop:
 *
 *	over_time_new(&options, &t, err);
 *	while (until(end, next_ns) && !over_time_look(t, &next_ns, err))
 *		;
 *	over_time_finish(t, err);
 *
 * Not for two threads at once.
 */
#ifndef SONDE_WAIT_OVER_TIME_H
#define SONDE_WAIT_OVER_TIME_H

#include "base/table.h"
#include "wait/graph.h"

struct over_options {
	struct snapshot_options snapshot; /* how running threads are seen is chosen here */
	pid_t pid;
	pid_t focus;          /* the thread to talk about, 0: docs/heuristics/over-time.md */
	uint64_t interval_ns; /* between looks; 0: OVER_TIME_INTERVAL_NS. Longer where looks cost much */
};

#define OVER_TIME_INTERVAL_NS (20 * NS_PER_MS)
#define OVER_TIME_COST_PARTS 20u /* of a CPU, one part is ours at most */

/* What time off the CPU goes to. */
enum over_class {
	OVER_BEHIND,  /* somebody else is in the way */
	OVER_DEVICE,  /* a disk or the like */
	OVER_STOPPED,
	OVER_IDLE,    /* for work or for a time, and nobody is in the way */
	OVER_CLASS_COUNT,
};

/* A thread, and what it did while somebody waited for it. */
struct over_root {
	pid_t pid, tid;      /* 0: nobody is known */
	char who[96];        /* "worker-7[812]" */
	char doing[256];     /* "ran", "waited to read from a pipe", "was ready without a CPU" */
	char function[160];  /* of its own program, in which it was mostly; "" */
	uint32_t looks;      /* so often */
	uint32_t votes;      /* its own */
};
VEC_TYPE(over_roots, struct over_root);

#define OVER_NO_LOCK SIZE_MAX

/* One of the things that a thread's time went to. */
struct over_cause {
	enum over_class class;
	size_t lock;         /* OVER_BEHIND: what it wanted, in over_time.locks; or OVER_NO_LOCK */
	char what[192];      /* behind the word "waits" */
	char function[160];  /* of its own program, in which it waited mostly; "": not looked for */
	uint32_t looks, votes;
	struct over_roots roots; /* who was at the end of its chain; most first */
};
VEC_TYPE(over_causes, struct over_cause);

struct over_thread {
	struct table_node by_tid;
	pid_t pid, tid;
	char name[PROC_NAME_BYTES];
	char words[96];      /* "main[812]" */
	bool asked;          /* of the process that was asked for */
	bool is_first;       /* of its process */
	bool ended;
	bool counted;        /* ran_ns and queued_ns are the kernel's; else they come from looks as well */
	uint64_t first_ns, last_ns; /* when it was looked at */
	uint64_t ran_ns, queued_ns; /* in between */
	uint32_t looks, running_looks, blocked_looks;
	struct over_causes causes;  /* most first */
	/* its own */
	uint64_t look, switches, ran_before, queued_before, ran_step, queued_step;
	bool slept_on;
	struct wait *idle;
	uint64_t idle_ns, idle_switches;
};
VEC_TYPE(over_threads, struct over_thread *);

/* A lock, a pipe, a socket, ...: what threads wanted that another was in the way of. */
struct over_lock {
	char object[96], name[192], declared[128], what[192];
	const char *kind;    /* static: of struct wait */
	enum wait_nature nature;
	uint64_t address;    /* of a lock in memory; 0 */
	uint64_t waiters;    /* added up over all looks */
	uint32_t most;       /* at one look */
	uint32_t held_looks; /* at which its holder was known */
	struct over_roots holders; /* who had it, and what that one did itself; most first */
	/* its own */
	uint64_t look;
	uint32_t now, name_tries;
	size_t number;
	uint64_t first_counter, last_counter, first_ns, last_ns; /* of struct wait, and when that was */
};
VEC_TYPE(over_locks, struct over_lock);

struct over_time {
	struct over_options options;
	struct snapshot *snapshot;
	char name[PROC_NAME_BYTES];  /* of the process */
	struct over_threads threads; /* by how much they lost, once finished */
	struct over_locks locks;     /* by waiters, once finished; over_cause.lock counts there */
	const struct over_thread *focus; /* once finished */
	uint64_t began_ns, ended_ns;
	uint64_t looks;
	uint64_t cpu_ns;             /* of ours in between */
	bool cut;                    /* there was more to follow than is bearable, once or more often */
	bool target_ended;
	/* its own */
	struct wait_common common;
	struct table by_tid;
	uint64_t look_cost_ns, world_ns, world_cost_ns, sampled_ns, random;
};

/* Looks once, so that what is read once is not part of what follows. -ESRCH, or what kept us from looking. */
int over_time_new(const struct over_options *options, struct over_time **ret, struct err *err);
void over_time_free(struct over_time *t);

/* One look. When the next is due: *ret_next_ns. -ESRCH: the process has ended. */
int over_time_look(struct over_time *t, uint64_t *ret_next_ns, struct err *err);

/* Puts everything in order, and chooses whom to talk about. -ESRCH: that thread was never seen. */
int over_time_finish(struct over_time *t, struct err *err);

/* ---- what came of it; all in ns ---- */

static inline uint64_t over_watched_ns(const struct over_thread *th)
{
	return th->last_ns - th->first_ns;
}

/* On a CPU, and ready without one. */
uint64_t over_ran_ns(const struct over_thread *th);
uint64_t over_ready_ns(const struct over_thread *th);

/* Off the CPU and not ready, */
uint64_t over_blocked_ns(const struct over_thread *th);

/* for this cause; what no look has seen belongs to none. */
uint64_t over_cause_ns(const struct over_thread *th, const struct over_cause *c);
uint64_t over_class_ns(const struct over_thread *th, enum over_class class);

/* What it would have used had nobody and nothing been in its way: neither running nor idle. */
uint64_t over_lost_ns(const struct over_thread *th);

/* How often a second a GIL went from one thread to another; 0 for all else. */
uint64_t over_handed_on(const struct over_lock *l);

const char *over_class_name(enum over_class class); /* "behind": stable, for JSON */

#endif
