/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that were made to stand still: by a signal, a debugger, a freezer, or while a core is written. The
 * call they were in goes on afterwards, and says nothing about why they do not run. */
#include <stdio.h>
#include <string.h>

#include "os/children.h"
#include "os/proc.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

/* ---- by a debugger ---- */

static bool look_traced(struct wait_look *l, struct wait *ret)
{
	struct proc_status st, tracer;

	if (l->look->wait.state != 't')
		return false;
	ret->nature = WAIT_STOPPED;
	ret->trouble = WAIT_TRACED;
	WAIT_SAY(ret->what, "is stopped by whoever traces it");
	if (proc_status_read(l->look->tid, &st, NULL) || !st.tracer ||
		proc_status_read(st.tracer, &tracer, NULL))
		return true;
	ret->trouble_tid = st.tracer;
	WAIT_SAY(ret->what, "is stopped by %s[%d], which traces it", tracer.name, (int)tracer.tgid);
	wait_add_blocker(ret, tracer.tgid, st.tracer, WAIT_PROVEN, "it traces the thread");
	return true;
}

const struct wait_kind wait_kind_traced = {.name = "traced", .look = look_traced};

/* ---- by a signal ---- */

/* Reading from the terminal in the background, or writing to it. */
static bool is_in_background(const struct wait_look *l)
{
	struct proc_family f;

	return !proc_family_read(l->process->pid, &f) && f.terminal && f.foreground > 0 &&
		f.foreground != f.group;
}

static bool look_stopped(struct wait_look *l, struct wait *ret)
{
	if (l->look->wait.state != 'T')
		return false;
	ret->nature = WAIT_STOPPED;
	WAIT_SAY(ret->what, "is stopped (SIGSTOP)");
	if (is_in_background(l))
		WAIT_SAY(ret->what, "is stopped (in the background of its terminal)");
	return true;
}

const struct wait_kind wait_kind_stopped = {.name = "stopped", .look = look_stopped};

/* ---- by a freezer ---- */

static bool look_frozen(struct wait_look *l, struct wait *ret)
{
	const char *path = wait_world_frozen(l->world, l->process->pid);

	if (!path)
		return false;
	ret->nature = WAIT_STOPPED;
	ret->trouble = WAIT_FROZEN;
	WAIT_SAY(ret->what, "is frozen (cgroup %s)", path);
	return true;
}

const struct wait_kind wait_kind_frozen = {.name = "frozen", .look = look_frozen};

/* ---- while a core is written ---- */

static bool is_dumping(pid_t pid)
{
	char path[48], text[4096];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return strstr(text, "CoreDumping:\t1") != NULL;
}

static bool look_coredump(struct wait_look *l, struct wait *ret)
{
	if (l->look->wait.state != 'D' && !wait_in(l, "coredump") && !wait_in(l, "do_coredump"))
		return false;
	if (!is_dumping(l->process->pid))
		return false;
	ret->nature = WAIT_DEVICE;
	WAIT_SAY(ret->what, "for its core dump to be written");
	return true;
}

const struct wait_kind wait_kind_coredump = {.name = "coredump", .look = look_coredump};
