/* SPDX-License-Identifier: BSD-2-Clause */
/* pthread_join, std::thread::join, Rust's JoinHandle: glibc waits for the kernel to clear the thread's id,
 * so that is what it expects to find. */
#include "wait/futex.h"
#include "wait/kinds.h"

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	struct snapshot_thread *t;
	uint32_t word;

	if (!futex_decode(l, &f) || !f.shared || !f.timed_form || !f.expected ||
		!snapshot_read(l->snapshot, l->process, f.address, &word, sizeof(word)) ||
		word != f.expected || word > INT32_MAX)
		return false;
	t = snapshot_thread_inside(l->process, (pid_t)word);
	if (!t || futex_thread_of(l, f.address - FUTEX_PTHREAD_TID) != t)
		return false;
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->what, "for a thread to end");
	futex_object(l, &f, ret);
	wait_add_blocker(ret, t->process->pid, t->look.tid, WAIT_PROVEN, "the thread that is joined");
	return true;
}

const struct wait_kind wait_kind_join = {.name = "join", .look = look, .from_memory = true};
