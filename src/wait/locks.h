/* SPDX-License-Identifier: BSD-2-Clause */
/* What guards.h finds out, for the graph and the answer. */
#ifndef SONDE_WAIT_LOCKS_H
#define SONDE_WAIT_LOCKS_H

#include "wait/graph.h"
#include "wait/guards.h"

/* Adds who has guards of the lock that `waiter` waits for to its blockers, else who may have. Threads
 * waiters[0 .. count) wait for the same lock, and ascend. */
void wait_blame_guards(struct guards *g, struct snapshot_thread *waiter, const pid_t *waiters, size_t count,
	struct wait *ret);

/* Fills in names of the locks that threads of the graph wait for, and where their holders took them, as far as
 * debug information tells. */
void wait_name_locks(struct wait_graph *g);

/* The name of the lock that one thread waits for. */
void wait_name_lock(struct guards *g, struct wait_node *n);

#endif
