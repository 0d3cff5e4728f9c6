/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/futex.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/proc.h"

/* include/uapi/linux/futex.h, for headers older than 5.14 and 6.7. */
#define OP_LOCK_PI2 13
#define NR_FUTEX_WAIT 455
#define FUTEX2_IS_PRIVATE 128

#define MOST_ANCESTORS 8

/* futex_wait(2): address, value, mask, flags, timeout, clock. */
static bool decode_new_call(const struct wait_look *l, struct futex_call *ret)
{
	*ret = (struct futex_call){
		.address = l->args[0],
		.expected = (uint32_t)l->args[1],
		.shared = !(l->args[3] & FUTEX2_IS_PRIVATE),
		.timed_form = true,
	};
	return true;
}

bool futex_decode(const struct wait_look *l, struct futex_call *ret)
{
	unsigned op, command;

	if (l->call == NR_FUTEX_WAIT)
		return decode_new_call(l, ret);
	if (l->call != SYS_futex)
		return false;
	op = (unsigned)l->args[1];
	command = op & FUTEX_CMD_MASK;
	*ret = (struct futex_call){
		.address = l->args[0],
		.expected = (uint32_t)l->args[2],
		.pi = command == FUTEX_LOCK_PI || command == OP_LOCK_PI2,
		.shared = !(op & FUTEX_PRIVATE_FLAG),
		.timed_form = command == FUTEX_WAIT_BITSET,
		.realtime = op & FUTEX_CLOCK_REALTIME,
	};
	return ret->pi || command == FUTEX_WAIT || command == FUTEX_WAIT_BITSET ||
		command == FUTEX_WAIT_REQUEUE_PI;
}

bool futex_waits_too(const struct futex_call *f, const struct snapshot_thread *t)
{
	return t->reason.state == STATE_FUTEX && t->look.wait.args[0] == f->address;
}

/* Of FUTEX_WAIT it is relative, and when it began the kernel does not say; else a point in time. */
static uint64_t time_left(struct wait_look *l, const struct futex_call *f)
{
	int64_t limit[2];
	uint64_t now, end;

	if (l->process->source->still || l->call != SYS_futex || !(f->timed_form || f->pi) || !l->args[3] ||
		!snapshot_read(l->snapshot, l->process, l->args[3], limit, sizeof(limit)) ||
		limit[0] < 0 || limit[0] > INT64_MAX / 2000000000 || limit[1] < 0)
		return LOOK_UNKNOWN;
	now = clock_read_ns(f->realtime || f->pi ? CLOCK_REALTIME : CLOCK_MONOTONIC);
	end = (uint64_t)limit[0] * NS_PER_S + (uint64_t)limit[1];
	return end > now ? end - now : 0;
}

/* The same words at whatever address a process maps the memory: by the file behind it. */
void futex_object(struct wait_look *l, const struct futex_call *f, struct wait *ret)
{
	const struct snapshot_mapping *m =
		f->shared ? snapshot_mapping(l->process, f->address) : NULL;

	ret->address = f->address;
	ret->timeout_ns = time_left(l, f);
	if (m && m->shared)
		WAIT_SAY(ret->object, "futex %llx:%llu+0x%llx", (unsigned long long)m->device,
			(unsigned long long)m->inode,
			(unsigned long long)(f->address - m->start + m->offset));
	else
		WAIT_SAY(ret->object, "futex %d:0x%llx", (int)l->process->pid,
			(unsigned long long)f->address);
}

/* ---- who ---- */

static bool has_ended(const struct snapshot_thread *t)
{
	return strchr("ZX", t->look.wait.state);
}

static bool maps_the_same(struct snapshot_process *p, const struct snapshot_mapping *m)
{
	snapshot_mapping(p, 0);
	vec_each(&p->mappings, it)
		if (it->shared && it->inode == m->inode && it->device == m->device)
			return true;
	return false;
}

/* A thread of another process that has this memory as well; NULL. */
static struct snapshot_thread *find_sharer(
	struct wait_look *l, const struct futex_call *f, pid_t inner)
{
	const struct snapshot_mapping *m = snapshot_mapping(l->process, f->address);
	struct snapshot_process *p;
	pid_t outer = l->process->source->still || l->process->status.ns_pid == l->process->pid
		? inner
		: proc_outside_tid(l->process->pid, inner);

	if (!f->shared || !m || !m->shared || outer <= 0 ||
		snapshot_process(l->snapshot, outer, &p, NULL) || p->refused ||
		!maps_the_same(p, m))
		return NULL;
	return snapshot_thread(p, outer);
}

/* The process that this one was forked from, or one before that, which has such a thread; 0. */
static pid_t find_ancestor(struct wait_look *l, pid_t inner)
{
	struct proc_status status = l->process->status, thread;

	if (l->process->source->still)
		return 0;

	for (int i = 0; i < MOST_ANCESTORS && status.ppid > 1; i++) {
		pid_t parent = status.ppid;

		if (!proc_status_read(inner, &thread, NULL) && thread.tgid == parent)
			return parent;
		if (proc_status_read(parent, &status, NULL))
			return 0;
	}
	return 0;
}

/* Nobody has this id: somebody who has it no more, or never had it here. */
static void blame_the_past(struct wait_look *l, const struct futex_call *f, pid_t inner, struct wait *ret)
{
	const struct snapshot_mapping *m = snapshot_mapping(l->process, f->address);
	pid_t ancestor = m && m->shared ? 0 : find_ancestor(l, inner);

	ret->trouble = ancestor ? WAIT_FORK_INHERITED : WAIT_DEAD_OWNER;
	ret->trouble_tid = inner;
	if (ancestor)
		WAIT_SAY(ret->detail, "thread %d of process %d held it when it forked this one",
			(int)inner, (int)ancestor);
}

bool futex_blame(struct wait_look *l, const struct futex_call *f, uint32_t inner, bool sure,
	const char *how, struct wait *ret)
{
	struct snapshot_thread *t;

	if (!inner || inner > INT32_MAX)
		return false;
	t = snapshot_thread_inside(l->process, (pid_t)inner);
	if (!t)
		t = find_sharer(l, f, (pid_t)inner);
	if (t && !has_ended(t)) {
		wait_add_blocker(ret, t->process->pid, t->look.tid, WAIT_PROVEN, how);
		return true;
	}
	if (!t && !sure)
		return false;
	if (t) {
		ret->trouble = WAIT_DEAD_OWNER;
		ret->trouble_tid = (pid_t)inner;
	} else {
		blame_the_past(l, f, (pid_t)inner, ret);
	}
	return true;
}

/*
 * glibc's struct pthread begins `tid`, a word, a pointer, then the head of the robust list
 * (nptl/descr.h), whose address the kernel knows. How far in that is depends on the architecture; what is
 * read there is believed only when the kernel says the same. Where it cannot be asked, the list must be empty,
 * which is to say lead back to its head, or the struct hold its own address where x86-64 wants it (tcbhead_t).
 */
#define ROBUST_HEAD_AFTER_TID 16
#define SELF_POINTER 16

static bool is_own_pthread(struct wait_look *l, const struct snapshot_thread *t, uint64_t pthread)
{
	const uint64_t want = pthread + FUTEX_PTHREAD_TID + ROBUST_HEAD_AFTER_TID;
	uint64_t head = 0, self = 0;
	size_t bytes;

	if (!l->process->source->still)
		return !syscall(SYS_get_robust_list, t->look.tid, &head, &bytes) && head == want;
	snapshot_read(l->snapshot, l->process, want, &head, sizeof(head));
	snapshot_read(l->snapshot, l->process, pthread + SELF_POINTER, &self, sizeof(self));
	return head == want || self == pthread;
}

struct snapshot_thread *futex_thread_of(struct wait_look *l, uint64_t pthread)
{
	int32_t inner;
	struct snapshot_thread *t;

	if (!snapshot_read(l->snapshot, l->process, pthread + FUTEX_PTHREAD_TID, &inner,
		    sizeof(inner)) ||
		inner <= 0)
		return NULL;
	t = snapshot_thread_inside(l->process, inner);
	return t && is_own_pthread(l, t, pthread) ? t : NULL;
}

bool futex_read_mutex(struct wait_look *l, uint64_t address, struct glibc_mutex *ret)
{
	return snapshot_read(l->snapshot, l->process, address, ret, sizeof(*ret)) &&
		/* PTHREAD_MUTEX_* of nptl/pthreadP.h: type, robust, protocol, shared, elision. */
		!(ret->type & ~0x3f3) && ret->users && ret->users < 1u << 22 &&
		ret->lock;
}
