/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The answer: which thread the question is about, what chain of waits leads from it, and where that
 * ends. docs/heuristics/verdict.md says how one is chosen.
 */
#ifndef SONDE_WAIT_VERDICT_H
#define SONDE_WAIT_VERDICT_H

#include "wait/graph.h"

/* In the order of their names in JSON. */
enum verdict_kind {
	VERDICT_DEADLOCK,       /* threads wait for each other in a circle */
	VERDICT_SELF_DEADLOCK,  /* a thread waits for what it holds itself */
	VERDICT_TASK_DEADLOCK,  /* tasks of asyncio do so, of the loop that the thread runs */
	VERDICT_LOCK_HOLDER,    /* a thread of the same process is in the way */
	VERDICT_DEAD_OWNER,
	VERDICT_FORK_INHERITED,
	VERDICT_OWN_PIPE,
	VERDICT_PEER_PROCESS,   /* another process is in the way, or nobody is where one should be */
	VERDICT_REMOTE_PEER,
	VERDICT_STOPPED,
	VERDICT_FROZEN,
	VERDICT_THROTTLED,
	VERDICT_STARVED,        /* ready to run, and gets no CPU */
	VERDICT_SPINNING,       /* runs in circles, in one place */
	VERDICT_IDLE,           /* everybody waits for work or for a time: no problem */
	VERDICT_RUNNING,        /* it makes progress */
	VERDICT_KIND_COUNT,
};
const char *verdict_kind_name(enum verdict_kind kind);

struct wait_verdict {
	enum verdict_kind kind;
	enum wait_grade grade;      /* of the worst link in the chain */
	struct wait_node *focus;    /* whom it is about */
	struct wait_node *root;     /* where the chain ends: who is to blame, or a member of the cycle */
	struct wait_nodes chain;    /* from focus to root; with a cycle, on to the last of its members */
	size_t cycle_at;            /* index in the chain where the cycle begins; chain.len: there is none */
	uint64_t since_ns;          /* how long the focus has waited, LOOK_UNKNOWN */
};

/* `focus` is the thread to explain, 0: the most interesting one. -ENOMEM, or -ESRCH (no such thread). */
int wait_verdict(const struct wait_graph *g, pid_t focus, struct wait_verdict *ret, struct err *err);
void wait_verdict_release(struct wait_verdict *v);

/* Whether it needs a second look to be sure: something in the chain has run a moment ago, or runs. */
#define VERDICT_PASS_NS (100 * 1000000ull)
bool wait_verdict_is_fresh(const struct wait_verdict *v);

/* Whether a thread was ready to run at both looks, and had a CPU for less than so much of the time. */
bool wait_runs_below(const struct wait_node *n, unsigned percent);

/* The verdict in one sentence, for a person. */
void wait_sentence(const struct wait_verdict *v, struct buf *out);

/* "main", "worker-7[812]", "postgres[4411]": how a thread is called in answers about `about`'s process. */
void wait_thread_words(const struct wait_node *n, const struct wait_node *about, struct buf *out);

/* What is wrong with the wait itself, ", whose other end nobody holds"; nothing where nothing is. */
void wait_trouble_words(const struct wait *w, struct buf *out);

/* "41 s", "12 min". */
void wait_duration_words(uint64_t ns, struct buf *out);

#endif
