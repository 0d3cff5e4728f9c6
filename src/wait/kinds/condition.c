/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits for somebody to say that something happened: nobody holds what the thread waits for, and who will say
 * it is not written down. Idle workers of a pool wait like this, so it is never a reproach.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <string.h>

struct condition {
	const char *what;
	const char *functions[8];
};

static const struct condition conditions[] = {
	{"for a condition variable",
		{"pthread_cond_*", "__pthread_cond_*", "___pthread_cond_*", "cnd_wait", NULL}},
	{"for a semaphore",
		{"sem_wait*", "sem_timedwait*", "sem_clockwait*", "__new_sem_wait*", "do_futex_wait*", NULL}},
	{"at a barrier", {"pthread_barrier_wait", "__pthread_barrier_wait", NULL}},
	{"for a future", {"std::__future_base*", "std::__atomic_futex*", NULL}},
	{"for an atomic to change", {"std::__atomic_wait*", "std::__detail::__waiter*", NULL}},
};

static const struct condition *which(struct wait_look *l)
{
	for (size_t i = 0; i < sizeof(conditions) / sizeof(conditions[0]); i++)
		if (wait_find_function(l, l->thread, conditions[i].functions, WAIT_LEAF_FRAMES) >= 0)
			return &conditions[i];
	return NULL;
}

/* pthread_barrier_t in glibc: the word is its second. */
static void say_barrier(struct wait_look *l, const struct futex_call *f, struct wait *ret)
{
	uint32_t barrier[3]; /* in, current_round, count */

	if (!snapshot_read(l->snapshot, l->process, f->address - 4, barrier, sizeof(barrier)) ||
		barrier[0] < barrier[1] || barrier[0] - barrier[1] > barrier[2])
		return;
	WAIT_SAY(ret->detail, "%u of %u have come", barrier[0] - barrier[1], barrier[2]);
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	const struct condition *condition;

	if (!futex_decode(l, &f))
		return false;
	condition = which(l);
	if (!condition)
		return false;
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "%s", condition->what);
	futex_object(l, &f, ret);
	if (!strcmp(condition->what, "at a barrier"))
		say_barrier(l, &f, ret);
	return true;
}

const struct wait_kind wait_kind_condition = {.name = "condition", .look = look, .from_memory = true};
