/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/state.h"

#include <string.h>

#include "os/syscalls.h"

static bool starts_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* Kernel functions that only a thread that is stopped or frozen sleeps in. */
static bool is_stop(const char *function)
{
	static const char *const stops[] = {
		"do_signal_stop", "ptrace_stop", "do_freezer_trap", "__refrigerator",
		"get_signal", /* what wchan shows of do_freezer_trap where that is inlined */
	};

	for (size_t i = 0; i < sizeof(stops) / sizeof(stops[0]); i++)
		if (starts_with(function, stops[i]))
			return true;
	return false;
}

struct off_cpu_reason state_of_syscall(int number)
{
	const char *name = syscall_name(number);
	bool futex = name && starts_with(name, "futex");

	if (number < 0)
		return (struct off_cpu_reason){STATE_BLOCKED, -1};
	return (struct off_cpu_reason){futex ? STATE_FUTEX : STATE_SYSCALL, number};
}

struct off_cpu_reason state_of_wait(const struct thread_wait *w)
{
	struct off_cpu_reason r = {STATE_RUN_QUEUE, -1};

	if (!strchr("SDTt", w->state))
		return r;
	r = state_of_syscall(w->syscall);
	/* The call it was stopped in says nothing about why it does not run. */
	if (w->state == 'T' || w->state == 't' || is_stop(w->where))
		r.state = STATE_STOPPED;
	else if (!w->blocked)
		r.state = STATE_BLOCKED;
	else if (w->syscall < 0)
		r.state = STATE_PAGE_FAULT;
	/* After any stop a wait with a time limit goes on as restart_syscall. */
	else if (w->syscall == syscall_number("restart_syscall") && starts_with(w->where, "futex"))
		r = (struct off_cpu_reason){STATE_FUTEX, syscall_number("futex")};
	return r;
}
