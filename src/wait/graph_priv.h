/* SPDX-License-Identifier: BSD-2-Clause */
/* What graph.c (nodes and edges) and cycles.c share. */
#ifndef SONDE_WAIT_GRAPH_PRIV_H
#define SONDE_WAIT_GRAPH_PRIV_H

#include "wait/graph.h"

/* Whether an edge is one to go along. */
static inline bool graph_edge_counts(const struct wait_node *n, const struct wait_edge *e)
{
	return !n->progresses && e->grade < WAIT_CANDIDATE && n->wait.nature != WAIT_EVENT;
}

/* cycles.c: -ENOMEM. */
int graph_find_cycles(struct wait_graph *g);
int graph_count_behind(struct wait_graph *g);

#endif
