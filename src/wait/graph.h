/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The wait graph: threads, of as many processes as it takes, and who is in whose way.
 *
 * It begins with processes that the caller names, and follows blockers wherever they lead. Edges point
 * from the waiter to who is in its way. A thread without edges that others wait for is where the trouble
 * comes from (a sink); threads that wait for each other in a circle are a cycle.
 *
 * The graph borrows its snapshot and looks at more processes through it.
 */
#ifndef SONDE_WAIT_GRAPH_H
#define SONDE_WAIT_GRAPH_H

#include "base/table.h"
#include "wait/kind.h"
#include "wait/world.h"

struct guards; /* guards.h */
struct wait_node;

struct wait_edge {
	struct wait_node *to;
	enum wait_grade grade;
	const char *how;      /* static words */
	char taken[80];       /* where it took the lock, "cache.cc:95"; "" */
	bool whole_process;   /* any thread of the process may be meant; `to` is the likeliest */
};

VEC_TYPE(wait_edges, struct wait_edge);

struct wait_node {
	struct table_node by_tid;
	struct snapshot_thread *thread;
	bool asked;           /* one of the processes that the caller named */
	bool waits;           /* it is blocked, and `wait` says in what */
	const struct wait_kind *kind; /* that said so; NULL where that is remembered from before */
	bool progresses;      /* wait_graph_again(): it has run since; its edges are of the past */
	struct wait wait;
	struct wait_edges edges;
	size_t through;       /* 1 + the edge to a candidate, all of which lead to the same end; 0 */
	size_t behind;        /* asked threads that wait for it, directly or not; without itself */
	uint32_t cycle;       /* 1 + its number in graph.cycles, 0: in none */
	char doing[160];      /* the function of its own program that it is in; "" */
	size_t index;         /* in graph.nodes */
	bool examined, queued, listed, guards_looked_for; /* the graph's own */
};

VEC_TYPE(wait_nodes, struct wait_node *);

struct wait_graph {
	struct snapshot *snapshot;
	struct wait_world *world;
	struct guards *guards;
	const struct wait_common *common; /* NULL: world and guards are its own */
	struct wait_nodes nodes;
	struct table by_tid;
	VEC(struct wait_nodes) cycles; /* in the order of waiting */
	bool cut;                      /* there was more to follow than is bearable */
	struct wait_nodes queue;       /* whose edges are wanted, */
	size_t followed;               /* and so many of them are known */
	uint64_t deadline_ns;
};

int wait_graph_new(struct snapshot *s, struct wait_graph **ret, struct err *err);

/* What graphs of the same snapshot at several times have in common. Borrowed. */
struct wait_common {
	struct wait_world *world;
	struct guards *guards;
	/* Whether it is known what a thread is in: fills *ret. May be NULL. */
	bool (*recall)(void *ctx, const struct snapshot_thread *t, struct wait *ret);
	void *ctx;
};
int wait_graph_new_with(struct snapshot *s, const struct wait_common *common, struct wait_graph **ret,
	struct err *err);
void wait_graph_free(struct wait_graph *g);

/* Adds all threads of a process, and whoever is in their way. -ESRCH: gone. */
int wait_graph_add(struct wait_graph *g, pid_t pid, struct err *err);

/* Finds the cycles, and how many wait behind whom. Call when all is added, and after
 * wait_graph_again(). -ENOMEM. */
int wait_graph_finish(struct wait_graph *g, struct err *err);

/* Looks at all threads again: those that have run since do not hang. */
void wait_graph_again(struct wait_graph *g);

/* A node by the thread's id; NULL. */
struct wait_node *wait_graph_find(const struct wait_graph *g, pid_t tid);

/* The edge to follow from here when asking for the reason; NULL: there is none. Edges of candidates are
 * only followed where all of them lead to the same end, those of a thread that has moved on not at all. */
const struct wait_edge *wait_next(const struct wait_node *n);

/* It waits for work or for a time, and nobody is in its way. */
bool wait_is_idle(const struct wait_node *n);

#endif
