/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/call.h"

#include <string.h>
#include <time.h>

#include "base/clock.h"

bool wait_in(const struct wait_look *l, const char *function)
{
	return !strncmp(l->look->wait.where, function, strlen(function));
}

bool wait_has_call(const struct wait_look *l)
{
	return l->call >= 0 && !l->look->compat;
}

static uint64_t read_time(const struct wait_look *l, uint64_t address, uint64_t unit_ns)
{
	int64_t pair[2];
	uint64_t ns;

	if (!address || !snapshot_read(l->snapshot, l->process, address, pair, sizeof(pair)))
		return LOOK_UNKNOWN;
	if (pair[0] < 0 || pair[1] < 0 || (uint64_t)pair[1] >= NS_PER_S ||
		__builtin_mul_overflow((uint64_t)pair[0], NS_PER_S, &ns) ||
		__builtin_add_overflow(ns, (uint64_t)pair[1] * unit_ns, &ns))
		return LOOK_UNKNOWN;
	return ns;
}

uint64_t wait_timespec(const struct wait_look *l, uint64_t address)
{
	return read_time(l, address, 1);
}

uint64_t wait_timeval(const struct wait_look *l, uint64_t address)
{
	return read_time(l, address, NS_PER_US);
}

uint64_t wait_left(const struct wait_look *l, uint64_t limit_ns)
{
	uint64_t since = l->look->idle_ns;

	if (l->process->source->still)
		return LOOK_UNKNOWN;
	if (limit_ns == LOOK_UNKNOWN || since == LOOK_UNKNOWN)
		return limit_ns;
	return since < limit_ns ? limit_ns - since : 0;
}

uint64_t wait_left_until(const struct wait_look *l, int clock, uint64_t time_ns)
{
	uint64_t now;

	/* Clocks of the CPU time of others are not ours to read. */
	if (l->process->source->still || clock < 0 || time_ns == LOOK_UNKNOWN)
		return LOOK_UNKNOWN;
	now = clock_read_ns(clock);
	if (!now)
		return LOOK_UNKNOWN;
	return now < time_ns ? time_ns - now : 0;
}
