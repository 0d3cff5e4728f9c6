/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Things that are initialised once while the others wait: pthread_once and std::call_once, and statics inside
 * C++ functions. None says who does it; it is the thread that has the same function on its stack, further up,
 * and does not itself wait to begin.
 */
#include "wait/futex.h"
#include "wait/kinds.h"

#include <string.h>

#define ONCE_IN_PROGRESS 1u    /* nptl/pthread_once.c; above the two lowest bits: forks so far */
#define GUARD_WAITING 0x10100u /* libsupc++/guard.cc: pending and waiting, the second and third byte */
#define GUARD_FRAMES 64u

static const char *const once_functions[] = {
	"pthread_once*", "__pthread_once*", "___pthread_once*", "call_once", NULL};
static const char *const guard_functions[] = {"__cxa_guard_acquire", NULL};

/* The function whose static it is: the one that called for it. */
static bool guarded_function(struct wait_look *l, char *buf, size_t size)
{
	int at = wait_find_function(l, l->thread, guard_functions, WAIT_LEAF_FRAMES);

	if (at < 0)
		return false;
	wait_say(buf, size, "%s", wait_function(l, l->thread, (size_t)at + 1));
	return *buf;
}

/* Threads that are inside `function` and do not wait for it to be over. */
static void blame_those_inside(struct wait_look *l, const struct futex_call *f,
	const char *const *function, struct wait *ret)
{
	vec_each(&l->process->threads, t)
		if (*t != l->thread && !futex_waits_too(f, *t) &&
			wait_find_function(l, *t, function, GUARD_FRAMES) >= 0)
			wait_add_blocker(ret, l->process->pid, (*t)->look.tid, WAIT_INFERRED,
				"it is inside what is being initialised");
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct futex_call f;
	char name[512];
	const char *names[] = {name, NULL};

	if (!futex_decode(l, &f))
		return false;
	if (f.expected == GUARD_WAITING && guarded_function(l, name, sizeof(name))) {
		WAIT_SAY(ret->what, "for a static of %.100s() to be initialised", name);
		blame_those_inside(l, &f, names, ret);
	} else if ((f.expected & 3) == ONCE_IN_PROGRESS && !f.timed_form &&
		wait_find_function(l, l->thread, once_functions, WAIT_LEAF_FRAMES) >= 0) {
		WAIT_SAY(ret->what, "for an initialisation by pthread_once");
		blame_those_inside(l, &f, once_functions, ret);
	} else {
		return false;
	}
	ret->nature = WAIT_LOCK;
	futex_object(l, &f, ret);
	return true;
}

const struct wait_kind wait_kind_once = {.name = "once", .look = look, .from_memory = true};
