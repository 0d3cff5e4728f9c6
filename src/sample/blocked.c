/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/blocked.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>

static int awake(pid_t tid, struct err *err)
{
	return err_set(err, EAGAIN, "thread %d does not sleep", (int)tid);
}

/* The kernel gives memory by thread as well, also when the first thread of the process has ended. */
static void read_stack(pid_t tid, struct blocked_thread *b)
{
	struct iovec local = {b->bytes, sizeof(b->bytes)};
	struct iovec remote = {(void *)(uintptr_t)b->wait.sp, sizeof(b->bytes)};
	ssize_t got = process_vm_readv(tid, &local, 1, &remote, 1, 0);

	if (got < (ssize_t)sizeof(uint64_t))
		return;
	blocked_regs(&b->wait, &b->stack.regs);
	b->stack.has_regs = true;
	b->stack.dump = (struct unwind_dump){b->wait.sp, b->bytes, (size_t)got};
}

int blocked_read(pid_t pid, pid_t tid, struct blocked_thread *ret, struct err *err)
{
	int rc = thread_switches(pid, tid, &ret->switches, err);

	if (!rc)
		rc = thread_wait_read(pid, tid, &ret->wait, err);
	if (rc)
		return rc;
	ret->reason = state_of_wait(&ret->wait);
	ret->stack = (struct raw_stack){.python = PYTHON_STILL};
	if (strchr("ZX", ret->wait.state))
		return err_set(err, ESRCH, "thread %d has ended", (int)tid);
	if (!ret->wait.blocked)
		return awake(tid, err);
	read_stack(tid, ret);
	return blocked_still(pid, tid, ret) ? 0 : awake(tid, err);
}

bool blocked_still(pid_t pid, pid_t tid, const struct blocked_thread *b)
{
	uint64_t now;

	/* One that woke up has not left its CPU yet, and is counted when it does: then it is seen
	 * running, or with another count. */
	struct thread_wait wait;

	return !thread_wait_read(pid, tid, &wait, NULL) && wait.blocked &&
		!thread_switches(pid, tid, &now, NULL) && now == b->switches &&
		wait.sp == b->wait.sp && wait.pc == b->wait.pc;
}
