/* SPDX-License-Identifier: BSD-2-Clause */
/* vfork(), and posix_spawn() by way of it: the parent stands still in state D until the child, which runs in
 * its memory, calls exec or ends. */
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

#define KCMP_VM 1 /* linux/kcmp.h */

static bool is_vfork(const struct wait_look *l)
{
	uint64_t flags = 0;

	if (!wait_has_call(l))
		return false;
	switch (l->call) {
#if defined(SYS_vfork)
	case SYS_vfork:
		return true;
#endif
	case SYS_clone:
		flags = l->args[0];
		break;
#if defined(SYS_clone3)
	case SYS_clone3: /* struct clone_args begins with them */
		if (!snapshot_read(l->snapshot, l->process, l->args[0], &flags, sizeof(flags)))
			return false;
		break;
#endif
	default:
		return false;
	}
	return flags & CLONE_VFORK;
}

static bool shares_memory(pid_t a, pid_t b)
{
	return syscall(SYS_kcmp, a, b, KCMP_VM, 0ul, 0ul) == 0;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct pid_vec children = {0};
	pid_t child = 0;
	bool sure = false;

	if (!is_vfork(l))
		return false;
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->what, "for a child of vfork() to call exec or to end");
	proc_children(l->process->pid, l->look->tid, &children, NULL);
	/* Where memory cannot be compared: the youngest, since nothing was forked after it. */
	vec_each(&children, c) {
		bool shares = shares_memory(*c, l->look->tid);

		if (shares || !sure)
			child = *c;
		sure |= shares;
	}
	ret->grade = sure || children.len == 1 ? WAIT_PROVEN : WAIT_INFERRED;
	if (child)
		wait_add_blocker(ret, child, child, ret->grade,
			sure ? "it runs in the parent's memory" : "the youngest child");
	else
		ret->grade = WAIT_INFERRED;
	vec_release(&children);
	return true;
}

const struct wait_kind wait_kind_vfork = {.name = "vfork", .look = look};
