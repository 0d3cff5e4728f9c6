/* SPDX-License-Identifier: BSD-2-Clause */
/* Whom to talk about, and where the chain ends. Words are made of it in sentence.c. */
#include "wait/verdict.h"

#include <errno.h>
#include <string.h>

const char *verdict_kind_name(enum verdict_kind kind)
{
	static const char *const names[VERDICT_KIND_COUNT] = {
		[VERDICT_DEADLOCK] = "deadlock",
		[VERDICT_SELF_DEADLOCK] = "self_deadlock",
		[VERDICT_TASK_DEADLOCK] = "task_deadlock",
		[VERDICT_LOCK_HOLDER] = "lock_holder",
		[VERDICT_DEAD_OWNER] = "dead_owner",
		[VERDICT_FORK_INHERITED] = "fork_inherited",
		[VERDICT_OWN_PIPE] = "own_pipe",
		[VERDICT_PEER_PROCESS] = "peer_process",
		[VERDICT_REMOTE_PEER] = "remote_peer",
		[VERDICT_STOPPED] = "stopped",
		[VERDICT_FROZEN] = "frozen",
		[VERDICT_THROTTLED] = "throttled",
		[VERDICT_STARVED] = "starved",
		[VERDICT_SPINNING] = "spinning",
		[VERDICT_IDLE] = "idle",
		[VERDICT_RUNNING] = "running",
	};

	return names[kind];
}

/* ---- whom it is about ---- */

static bool is_first(const struct wait_node *n)
{
	return n->thread->look.tid == n->thread->process->pid;
}

/* Somebody has it, or has to do something, and nobody knows who. */
static bool waits_for_unknown(const struct wait_node *n)
{
	return n->waits && !n->progresses && !wait_next(n) &&
		(n->wait.nature == WAIT_LOCK || (n->wait.nature == WAIT_PEER && n->edges.len));
}

/* It is held up: by somebody, by something wrong, or because it was stopped. */
static bool is_held_up(const struct wait_node *n)
{
	return n->waits && !n->progresses &&
		(n->wait.trouble || n->wait.nature == WAIT_STOPPED || waits_for_unknown(n) ||
			wait_next(n));
}

static const struct wait_node *end_of(const struct wait_graph *g, const struct wait_node *n)
{
	size_t steps = 0;

	for (const struct wait_edge *e; !n->cycle && steps < g->nodes.len && (e = wait_next(n)); steps++)
		n = e->to;
	return n;
}

/* It, or one in whose queue it is, wants something that somebody holds, or was made to stop. A thread that only
 * expects something from a peer may do so all its life. */
static bool is_about_locks(const struct wait_graph *g, const struct wait_node *n)
{
	size_t steps = 0;

	for (const struct wait_edge *e; steps <= g->nodes.len; steps++) {
		if (n->waits && (n->wait.nature == WAIT_LOCK || n->wait.nature == WAIT_STOPPED || n->cycle))
			return true;
		e = wait_next(n);
		if (!e)
			break;
		n = e->to;
	}
	return false;
}

/* How much a thread is worth talking about; 0: not at all. */
static uint64_t interest(const struct wait_graph *g, const struct wait_node *n)
{
	const struct wait_node *end = end_of(g, n);
	uint64_t weight = end->behind + 1 < 1u << 20 ? end->behind + 1 : 1u << 20;

	if (!is_held_up(n) || (!is_first(n) && !is_about_locks(g, n)))
		return 0;
	if (end->cycle)
		weight |= 1ull << 40;
	/* Whoever looks at a process means its first thread, if that does not run. */
	if (is_first(n))
		weight |= 1ull << 30;
	return weight;
}

#define BUSY_FRACTION 5u

/* It is on a CPU, or was for a good part of the time between two looks. */
static bool runs(const struct wait_node *n)
{
	const struct snapshot_thread *t = n->thread;

	return t->look.wait.state == 'R' ||
		(t->seen_again && t->look.ran_ns != LOOK_UNKNOWN && t->later.ran_ns != LOOK_UNKNOWN &&
			(t->later.ran_ns - t->look.ran_ns) * BUSY_FRACTION > t->later.at_ns - t->look.at_ns);
}

static struct wait_node *most_interesting(const struct wait_graph *g)
{
	struct wait_node *best = NULL, *first = NULL, *running = NULL;
	uint64_t most = 0;

	vec_each(&g->nodes, it) {
		struct wait_node *n = *it;
		uint64_t weight = n->asked ? interest(g, n) : 0;

		if (!n->asked)
			continue;
		if (weight > most) {
			most = weight;
			best = n;
		}
		if (!first || is_first(n))
			first = n;
		if (runs(n) && (!running || is_first(n)))
			running = n;
	}
	if (best)
		return best;
	/* Nobody is held up: one that runs, else the first. */
	return running && first && !runs(first) ? running : first;
}

/* ---- where it ends ---- */

/* Whoever is ready all the time between two looks, and gets less of it than this. */
#define STARVED_PERCENT 10u

static int build_chain(const struct wait_graph *g, struct wait_verdict *v, struct err *err)
{
	struct wait_node *n = v->focus;

	v->grade = WAIT_PROVEN;
	v->cycle_at = SIZE_MAX;
	for (size_t steps = 0; steps <= g->nodes.len; steps++) {
		const struct wait_edge *e = wait_next(n);

		if (n->cycle && v->cycle_at == SIZE_MAX)
			v->cycle_at = v->chain.len;
		if (vec_push(&v->chain, n))
			return err_nomem(err);
		if (n->wait.grade > v->grade && n->waits)
			v->grade = n->wait.grade;
		if (!e || n->wait.nature == WAIT_STOPPED)
			break;
		if (e->grade > v->grade)
			v->grade = n->through ? WAIT_INFERRED : e->grade;
		n = e->to;
		for (size_t i = 0; i < v->chain.len; i++)
			if (v->chain.data[i] == n)
				goto closed;
	}
closed:
	v->root = v->chain.data[v->chain.len - 1];
	if (v->cycle_at > v->chain.len)
		v->cycle_at = v->chain.len;
	return 0;
}

bool wait_runs_below(const struct wait_node *n, unsigned percent)
{
	const struct snapshot_thread *t = n->thread;

	return t->seen_again && t->look.wait.state == 'R' && t->later.wait.state == 'R' &&
		t->look.ran_ns != LOOK_UNKNOWN && t->later.ran_ns != LOOK_UNKNOWN &&
		t->later.ran_ns - t->look.ran_ns < (t->later.at_ns - t->look.at_ns) / 100 * percent;
}

static enum verdict_kind kind_of_trouble(enum wait_trouble trouble)
{
	switch (trouble) {
	case WAIT_DEAD_OWNER:
		return VERDICT_DEAD_OWNER;
	case WAIT_FORK_INHERITED:
		return VERDICT_FORK_INHERITED;
	case WAIT_OWN_PIPE:
		return VERDICT_OWN_PIPE;
	case WAIT_REMOTE:
		return VERDICT_REMOTE_PEER;
	case WAIT_FROZEN:
		return VERDICT_FROZEN;
	case WAIT_TRACED:
		return VERDICT_STOPPED;
	case WAIT_TASK_CIRCLE:
		return VERDICT_TASK_DEADLOCK;
	case WAIT_NOBODY:
	case WAIT_NO_TROUBLE:
		break;
	}
	return VERDICT_PEER_PROCESS;
}

/* All who may be meant are of other processes. */
static bool is_about_others(const struct wait_node *n)
{
	vec_each(&n->edges, e)
		if (e->to->thread->process == n->thread->process)
			return false;
	return n->edges.len;
}

/* An event loop that woke up between the looks, and is back at its wait having done next to nothing. */
static bool is_idling(const struct wait_node *n)
{
	const struct snapshot_thread *t = n->thread;

	return wait_is_idle(n) && t->seen_again && t->later.wait.blocked &&
		t->later.wait.syscall == t->look.wait.syscall && t->look.ran_ns != LOOK_UNKNOWN &&
		t->later.ran_ns - t->look.ran_ns < VERDICT_PASS_NS / 20;
}

static enum verdict_kind kind_of(const struct wait_verdict *v)
{
	const struct wait_node *root = v->root, *focus = v->focus;

	if (v->cycle_at < v->chain.len)
		return v->chain.len - v->cycle_at == 1 ? VERDICT_SELF_DEADLOCK : VERDICT_DEADLOCK;
	if (root->waits && !root->progresses && root->wait.trouble)
		return kind_of_trouble(root->wait.trouble);
	if (root->waits && root->wait.nature == WAIT_STOPPED)
		return VERDICT_STOPPED;
	if (wait_runs_below(root, STARVED_PERCENT))
		return root->thread->look.throttled ? VERDICT_THROTTLED : VERDICT_STARVED;
	if (root->thread->process != focus->thread->process ||
		(waits_for_unknown(root) && is_about_others(root)))
		return VERDICT_PEER_PROCESS;
	if (root != focus || waits_for_unknown(root))
		return VERDICT_LOCK_HOLDER;
	/* Nothing is known but that it sleeps. */
	if (!root->waits && !root->progresses && strchr("SD", root->thread->look.wait.state))
		return VERDICT_IDLE;
	return is_idling(root) || (wait_is_idle(root) && !root->progresses) ? VERDICT_IDLE
									     : VERDICT_RUNNING;
}

int wait_verdict(const struct wait_graph *g, pid_t focus, struct wait_verdict *ret, struct err *err)
{
	struct wait_verdict v = {.since_ns = LOOK_UNKNOWN};
	int rc;

	v.focus = focus ? wait_graph_find(g, focus) : most_interesting(g);
	if (!v.focus)
		return focus ? err_set(err, ESRCH, "there is no thread %d among those looked at", (int)focus)
			     : err_set(err, ESRCH, "there is no thread to explain");
	rc = build_chain(g, &v, err);
	if (rc) {
		wait_verdict_release(&v);
		return rc;
	}
	v.kind = kind_of(&v);
	if (waits_for_unknown(v.root) && !v.root->wait.trouble)
		v.grade = WAIT_CANDIDATE;
	if (v.focus->waits && !v.focus->progresses && !v.focus->wait.polls)
		v.since_ns = v.focus->thread->look.idle_ns;
	*ret = v;
	return 0;
}

void wait_verdict_release(struct wait_verdict *v)
{
	vec_release(&v->chain);
}

bool wait_verdict_is_fresh(const struct wait_verdict *v)
{
	vec_each(&v->chain, it) {
		const struct thread_look *look = &(*it)->thread->look;

		if (!look->wait.blocked || look->idle_ns == LOOK_UNKNOWN ||
			look->idle_ns < VERDICT_PASS_NS)
			return true;
	}
	return false;
}
