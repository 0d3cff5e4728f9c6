/* SPDX-License-Identifier: BSD-2-Clause */
/* Monitors of HotSpot, the common JVM ("synchronized"). Who has one is known to the JVM alone, which tells when
 * asked: jcmd PID Thread.print. */
#include "wait/futex.h"
#include "wait/kinds.h"

static bool look(struct wait_look *l, struct wait *ret)
{
	static const char *const functions[] = {"ObjectMonitor::enter*", "ObjectMonitor::EnterI*", NULL};
	struct futex_call f;

	if (!futex_decode(l, &f) || wait_find_function(l, l->thread, functions, WAIT_LEAF_FRAMES) < 0)
		return false;
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for a monitor of Java (synchronized)");
	WAIT_SAY(ret->detail, "jcmd %d Thread.print tells who has it", (int)l->process->pid);
	return true;
}

const struct wait_kind wait_kind_java = {.name = "java_monitor", .look = look, .from_memory = true};
