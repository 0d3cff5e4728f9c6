/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Looking at threads by a BPF program, bpf/snapshot.bpf.c, that runs for each task of the machine while
 * its iterator is read. It tells all but the names of the kernel's functions: these come from /proc,
 * once for each place in the kernel that threads are found in.
 */
#include "sample/snapshot/bpf_task.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/table.h"
#include "os/rights.h"
#include "sample/bpf/common.h"

#include <snapshot.skel.h>

/* A place in the kernel and its function. */
struct kernel_place {
	struct table_node node; /* by address */
	char name[64];
};

struct bpf_look {
	struct look look;
	struct snapshot_bpf *skeleton;
	struct table places;
};

#define TASKS_AT_ONCE 64u

/* ---- one record ---- */

/* include/linux/sched.h and fs/proc/array.c: what the letters of proc_pid_stat(5) stand for. */
#define TASK_INTERRUPTIBLE 0x1u
#define TASK_UNINTERRUPTIBLE 0x2u
#define TASK_STOPPED 0x4u
#define TASK_TRACED 0x8u
#define TASK_DEAD 0x10u
#define TASK_ZOMBIE 0x20u
#define TASK_PARKED 0x40u
#define TASK_NO_LOAD 0x400u
#define TASK_RT_LOCK 0x1000u
#define TASK_FROZEN 0x8000u

static char letter_of(const struct snapshot_task *t)
{
	uint32_t state = t->state;

	if (t->exit_state & TASK_DEAD)
		return 'X';
	if (t->exit_state & TASK_ZOMBIE)
		return 'Z';
	if ((state & (TASK_UNINTERRUPTIBLE | TASK_NO_LOAD)) ==
		(TASK_UNINTERRUPTIBLE | TASK_NO_LOAD))
		return 'I';
	if (state & (TASK_RT_LOCK | TASK_FROZEN))
		return 'D';
	if (state & TASK_PARKED)
		return 'P';
	if (state & TASK_TRACED)
		return 't';
	if (state & TASK_STOPPED)
		return 'T';
	if (state & TASK_UNINTERRUPTIBLE)
		return 'D';
	return state & TASK_INTERRUPTIBLE ? 'S' : 'R';
}

/* Of a call, by the convention of its table. */
static void take_args(const struct snapshot_task *t, uint64_t args[6])
{
#if defined(__x86_64__)
	/* Places in pt_regs: di si dx r10 r8 r9; and bx cx dx si di bp of 32-bit calls. */
	static const uint8_t native[] = {14, 13, 12, 7, 9, 8}, compat[] = {5, 11, 12, 13, 14, 4};
	bool is_compat = t->flags & SNAPSHOT_COMPAT;

	for (size_t i = 0; i < 6; i++)
		args[i] = is_compat ? (uint32_t)t->regs[compat[i]] : t->regs[native[i]];
#else
	args[0] = t->first_arg;
	for (size_t i = 1; i < 6; i++)
		args[i] = t->regs[i];
#endif
}

static void take_wait(const struct snapshot_task *t, struct thread_look *l)
{
	l->wait.blocked = !(t->flags & (SNAPSHOT_ON_CPU | SNAPSHOT_QUEUED | SNAPSHOT_MOVED)) &&
		strchr("SDTt", l->wait.state);
	l->queued = t->flags & SNAPSHOT_QUEUED && !(t->flags & SNAPSHOT_MOVED);
	if (!(l->wait.blocked || l->queued) || !(t->flags & SNAPSHOT_HAS_REGS))
		return;
	if (!bpf_user_regs(t->regs, t->flags & SNAPSHOT_COMPAT, &l->regs))
		l->compat = true;
	if (!l->wait.blocked)
		return;
	l->wait.sp = t->regs[USER_REG_SP];
	l->wait.pc = t->regs[USER_REG_PC];
	if (t->syscall < 0)
		return;
	l->wait.syscall = t->syscall;
	take_args(t, l->wait.args);
}

static void take_lock(const struct snapshot_task *t, struct thread_look *l)
{
	static const enum kernel_lock kinds[] = {
		[SNAPSHOT_MUTEX] = KERNEL_LOCK_MUTEX,
		[SNAPSHOT_SEMAPHORE] = KERNEL_LOCK_SEMAPHORE,
		[SNAPSHOT_RWSEM] = KERNEL_LOCK_RWSEM,
		[SNAPSHOT_RWSEM_READERS] = KERNEL_LOCK_RWSEM,
	};

	if (!l->wait.blocked || t->lock >= sizeof(kinds) / sizeof(kinds[0]))
		return;
	l->kernel_lock = kinds[t->lock];
	l->kernel_holder = (pid_t)t->holder_tid;
	l->kernel_holder_pid = (pid_t)t->holder_tgid;
	l->kernel_holder_sure = t->holder_tid && t->lock != SNAPSHOT_SEMAPHORE &&
		t->lock != SNAPSHOT_RWSEM_READERS;
}

static void take_name(const struct snapshot_task *t, struct thread_look *l)
{
	for (size_t i = 0; i < sizeof(t->comm) && t->comm[i]; i++)
		l->name[i] = (unsigned char)t->comm[i] < 0x20 || t->comm[i] == 0x7f ? '?' : t->comm[i];
}

bool bpf_task_look(const struct snapshot_task *t, struct thread_look *ret)
{
	struct thread_look l = {
		.pid = (pid_t)t->tgid,
		.tid = (pid_t)t->tid,
		.wait = {.state = letter_of(t), .syscall = -1},
		.switches = t->switches,
		.ran_ns = t->run_ns,
		.queued_ns = t->queued_ns,
		.idle_ns = t->idle_ns,
		.throttled = t->flags & SNAPSHOT_THROTTLED,
		.compat = t->flags & SNAPSHOT_COMPAT,
	};

	if (l.wait.state == 'X')
		return false;
	take_name(t, &l);
	take_wait(t, &l);
	take_lock(t, &l);
	l.frozen = l.wait.blocked && (t->flags & SNAPSHOT_FROZEN || t->state & TASK_FROZEN);
	*ret = l;
	return true;
}

/* ---- kernel functions ---- */

/* /proc knows the name for a thread that has not moved since. */
static void find_where(struct bpf_look *b, uint64_t ip, struct thread_look *l)
{
	struct kernel_place *place = (struct kernel_place *)table_find(&b->places, ip);
	struct thread_wait *w = &l->wait;
	uint64_t switches;

	if (place) {
		memcpy(w->where, place->name, sizeof(w->where));
		return;
	}
	thread_wait_where(l->pid, l->tid, w->where, sizeof(w->where));
	if (!w->where[0])
		return;
	if (thread_switches(l->pid, l->tid, &switches, NULL) || switches != l->switches) {
		w->where[0] = '\0';
		return;
	}
	place = calloc(1, sizeof(*place));
	if (!place)
		return;
	memcpy(place->name, w->where, sizeof(place->name));
	if (table_add(&b->places, &place->node, ip))
		free(place);
}

/* ---- the ops ---- */

static void bpf_free(struct look *look)
{
	struct bpf_look *b = (struct bpf_look *)look;
	struct table_node *place;

	if (!b)
		return;
	snapshot_bpf__destroy(b->skeleton);
	while ((place = table_next(&b->places, NULL))) {
		table_remove(&b->places, place);
		free(place);
	}
	table_release(&b->places);
	free(b);
}

static int load(struct bpf_look *b, struct err *err)
{
	int rc;

	bpf_keep_quiet();
	b->skeleton = snapshot_bpf__open();
	if (!b->skeleton)
		return err_errno(err, errno, "opening the BPF program");
	rc = snapshot_bpf__load(b->skeleton);
	if (!rc)
		rc = snapshot_bpf__attach(b->skeleton);
	return rc ? rights_bpf_refused(-rc, err) : 0;
}

static int bpf_open(struct look **ret, struct err *err)
{
	struct bpf_look *b = calloc(1, sizeof(*b));
	int rc;

	if (!b)
		return err_nomem(err);
	b->look.ops = &look_bpf;
	rc = load(b, err);
	if (rc) {
		bpf_free(&b->look);
		return rc;
	}
	*ret = &b->look;
	return 0;
}

static int take(struct bpf_look *b, const struct snapshot_task *t, struct thread_looks *ret,
	struct err *err)
{
	struct thread_look l;

	if (!bpf_task_look(t, &l))
		return 0;
	if (l.wait.blocked)
		find_where(b, t->kernel_ip, &l);
	l.frozen |= !strcmp(l.wait.where, "__refrigerator"); /* cgroup v1, before 6.1 */
	return vec_push(ret, l) ? err_nomem(err) : 0;
}

static int read_all(struct bpf_look *b, int fd, struct thread_looks *ret, struct err *err)
{
	struct snapshot_task tasks[TASKS_AT_ONCE];
	size_t kept = 0;

	for (;;) {
		ssize_t got = read(fd, (char *)tasks + kept, sizeof(tasks) - kept);

		if (got < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (got <= 0)
			return got < 0 ? err_errno(err, errno, "reading a BPF iterator") : 0;
		kept += (size_t)got;

		size_t whole = kept / sizeof(tasks[0]);

		for (size_t i = 0; i < whole; i++) {
			int rc = take(b, &tasks[i], ret, err);

			if (rc)
				return rc;
		}
		kept -= whole * sizeof(tasks[0]);
		memmove(tasks, tasks + whole, kept);
	}
}

static int bpf_read(struct look *look, pid_t pid, pid_t tid, struct thread_looks *ret, struct err *err)
{
	struct bpf_look *b = (struct bpf_look *)look;
	autoclose int fd = bpf_iter_create(bpf_link__fd(b->skeleton->links.look));
	int rc;

	ret->len = 0;
	if (fd < 0)
		return err_errno(err, errno, "a BPF iterator over all threads");
	b->skeleton->bss->wish = (struct snapshot_wish){(uint32_t)pid, (uint32_t)tid};
	rc = read_all(b, fd, ret, err);
	if (!rc && !ret->len)
		rc = err_set(err, ESRCH, "there is no process or thread %d", (int)(tid ? tid : pid));
	return rc;
}

const struct look_ops look_bpf = {
	.name = "bpf",
	.open = bpf_open,
	.free = bpf_free,
	.read = bpf_read,
};
