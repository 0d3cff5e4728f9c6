/* SPDX-License-Identifier: BSD-2-Clause */
/* wait4() and waitid(): the end of a child, or what happens to those that a debugger traces. */
#include <sys/syscall.h>
#include <sys/wait.h>

#include "os/in_namespace.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

struct wanted {
	enum { ANY, ONE, GROUP } which;
	pid_t id; /* as the process itself counts them; of GROUP 0: its own */
};

static struct wanted by_pid(int pid)
{
	if (pid > 0)
		return (struct wanted){ONE, pid};
	if (pid == -1)
		return (struct wanted){ANY, 0};
	return (struct wanted){GROUP, -pid};
}

static bool decode(const struct wait_look *l, struct wanted *ret)
{
	*ret = (struct wanted){ANY, 0};
	/* Whose call we may not see: this function is entered by these calls alone. */
	if (!wait_has_call(l))
		return wait_in(l, "do_wait") && (l->call < 0 || l->look->compat);
	if (l->call == SYS_wait4) {
		*ret = by_pid((int)l->args[0]);
		return true;
	}
	if (l->call != SYS_waitid)
		return false;
	if ((int)l->args[0] == P_PID)
		*ret = (struct wanted){ONE, (pid_t)l->args[1]};
	else if ((int)l->args[0] == P_PGID)
		*ret = (struct wanted){GROUP, (pid_t)l->args[1]};
	return true;
}

static bool is_wanted(const struct wait_look *l, const struct wanted *w, pid_t child)
{
	struct proc_family f, own;

	if (proc_family_read(child, &f) || f.state == 'Z' || f.state == 'X')
		return false;
	if (w->which == ANY)
		return true;
	if (w->which == ONE)
		return child == w->id || pid_seen_by(l->process->pid, child) == w->id;
	if (!w->id)
		return !proc_family_read(l->process->pid, &own) && f.group == own.group;
	return f.group == w->id || pid_seen_by(l->process->pid, f.group) == w->id;
}

/* A debugger has no children to wait for but those it traces. */
static void look_at_traced(struct wait_look *l, struct wait *ret)
{
	struct pid_vec traced = {0};

	if (!proc_tracees(l->process->pid, &traced, NULL) && traced.len) {
		ret->nature = WAIT_EVENT;
		WAIT_SAY(ret->what, "for something to happen to what it traces");
		WAIT_SAY(ret->detail, "%zu %s", traced.len, traced.len == 1 ? "process" : "processes");
	}
	vec_release(&traced);
}

static void add_children(struct wait_look *l, const struct wanted *w, const struct pid_vec *wanted,
	struct wait *ret)
{
	enum wait_grade grade = wanted->len > 1 ? WAIT_CANDIDATE : WAIT_PROVEN;

	vec_each(wanted, c)
		wait_blame_process(l, ret, *c, grade, w->which == ONE ? "the child it waits for"
							: "a child of it");
	if (w->which == ONE)
		WAIT_SAY(ret->object, "end of process %d", (int)wanted->data[0]);
	if (wanted->len > 1)
		WAIT_SAY(ret->detail, "any of %zu", wanted->len);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct pid_vec children = {0}, wanted = {0};
	struct wanted w;

	if (!decode(l, &w))
		return false;
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->what, "for a child process to end");
	proc_children(l->process->pid, 0, &children, NULL);
	vec_each(&children, c)
		if (is_wanted(l, &w, *c))
			(void)vec_push(&wanted, *c);
	if (wanted.len) {
		add_children(l, &w, &wanted, ret);
	} else {
		ret->grade = WAIT_INFERRED;
		WAIT_SAY(ret->detail, "none of them is there");
		look_at_traced(l, ret);
	}
	vec_release(&children);
	vec_release(&wanted);
	return true;
}

const struct wait_kind wait_kind_child = {.name = "child", .look = look};
