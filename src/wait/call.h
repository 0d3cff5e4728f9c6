/* SPDX-License-Identifier: BSD-2-Clause */
/* Arguments of system calls, for kinds. All of it is memory of the target: it may be unreadable or lie. */
#ifndef SONDE_WAIT_CALL_H
#define SONDE_WAIT_CALL_H

#include "wait/kind.h"

/* Whether the thread sleeps in a kernel function whose name begins so. */
bool wait_in(const struct wait_look *l, const char *function);

/* Whether the thread's call has a number of this architecture, so that its arguments can be read. */
bool wait_has_call(const struct wait_look *l);

/* A struct timespec (or timeval) as ns; LOOK_UNKNOWN for address 0, unreadable memory and nonsense. */
uint64_t wait_timespec(const struct wait_look *l, uint64_t address);
uint64_t wait_timeval(const struct wait_look *l, uint64_t address);

/* What is left of a limit that counts from the beginning of the wait; LOOK_UNKNOWN for none. */
uint64_t wait_left(const struct wait_look *l, uint64_t limit_ns);
/* What is left until a time of a clock. For both: LOOK_UNKNOWN in a core. */
uint64_t wait_left_until(const struct wait_look *l, int clock, uint64_t time_ns);

#endif
