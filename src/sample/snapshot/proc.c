/* SPDX-License-Identifier: BSD-2-Clause */
/* Looking by /proc alone: six small files a thread. */
#include "sample/snapshot/look.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/sched_clock.h"
#include "os/usage.h"
#include "sample/blocked.h"

/* A process may start threads faster than they are listed; what is new in the last list is new. */
#define MOST_LISTINGS 3

struct proc_look {
	struct look look;
	struct sched_clock clock;
};

static int proc_open(struct look **ret, struct err *err)
{
	struct proc_look *l = calloc(1, sizeof(*l));

	if (!l)
		return err_nomem(err);
	l->look.ops = &look_proc;
	*ret = &l->look;
	return 0;
}

static void proc_free(struct look *l)
{
	sched_clock_release(&((struct proc_look *)l)->clock);
	free(l);
}

/* sp and pc are all that /proc tells of registers. */
static void take_regs(struct thread_look *t)
{
	if (!t->wait.blocked)
		return;
	blocked_regs(&t->wait, &t->regs);
	/* 32-bit code has none of its addresses up there, and 64-bit code its stack nowhere below. */
	t->compat = t->wait.sp && t->wait.sp >> 32 == 0 && t->wait.pc >> 32 == 0;
}

static void take_sched(struct proc_look *p, struct thread_look *t)
{
	struct usage_sched sched;

	t->ran_ns = t->queued_ns = t->idle_ns = LOOK_UNKNOWN;
	if (usage_sched(t->pid, t->tid, &sched, NULL))
		return;
	t->ran_ns = sched.ran_ns;
	t->queued_ns = sched.queued_ns;
	if (sched.last_ns)
		t->idle_ns = sched_clock_ago(&p->clock, sched.cpu, sched.last_ns);
	if (sched.switches)
		t->switches = sched.switches;
	else
		thread_switches(t->pid, t->tid, &t->switches, NULL);
}

/* *ret_refused: what is not ours to read of this thread, -errno. */
static int look_at(struct proc_look *p, pid_t pid, pid_t tid, struct thread_look *t, int *ret_refused)
{
	int rc;

	*t = (struct thread_look){.pid = pid, .tid = tid};
	/* First the count: what is read after it and still belongs to it is of one sleep. */
	take_sched(p, t);
	rc = thread_wait_read(pid, tid, &t->wait, NULL);
	if (rc == -ESRCH || proc_thread_name(pid, tid, t->name, sizeof(t->name), NULL))
		return -ESRCH;
	if (rc)
		*ret_refused = rc;
	take_regs(t);
	return 0;
}

static int look_at_all(struct proc_look *p, pid_t pid, struct thread_looks *ret, struct err *err)
{
	struct pid_vec tids = {0};
	size_t seen = 0;
	int refused = 0, rc = 0;

	for (int i = 0; i < MOST_LISTINGS && !rc; i++) {
		rc = proc_threads(pid, &tids, err);
		if (rc || (i && tids.len <= seen))
			break;
		seen = tids.len;
		ret->len = 0;
		vec_each(&tids, tid) {
			struct thread_look t;

			if (look_at(p, pid, *tid, &t, &refused))
				continue;
			if (vec_push(ret, t))
				rc = err_nomem(err);
		}
	}
	vec_release(&tids);
	if (!rc && refused)
		rc = err_errno(err, -refused, "threads of process %d", (int)pid);
	return rc;
}

static int proc_read(struct look *l, pid_t pid, pid_t tid, struct thread_looks *ret, struct err *err)
{
	struct proc_look *p = (struct proc_look *)l;
	struct thread_look t;
	int refused = 0;

	ret->len = 0;
	if (!tid)
		return look_at_all(p, pid, ret, err);
	if (look_at(p, pid, tid, &t, &refused))
		return err_set(err, ESRCH, "process %d has no thread %d", (int)pid, (int)tid);
	if (vec_push(ret, t))
		return err_nomem(err);
	return refused ? err_errno(err, -refused, "thread %d", (int)tid) : 0;
}

const struct look_ops look_proc = {
	.name = "proc",
	.open = proc_open,
	.free = proc_free,
	.read = proc_read,
};
