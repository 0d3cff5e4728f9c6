/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/graph_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "wait/kinds.h"
#include "wait/locks.h"
#include "wait/pythons.h"

/* A chain may lead through all processes of a machine; an answer in time is worth more. */
#define MOST_NODES 65536u
#define MOST_PROCESSES 512u
#define MOST_NS (5 * NS_PER_S)

int wait_graph_new_with(struct snapshot *s, const struct wait_common *common, struct wait_graph **ret,
	struct err *err)
{
	struct wait_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return err_nomem(err);
	g->snapshot = s;
	g->common = common;
	g->world = common->world;
	g->guards = common->guards;
	g->deadline_ns = clock_monotonic_ns() + MOST_NS;
	*ret = g;
	return 0;
}

int wait_graph_new(struct snapshot *s, struct wait_graph **ret, struct err *err)
{
	struct wait_graph *g = calloc(1, sizeof(*g));
	int rc = g ? wait_world_new(&g->world, err) : err_nomem(err);

	if (!rc)
		rc = guards_new(s, &g->guards, err);
	if (rc) {
		if (g)
			wait_world_free(g->world);
		free(g);
		return rc;
	}
	g->snapshot = s;
	g->deadline_ns = clock_monotonic_ns() + MOST_NS;
	*ret = g;
	return 0;
}

void wait_graph_free(struct wait_graph *g)
{
	if (!g)
		return;
	vec_each(&g->cycles, c)
		vec_release(c);
	vec_release(&g->cycles);
	vec_each(&g->nodes, n) {
		vec_release(&(*n)->edges);
		free(*n);
	}
	vec_release(&g->nodes);
	vec_release(&g->queue);
	table_release(&g->by_tid);
	if (!g->common) {
		wait_world_free(g->world);
		guards_free(g->guards);
	}
	free(g);
}

struct wait_node *wait_graph_find(const struct wait_graph *g, pid_t tid)
{
	return (struct wait_node *)table_find(&g->by_tid, (uint64_t)tid);
}

static struct wait_node *node_of(struct wait_graph *g, struct snapshot_thread *t)
{
	struct wait_node *n = wait_graph_find(g, t->look.tid);

	if (n || g->nodes.len == MOST_NODES) {
		g->cut |= !n;
		return n;
	}
	n = calloc(1, sizeof(*n));
	if (!n || vec_push(&g->nodes, n)) {
		free(n);
		return NULL;
	}
	n->thread = t;
	n->index = g->nodes.len - 1;
	if (table_add(&g->by_tid, &n->by_tid, (uint64_t)t->look.tid)) {
		g->nodes.len--;
		free(n);
		return NULL;
	}
	return n;
}

/* ---- what a thread waits for ---- */

/* After a stop the kernel goes on with a call that has a time limit as restart_syscall, and keeps its
 * arguments; which call it was, the function says that it waits in. */
static int real_call(const struct thread_wait *w)
{
	static const struct {
		const char *where;
		int call;
	} restarted[] = {
		{"futex", SYS_futex},
		{"hrtimer_nanosleep", SYS_clock_nanosleep},
		{"do_nanosleep", SYS_clock_nanosleep},
#if defined(SYS_poll)
		{"poll_schedule_timeout", SYS_poll},
		{"do_sys_poll", SYS_poll},
#endif
	};

	if (w->syscall != SYS_restart_syscall)
		return w->syscall;
	for (size_t i = 0; i < sizeof(restarted) / sizeof(restarted[0]); i++)
		if (!strncmp(w->where, restarted[i].where, strlen(restarted[i].where)))
			return restarted[i].call;
	return w->syscall;
}

static bool recall(struct wait_graph *g, struct wait_node *n)
{
	return g->common && g->common->recall && g->common->recall(g->common->ctx, n->thread, &n->wait);
}

static struct wait_look look_of(struct wait_graph *g, struct snapshot_thread *t)
{
	return (struct wait_look){
		.snapshot = g->snapshot,
		.world = g->world,
		.process = t->process,
		.thread = t,
		.look = &t->look,
		.call = real_call(&t->look.wait),
		.args = t->look.wait.args,
	};
}

static bool ask_kinds(struct wait_graph *g, struct wait_node *n)
{
	struct snapshot_thread *t = n->thread;
	struct wait_look l = look_of(g, t);

	for (const struct wait_kind *const *kind = wait_kinds; *kind; kind++) {
		if (t->process->source->still && !(*kind)->from_memory)
			continue;
		n->wait = (struct wait){.timeout_ns = LOOK_UNKNOWN};
		if ((*kind)->look(&l, &n->wait)) {
			if (!n->wait.kind)
				n->wait.kind = (*kind)->name;
			n->kind = *kind;
			return true;
		}
	}
	return false;
}

static bool asks_for_gil(struct wait_graph *g, struct wait_node *n)
{
	struct wait_look l = look_of(g, n->thread);

	n->wait = (struct wait){.timeout_ns = LOOK_UNKNOWN};
	if (!wait_asks_for_gil(&l, &n->wait))
		return false;
	n->kind = &wait_kind_python_gil;
	n->wait.kind = n->kind->name;
	return true;
}

/* ---- who is in its way ---- */

/* The likeliest thread of a process that has to do something, any of them: one that is stopped or runs
 * says most, then one that is held up itself; idle ones least. */
static unsigned likelihood(const struct wait_node *n)
{
	bool first = n->thread->look.tid == n->thread->process->pid;

	if (!n->waits)
		return 6 + first;
	switch (n->wait.nature) {
	case WAIT_STOPPED:
		return 8 + first;
	case WAIT_LOCK:
	case WAIT_PEER:
	case WAIT_DEVICE:
		return 4 + first;
	default:
		return 0 + first;
	}
}

static struct wait_node *examined(struct wait_graph *g, struct snapshot_thread *t);

static struct wait_node *likeliest(struct wait_graph *g, struct snapshot_process *p, const struct wait_node *not)
{
	struct wait_node *best = NULL;

	vec_each(&p->threads, t) {
		struct wait_node *n = examined(g, *t);

		if (n && n != not && (!best || likelihood(n) > likelihood(best)))
			best = n;
	}
	return best ? best : p->threads.len ? examined(g, p->threads.data[0]) : NULL;
}

/* Edges are wanted of what was asked for, and of whoever is in its way. */
static int enqueue(struct wait_graph *g, struct wait_node *n)
{
	if (n->queued)
		return 0;
	n->queued = true;
	return vec_push(&g->queue, n);
}

static void add_edge(struct wait_graph *g, struct wait_node *n, const struct wait_blocker *b)
{
	struct wait_edge edge = {.grade = b->grade, .how = b->how, .whole_process = !b->tid};
	struct snapshot_process *p;
	struct snapshot_thread *t = NULL;

	if (snapshot_process_count(g->snapshot) >= MOST_PROCESSES && !snapshot_known(g->snapshot, b->pid)) {
		g->cut = true;
		return;
	}
	if (snapshot_process(g->snapshot, b->pid, &p, NULL) || !p->threads.len)
		return;
	edge.whole_process = !b->tid && p->threads.len > 1;
	t = b->tid ? snapshot_thread(p, b->tid) : p->threads.len == 1 ? p->threads.data[0] : NULL;
	edge.to = t ? node_of(g, t) : b->tid ? NULL : likeliest(g, p, n);
	if (b->taken)
		WAIT_SAY(edge.taken, "%s", b->taken);
	if (edge.whole_process && edge.grade < WAIT_INFERRED)
		edge.grade = WAIT_INFERRED;
	if (edge.to && (vec_push(&n->edges, edge) || enqueue(g, edge.to)))
		g->cut = true;
}

/* A node whose wait is known; its edges come later. */
static struct wait_node *examined(struct wait_graph *g, struct snapshot_thread *t)
{
	struct wait_node *n = node_of(g, t);

	if (!n || n->examined)
		return n;
	n->examined = true;
	if (t->look.wait.blocked || strchr("TtD", t->look.wait.state) || t->process->refused)
		n->waits = recall(g, n) || ask_kinds(g, n);
	else if (t->look.wait.state == 'R')
		n->waits = asks_for_gil(g, n);
	return n;
}

static bool waits_for_same(const struct wait_node *a, const struct wait_node *b)
{
	return a && b->waits && b->wait.address && a->waits && a->wait.address == b->wait.address &&
		!strcmp(a->wait.object, b->wait.object);
}

/* A lock without an owner: who holds it shows on the stacks, once for all who wait for it. */
static void look_for_guards(struct wait_graph *g, struct wait_node *n)
{
	VEC(pid_t) waiters = {0};

	vec_each(&n->thread->process->threads, t) {
		const struct wait_node *other = examined(g, *t);

		if (!waits_for_same(other, n))
			continue;
		if (other != n && other->guards_looked_for) {
			memcpy(n->wait.blockers, other->wait.blockers, sizeof(n->wait.blockers));
			n->wait.blocker_count = other->wait.blocker_count;
			n->wait.blockers_more = other->wait.blockers_more;
			vec_release(&waiters);
			return;
		}
		(void)vec_push(&waiters, (*t)->look.tid);
	}
	n->guards_looked_for = true;
	wait_blame_guards(g->guards, n->thread, waiters.data, waiters.len, &n->wait);
	vec_release(&waiters);
}

static void follow(struct wait_graph *g, struct wait_node *n)
{
	examined(g, n->thread);
	if (n->waits && n->wait.ownerless && !n->wait.blocker_count && n->wait.address)
		look_for_guards(g, n);
	for (size_t i = 0; i < n->wait.blocker_count; i++)
		add_edge(g, n, &n->wait.blockers[i]);
}

static void follow_all(struct wait_graph *g)
{
	for (; g->followed < g->queue.len; g->followed++) {
		if (clock_monotonic_ns() > g->deadline_ns) {
			g->cut = true;
			return;
		}
		follow(g, g->queue.data[g->followed]);
	}
}

int wait_graph_add(struct wait_graph *g, pid_t pid, struct err *err)
{
	struct snapshot_process *p;
	int rc = snapshot_process(g->snapshot, pid, &p, err);

	if (rc)
		return rc;
	vec_each(&p->threads, t) {
		struct wait_node *n = node_of(g, *t);

		if (!n || enqueue(g, n))
			return err_nomem(err);
		n->asked = true;
	}
	follow_all(g);
	return 0;
}

/* It has run, and is where it was: between two short sleeps. */
static bool is_back(struct wait_graph *g, struct wait_node *n)
{
	struct snapshot_thread *t = n->thread;
	struct wait_look l = look_of(g, t);

	if (!n->wait.polls || !t->seen_again)
		return false;
	if (n->kind && n->kind->again)
		return n->kind->again(&l, &t->later, &n->wait);
	return t->later.wait.blocked && t->later.wait.syscall == t->look.wait.syscall &&
		t->later.wait.sp == t->look.wait.sp;
}

void wait_graph_again(struct wait_graph *g)
{
	snapshot_again(g->snapshot);
	wait_pythons_forget(wait_world_pythons(g->world));
	vec_each(&g->nodes, n)
		(*n)->progresses = (*n)->thread->moved_since && !is_back(g, *n);
}

/* ---- edges to go along ---- */

/* Of those that are sure enough, the best. */
static const struct wait_edge *best_edge(const struct wait_node *n)
{
	const struct wait_edge *best = NULL;

	vec_each(&n->edges, e) {
		if (!graph_edge_counts(n, e))
			continue;
		/* In a cycle, on along it. */
		if (n->cycle && e->to->cycle == n->cycle)
			return e;
		if (!best || e->grade < best->grade)
			best = e;
	}
	return best;
}

const struct wait_edge *wait_next(const struct wait_node *n)
{
	return n->through ? &n->edges.data[n->through - 1] : best_edge(n);
}

/* How far it is to the end of a way, and what is there. A circle has no end. */
static const struct wait_node *end_of_way(const struct wait_graph *g, const struct wait_node *n, size_t *ret_steps)
{
	const struct wait_edge *e;

	for (*ret_steps = 0; (e = best_edge(n)) && *ret_steps < g->nodes.len; (*ret_steps)++)
		n = e->to;
	return e ? NULL : n;
}

/* Of several that may be in the way, each waits in the end for the same one: then that one it is. The
 * longest way tells most. */
static void find_common_end(const struct wait_graph *g, struct wait_node *n)
{
	const struct wait_node *common = NULL;
	size_t longest = 0, steps;

	n->through = 0;
	if (n->edges.len < 2 || n->progresses || n->wait.blockers_more ||
		(n->wait.nature != WAIT_LOCK && n->wait.nature != WAIT_PEER) || best_edge(n))
		return;
	for (size_t i = 0; i < n->edges.len; i++) {
		const struct wait_node *end = end_of_way(g, n->edges.data[i].to, &steps);

		if (!end || (common && end != common)) {
			n->through = 0;
			return;
		}
		common = end;
		if (!n->through || steps > longest) {
			n->through = i + 1;
			longest = steps;
		}
	}
}

bool wait_is_idle(const struct wait_node *n)
{
	return n->waits && (n->wait.nature == WAIT_EVENT || n->wait.nature == WAIT_TIME);
}

int wait_graph_finish(struct wait_graph *g, struct err *err)
{
	vec_each(&g->nodes, n)
		find_common_end(g, *n);
	return graph_find_cycles(g) || graph_count_behind(g) ? err_nomem(err) : 0;
}
