/* SPDX-License-Identifier: BSD-2-Clause */
/* Who waits in a circle, and how many wait behind whom. */
#include "wait/graph_priv.h"

#include <stdlib.h>

/*
 * Strongly connected components by Tarjan's algorithm (SIAM J. Comput. 1, 1972), without recursion: a
 * chain may be as long as there are threads.
 */
struct visit {
	uint32_t order, low; /* 0: not visited */
	bool on_stack;
	size_t edge;         /* the next to follow */
};

struct search {
	struct wait_graph *g;
	struct visit *visits; /* by node */
	VEC(size_t) path, stack;
	uint32_t order;
	int rc;
};

static void enter(struct search *s, size_t at)
{
	struct visit *v = &s->visits[at];

	v->order = v->low = ++s->order;
	v->on_stack = true;
	if (vec_push(&s->path, at) || vec_push(&s->stack, at))
		s->rc = -ENOMEM;
}

static bool waits_for_itself(const struct wait_node *n)
{
	vec_each(&n->edges, e)
		if (e->to == n && graph_edge_counts(n, e))
			return true;
	return false;
}

/* Members of a component in the order in which they wait for each other, as far as one walk shows. */
static int add_cycle(struct wait_graph *g, struct wait_node *first)
{
	struct wait_nodes cycle = {0};
	struct wait_node *n = first;

	do {
		const struct wait_edge *e = NULL;

		if (vec_push(&cycle, n))
			break;
		n->listed = true;
		vec_each(&n->edges, it)
			if (!e && graph_edge_counts(n, it) && it->to->cycle == first->cycle &&
				(!it->to->listed || it->to == first))
				e = it;
		n = e ? e->to : first;
	} while (n != first);
	if (vec_push(&g->cycles, cycle)) {
		vec_release(&cycle);
		return -ENOMEM;
	}
	return 0;
}

/* A whole component lies on the stack above `at`. */
static void take_component(struct search *s, size_t at)
{
	struct wait_node *n = s->g->nodes.data[at], *member;
	uint32_t number = (uint32_t)s->g->cycles.len + 1;
	size_t members = 0;

	do {
		size_t top = s->stack.data[--s->stack.len];

		member = s->g->nodes.data[top];
		s->visits[top].on_stack = false;
		member->cycle = number;
		members++;
	} while (member != n);
	if (members == 1 && !waits_for_itself(n))
		n->cycle = 0;
	else if (add_cycle(s->g, n))
		s->rc = -ENOMEM;
}

static void leave(struct search *s, size_t at)
{
	struct visit *v = &s->visits[at];

	s->path.len--;
	if (s->path.len) {
		struct visit *up = &s->visits[s->path.data[s->path.len - 1]];

		up->low = v->low < up->low ? v->low : up->low;
	}
	if (v->low == v->order)
		take_component(s, at);
}

static void search_from(struct search *s, size_t start)
{
	enter(s, start);
	while (s->path.len && !s->rc) {
		size_t at = s->path.data[s->path.len - 1];
		struct visit *v = &s->visits[at];
		struct wait_node *n = s->g->nodes.data[at];

		if (v->edge == n->edges.len) {
			leave(s, at);
			continue;
		}

		struct wait_edge *e = &n->edges.data[v->edge++];
		struct visit *to = &s->visits[e->to->index];

		if (!graph_edge_counts(n, e))
			continue;
		if (!to->order)
			enter(s, e->to->index);
		else if (to->on_stack && to->order < v->low)
			v->low = to->order;
	}
}

static void forget_cycles(struct wait_graph *g)
{
	vec_each(&g->cycles, c)
		vec_release(c);
	g->cycles.len = 0;
}

int graph_find_cycles(struct wait_graph *g)
{
	struct search s = {.g = g};

	forget_cycles(g);
	s.visits = calloc(g->nodes.len ? g->nodes.len : 1, sizeof(*s.visits));
	if (!s.visits)
		return -ENOMEM;
	vec_each(&g->nodes, n) {
		(*n)->cycle = 0;
		(*n)->listed = false;
	}
	for (size_t i = 0; i < g->nodes.len && !s.rc; i++)
		if (!s.visits[i].order)
			search_from(&s, i);
	free(s.visits);
	vec_release(&s.path);
	vec_release(&s.stack);
	return s.rc;
}

/* ---- how many wait behind whom ---- */

/* Everybody's way goes on along one edge, wait_next(); so ways only join, and may end in a ring. */
struct ways {
	struct wait_node **next; /* by node */
	size_t *from;            /* how many ways come from elsewhere and were not yet added */
	struct wait_nodes ready;
};

static void pass_on(struct ways *w, struct wait_node *n)
{
	struct wait_node *next = w->next[n->index];

	if (!next)
		return;
	next->behind += n->behind + n->asked;
	if (!--w->from[next->index] && vec_push(&w->ready, next))
		return;
}

/* What is left is on a ring: each of its members has all the others behind it, and what they have. */
static void close_ring(struct ways *w, struct wait_node *first)
{
	struct wait_node *n = first;
	size_t all = 0;

	do {
		all += n->behind + n->asked;
		n = w->next[n->index];
	} while (n != first);
	do {
		n->behind = all - n->asked;
		w->from[n->index] = 0;
		n = w->next[n->index];
	} while (n != first);
}

int graph_count_behind(struct wait_graph *g)
{
	size_t count = g->nodes.len ? g->nodes.len : 1;
	struct ways w = {.next = calloc(count, sizeof(*w.next)), .from = calloc(count, sizeof(*w.from))};
	int rc = w.next && w.from ? vec_reserve(&w.ready, count) : -ENOMEM;

	for (size_t i = 0; i < g->nodes.len && !rc; i++) {
		const struct wait_edge *e = wait_next(g->nodes.data[i]);

		g->nodes.data[i]->behind = 0;
		w.next[i] = e ? e->to : NULL;
		if (e)
			w.from[e->to->index]++;
	}
	for (size_t i = 0; i < g->nodes.len && !rc; i++)
		if (!w.from[i])
			rc = vec_push(&w.ready, g->nodes.data[i]);
	for (size_t i = 0; i < w.ready.len && !rc; i++)
		pass_on(&w, w.ready.data[i]);
	for (size_t i = 0; i < g->nodes.len && !rc; i++)
		if (w.from[i])
			close_ring(&w, g->nodes.data[i]);
	free(w.next);
	free(w.from);
	vec_release(&w.ready);
	return rc;
}
