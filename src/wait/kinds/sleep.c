/* SPDX-License-Identifier: BSD-2-Clause */
/* Waits for a time to come, or for a signal: nobody is in the way. */
#include <sys/syscall.h>
#include <time.h>

#include "wait/call.h"
#include "wait/kinds.h"

static bool look_sleep(struct wait_look *l, struct wait *ret)
{
	uint64_t ns;

	if (!wait_has_call(l))
		return false;
	if (l->call == SYS_nanosleep) {
		ret->timeout_ns = wait_left(l, wait_timespec(l, l->args[0]));
	} else if (l->call == SYS_clock_nanosleep) {
		ns = wait_timespec(l, l->args[2]);
		ret->timeout_ns = l->args[1] & TIMER_ABSTIME
			? wait_left_until(l, (int)l->args[0], ns)
			: wait_left(l, ns);
	} else {
		return false;
	}
	ret->nature = WAIT_TIME;
	WAIT_SAY(ret->what, "in sleep()");
	return true;
}

const struct wait_kind wait_kind_sleep = {.name = "sleep", .look = look_sleep, .from_memory = true};

static bool look_signal(struct wait_look *l, struct wait *ret)
{
	if (!wait_has_call(l))
		return false;
	switch (l->call) {
#if defined(SYS_pause)
	case SYS_pause:
#endif
	case SYS_rt_sigsuspend:
		break;
	case SYS_rt_sigtimedwait:
		ret->timeout_ns = wait_left(l, wait_timespec(l, l->args[2]));
		break;
	default:
		return false;
	}
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "for a signal");
	return true;
}

const struct wait_kind wait_kind_signal = {.name = "signal", .look = look_signal, .from_memory = true};
