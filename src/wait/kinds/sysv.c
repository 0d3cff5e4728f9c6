/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Semaphores and queues of System V. Nobody owns them; the kernel keeps who changed one last, which for a
 * semaphore that serves as a lock is who took it. docs/heuristics/last-user.md.
 */
#include <sys/sem.h>
#include <sys/syscall.h>

#include "os/proc.h"
#include "os/sysv.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

#define MOST_OPERATIONS 64u

static bool is_alive(pid_t pid)
{
	struct proc_status st;

	return pid > 0 && !proc_status_read(pid, &st, NULL) && st.state != 'Z' && st.state != 'X';
}

/* The process that was last, if it can be meant. */
static void blame_last(struct wait_look *l, pid_t last, const char *how, struct wait *ret)
{
	ret->grade = WAIT_INFERRED;
	if (is_alive(last) && last != l->process->pid)
		wait_blame_process(l, ret, last, WAIT_INFERRED, how);
}

/* ---- semaphores ---- */

static bool blocks(const struct sembuf *op, const struct sysv_sem *s)
{
	return op->sem_op ? op->sem_op < 0 && s->value < -op->sem_op : s->value != 0;
}

static void blame_semaphore(struct wait_look *l, int id, const struct sembuf *op,
	const struct sysv_sem *s, struct wait *ret)
{
	WAIT_SAY(ret->object, "semaphore %d.%u", id, op->sem_num);
	WAIT_SAY(ret->what, "for semaphore %u of set %d to be %s", op->sem_num, id,
		op->sem_op ? "given back" : "zero");
	WAIT_SAY(ret->detail, "it is %d, and %d wait", s->value, s->waiting + s->waiting_for_0);
	if (s->last && !is_alive(s->last)) {
		WAIT_APPEND(ret->detail, "process %d, which took it last, has ended", (int)s->last);
		ret->grade = WAIT_INFERRED;
		if (op->sem_op && !s->value) {
			ret->trouble = WAIT_DEAD_OWNER;
			ret->trouble_tid = s->last;
		}
		return;
	}
	blame_last(l, s->last, "it changed the semaphore last", ret);
}

/* By what is asked of a set: the first operation that cannot be done now. */
static void look_at_set(struct wait_look *l, int id, const struct sembuf *ops, size_t count,
	struct wait *ret)
{
	for (size_t i = 0; i < count; i++) {
		struct sysv_sem s;

		if (!sysv_sem_read(l->process->pid, id, ops[i].sem_num, &s, NULL) &&
			blocks(&ops[i], &s)) {
			blame_semaphore(l, id, &ops[i], &s, ret);
			return;
		}
	}
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->detail, "its values are not ours to read, or change");
}

static bool look_semaphore(struct wait_look *l, struct wait *ret)
{
	struct sembuf ops[MOST_OPERATIONS];
	size_t count;

	if (!wait_has_call(l))
		return false;
#if defined(SYS_semop)
	if (l->call != SYS_semop && l->call != SYS_semtimedop)
		return false;
#endif
#if defined(SYS_semtimedop)
	if (l->call == SYS_semtimedop)
		ret->timeout_ns = wait_left(l, wait_timespec(l, l->args[3]));
#endif
	ret->nature = WAIT_LOCK;
	WAIT_SAY(ret->object, "semaphores %d", (int)l->args[0]);
	WAIT_SAY(ret->what, "for a semaphore of set %d", (int)l->args[0]);
	count = l->args[2] < MOST_OPERATIONS ? l->args[2] : MOST_OPERATIONS;
	if (snapshot_read(l->snapshot, l->process, l->args[1], ops, count * sizeof(ops[0])))
		look_at_set(l, (int)l->args[0], ops, count, ret);
	else
		ret->grade = WAIT_INFERRED;
	return true;
}

const struct wait_kind wait_kind_sysv_semaphore = {.name = "sysv_semaphore", .look = look_semaphore};

/* ---- message queues ---- */

static bool look_queue(struct wait_look *l, struct wait *ret)
{
	bool receives = l->call == SYS_msgrcv;
	int id = (int)l->args[0];
	struct sysv_queue q;

	if (!wait_has_call(l) || (!receives && l->call != SYS_msgsnd))
		return false;
	ret->nature = receives ? WAIT_EVENT : WAIT_PEER;
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->object, "queue %d", id);
	WAIT_SAY(ret->what, receives ? "to receive from message queue %d" : "to send to message queue %d", id);
	if (sysv_queue_read(l->process->pid, id, &q, NULL))
		return true;
	WAIT_SAY(ret->detail, "%llu messages, %llu of %llu bytes", (unsigned long long)q.messages,
		(unsigned long long)q.bytes, (unsigned long long)q.most_bytes);
	if (receives && q.last_sender)
		ret->nature = WAIT_PEER;
	blame_last(l, receives ? q.last_sender : q.last_receiver,
		receives ? "it sent last" : "it received last", ret);
	return true;
}

const struct wait_kind wait_kind_sysv_queue = {.name = "sysv_queue", .look = look_queue};
