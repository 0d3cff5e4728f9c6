/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * One look after another. Each makes a graph over the same snapshot, and adds what it shows to sums by thread
 * and by lock (over_sums.c).
 */
#include "wait/over_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "wait/guards.h"

#define LONGEST_INTERVAL_NS NS_PER_S

/* Who has which file open is read again after so long, and more seldom where it takes long. */
#define WORLD_NS NS_PER_S
#define WORLD_COST_PARTS 50u

/* A look that costs so many times what looks cost is an odd one. */
#define ODD_COST 4u

/* What an idle thread waits for may depend on others, so it is asked again some time. */
#define RECALL_NS NS_PER_S

/* ---- what need not be asked at each look ---- */

static bool recall(void *ctx, const struct snapshot_thread *t, struct wait *ret)
{
	const struct over_time *o = ctx;
	const struct over_thread *th = over_find(o, t->look.tid);

	if (!th || !th->idle || !t->look.wait.blocked || th->idle_switches != t->look.switches ||
		clock_monotonic_ns() - th->idle_ns > RECALL_NS)
		return false;
	*ret = *th->idle;
	return true;
}

void over_remember(struct over_thread *th, const struct wait_node *n, uint64_t now_ns)
{
	bool same = th->idle && th->idle_switches == n->thread->look.switches;

	if (!wait_is_idle(n) || n->wait.blocker_count || n->wait.ownerless ||
		(same && now_ns - th->idle_ns <= RECALL_NS))
		return;
	if (!th->idle)
		th->idle = malloc(sizeof(*th->idle));
	if (!th->idle)
		return;
	*th->idle = n->wait;
	th->idle_switches = n->thread->look.switches;
	th->idle_ns = now_ns;
}

/* ---- life ---- */

static void release_sums(struct over_time *o)
{
	vec_each(&o->threads, it) {
		struct over_thread *th = *it;

		vec_each(&th->causes, c)
			vec_release(&c->roots);
		vec_release(&th->causes);
		free(th->idle);
		free(th);
	}
	vec_release(&o->threads);
	vec_each(&o->locks, l)
		vec_release(&l->holders);
	vec_release(&o->locks);
	table_release(&o->by_tid);
}

void over_time_free(struct over_time *o)
{
	if (!o)
		return;
	release_sums(o);
	guards_free(o->common.guards);
	wait_world_free(o->common.world);
	snapshot_free(o->snapshot);
	free(o);
}

static int look_once(struct over_time *o, struct err *err);

int over_time_new(const struct over_options *options, struct over_time **ret, struct err *err)
{
	struct over_time *o = calloc(1, sizeof(*o));
	int rc;

	if (!o)
		return err_nomem(err);
	o->options = *options;
	o->options.snapshot.often = o->options.snapshot.no_running = o->options.snapshot.never_stop = true;
	if (!o->options.interval_ns)
		o->options.interval_ns = OVER_TIME_INTERVAL_NS;
	o->common.recall = recall;
	o->common.ctx = o;
	o->look_cost_ns = o->options.interval_ns / OVER_TIME_COST_PARTS;
	o->random = clock_monotonic_ns() | 1;
	rc = snapshot_new(&o->options.snapshot, &o->snapshot, err);
	if (!rc)
		rc = wait_world_new(&o->common.world, err);
	if (!rc)
		rc = guards_new(o->snapshot, &o->common.guards, err);
	o->world_ns = o->sampled_ns = clock_monotonic_ns();
	if (!rc)
		rc = look_once(o, err);
	if (rc) {
		over_time_free(o);
		return rc;
	}
	release_sums(o);
	o->looks = 0;
	o->cut = false;
	o->began_ns = o->ended_ns = clock_monotonic_ns();
	*ret = o;
	return 0;
}

/* ---- looks ---- */

static int sum_up(struct over_time *o, struct wait_graph *g, uint64_t now_ns, struct err *err)
{
	int rc = wait_graph_finish(g, err);

	o->looks++;
	o->cut |= g->cut;
	vec_each(&g->nodes, n)
		if (!rc && (*n)->asked)
			rc = over_count(o, *n, now_ns, err);
	vec_each(&g->nodes, n)
		if (!rc && (*n)->asked)
			rc = over_blame(o, *n, now_ns, err);
	return rc;
}

static int look_once(struct over_time *o, struct err *err)
{
	struct wait_graph *g;
	struct snapshot_process *p;
	int rc;

	snapshot_renew(o->snapshot);
	guards_forget_threads(o->common.guards);
	rc = snapshot_process(o->snapshot, o->options.pid, &p, err);
	if (rc)
		return rc;
	wait_say(o->name, sizeof(o->name), "%s", p->status.name);

	uint64_t now_ns = clock_monotonic_ns();

	if (!p->threads.len || (p->status.state == 'Z' && p->threads.len == 1))
		return err_set(err, ESRCH, "process %d has ended", (int)p->pid);
	rc = wait_graph_new_with(o->snapshot, &o->common, &g, err);
	if (rc)
		return rc;
	rc = wait_graph_add(g, p->pid, err);
	if (!rc)
		rc = sum_up(o, g, now_ns, err);
	wait_graph_free(g);
	return rc;
}

/* True: the dear part of it too. */
static bool renew_world(struct over_time *o, uint64_t now_ns)
{
	uint64_t age_ns = now_ns - o->world_ns, most_ns = o->world_cost_ns * WORLD_COST_PARTS;
	bool files = age_ns > (most_ns > WORLD_NS ? most_ns : WORLD_NS);

	wait_world_forget(o->common.world, files);
	if (files)
		o->world_ns = now_ns;
	return files;
}

/* Looks at times that no program's own beat can fall in with: from half of the interval to one and a half. */
static uint64_t next_look(struct over_time *o, uint64_t now_ns)
{
	uint64_t interval_ns = o->look_cost_ns * OVER_TIME_COST_PARTS;

	if (interval_ns < o->options.interval_ns)
		interval_ns = o->options.interval_ns;
	if (interval_ns > LONGEST_INTERVAL_NS)
		interval_ns = LONGEST_INTERVAL_NS;
	o->random ^= o->random << 13;
	o->random ^= o->random >> 7;
	o->random ^= o->random << 17;
	return now_ns + interval_ns / 2 + o->random % interval_ns;
}

/* A look at which something new had to be read and named says little about the next. */
static void note_cost(struct over_time *o, uint64_t cpu_ns)
{
	if (cpu_ns > ODD_COST * o->look_cost_ns)
		cpu_ns = ODD_COST * o->look_cost_ns;
	o->look_cost_ns = (3 * o->look_cost_ns + cpu_ns) / 4;
}

int over_time_look(struct over_time *o, uint64_t *ret_next_ns, struct err *err)
{
	uint64_t cpu_ns = clock_own_cpu_ns(), now_ns = clock_monotonic_ns();
	bool dear = renew_world(o, now_ns);
	int rc = look_once(o, err);

	cpu_ns = clock_own_cpu_ns() - cpu_ns;
	o->cpu_ns += cpu_ns;
	o->ended_ns = clock_monotonic_ns();
	o->target_ended = rc == -ESRCH;
	if (dear)
		o->world_cost_ns = cpu_ns;
	else
		note_cost(o, cpu_ns);
	*ret_next_ns = next_look(o, o->ended_ns);
	return rc;
}
