/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits that the kernel does not let itself be disturbed in: its own locks, pages, disks. */
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "os/proc.h"
#include "os/syscalls.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

/* ---- a thread of the kernel's ---- */

static bool look_thread(struct wait_look *l, struct wait *ret)
{
	if (!l->process->status.kernel_thread)
		return false;
	ret->nature = l->look->wait.state == 'D' ? WAIT_DEVICE : WAIT_EVENT;
	WAIT_SAY(ret->what, "in the kernel, whose thread it is");
	if (*l->look->wait.where)
		WAIT_SAY(ret->detail, "kernel: %s", l->look->wait.where);
	return true;
}

const struct wait_kind wait_kind_kernel_thread = {.name = "kernel_thread", .look = look_thread};

/* ---- a lock of the kernel's ---- */

static const char *lock_words(enum kernel_lock lock)
{
	switch (lock) {
	case KERNEL_LOCK_MUTEX:
		return "mutex";
	case KERNEL_LOCK_SEMAPHORE:
		return "semaphore";
	case KERNEL_LOCK_RT_MUTEX:
		return "priority-inheriting mutex";
	case KERNEL_LOCK_RWSEM:
		return "read-write semaphore";
	case KERNEL_LOCK_NONE:
		break;
	}
	return "lock";
}

/* The function it was taken in: what the thread sleeps in is the lock's own. */
static void add_stack(const struct wait_look *l, struct wait *ret)
{
	char path[64], line[256];
	unsigned told = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stack", (int)l->process->pid, (int)l->look->tid);

	autofclose FILE *f = fopen(path, "re");

	/* "[<0>] anon_pipe_write+0x43/0x6f0" */
	while (f && told < 4 && fgets(line, sizeof(line), f)) {
		char *name = strstr(line, "] ");

		if (!name)
			continue;
		name += 2;
		name[strcspn(name, "+\n")] = '\0';
		if (!told)
			WAIT_APPEND(ret->detail, "kernel: %.40s", name);
		else
			snprintf(ret->detail + strlen(ret->detail), sizeof(ret->detail) - strlen(ret->detail),
				" < %.40s", name);
		told++;
	}
	if (!told && *l->look->wait.where)
		WAIT_APPEND(ret->detail, "kernel: %s", l->look->wait.where);
}

static pid_t process_of(pid_t tid)
{
	struct proc_status st;

	return proc_status_read(tid, &st, NULL) ? 0 : st.tgid;
}

static bool look_lock(struct wait_look *l, struct wait *ret)
{
	pid_t holder = l->look->kernel_holder, pid = holder ? process_of(holder) : 0;

	if (l->look->kernel_lock == KERNEL_LOCK_NONE)
		return false;
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->what, "for a %s of the kernel", lock_words(l->look->kernel_lock));
	add_stack(l, ret);
	if (pid)
		wait_add_blocker(ret, pid, holder, WAIT_PROVEN, "the kernel names it as the holder");
	else
		ret->grade = WAIT_INFERRED;
	return true;
}

const struct wait_kind wait_kind_kernel_lock = {.name = "kernel_lock", .look = look_lock};

/* ---- pages and disks ---- */

static bool look_fault(struct wait_look *l, struct wait *ret)
{
	if (l->call >= 0 || !l->look->wait.blocked || l->process->refused)
		return false;
	ret->nature = WAIT_DEVICE;
	WAIT_SAY(ret->what, "for a page of memory");
	add_stack(l, ret);
	return true;
}

const struct wait_kind wait_kind_page_fault = {.name = "page_fault", .look = look_fault};

static bool look_disk(struct wait_look *l, struct wait *ret)
{
	const char *name = wait_has_call(l) ? syscall_name(l->call) : NULL;

	if (l->look->wait.state != 'D')
		return false;
	ret->nature = WAIT_DEVICE;
	WAIT_SAY(ret->what, "for a device or a lock of the kernel");
	if (name)
		WAIT_SAY(ret->what, "in %s() for a device or a lock of the kernel", name);
	add_stack(l, ret);
	return true;
}

const struct wait_kind wait_kind_device = {.name = "device", .look = look_disk};

/* ---- anything else ---- */

static bool look_other(struct wait_look *l, struct wait *ret)
{
	const char *name = wait_has_call(l) ? syscall_name(l->call) : NULL;
	const char *where = l->look->wait.where;

	ret->nature = WAIT_EVENT;
	ret->grade = WAIT_INFERRED;
	if (name)
		WAIT_SAY(ret->what, "in %s()", name);
	else if (wait_has_call(l))
		WAIT_SAY(ret->what, "in system call %d", l->call);
	else if (l->look->compat)
		WAIT_SAY(ret->what, "in a system call of 32-bit code");
	else
		WAIT_SAY(ret->what, "for something");
	if (*where)
		WAIT_SAY(ret->detail, "kernel: %s", where);
	return true;
}

const struct wait_kind wait_kind_other = {.name = "other", .look = look_other, .from_memory = true};
