/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/held_up.h"

#include <errno.h>

bool verdict_is_held_up(const struct wait_verdict *v, enum held_up how)
{
	const struct wait_node *n = v->focus;

	if (how == HELD_UP_DEADLOCK)
		return v->kind == VERDICT_DEADLOCK || v->kind == VERDICT_SELF_DEADLOCK ||
			v->kind == VERDICT_TASK_DEADLOCK;
	if (n->progresses)
		return false;
	/* It could run, and did not. */
	if (!n->waits)
		return n->thread->look.wait.state == 'R';
	return !wait_is_idle(n) || (v->kind != VERDICT_IDLE && v->kind != VERDICT_RUNNING);
}

static int judge(const struct wait_graph *g, const pid_t *tids, size_t count, enum held_up how,
	pid_t *ret_tid, struct err *err)
{
	for (size_t i = 0; i < count && !*ret_tid; i++) {
		struct wait_verdict v = {0};
		int rc;

		if (!wait_graph_find(g, tids[i]))
			continue; /* it has ended */
		rc = wait_verdict(g, tids[i], &v, err);
		if (rc)
			return rc;
		if (verdict_is_held_up(&v, how))
			*ret_tid = tids[i];
		wait_verdict_release(&v);
	}
	return 0;
}

int wait_held_up(const struct snapshot_options *options, pid_t pid, const pid_t *tids, size_t count,
	enum held_up how, pid_t *ret_tid, struct err *err)
{
	struct snapshot_options quick = *options;
	struct snapshot *s = NULL;
	struct wait_graph *g = NULL;
	int rc;

	quick.no_running = true;
	*ret_tid = 0;
	rc = snapshot_new(&quick, &s, err);
	if (!rc)
		rc = wait_graph_new(s, &g, err);
	if (!rc)
		rc = wait_graph_add(g, pid, err);
	if (!rc)
		rc = wait_graph_finish(g, err);
	if (!rc)
		rc = judge(g, tids, count, how, ret_tid, err);
	wait_graph_free(g);
	snapshot_free(s);
	return rc;
}
