/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Being quick to get a CPU, and giving it back soon: for work that comes in small pieces and goes
 * stale when it waits. Never a realtime policy; whoever runs for long keeps its fair share.
 */
#ifndef SONDE_OS_PRIORITY_H
#define SONDE_OS_PRIORITY_H

#include <stdbool.h>

/* How the calling thread was scheduled before; all-zero: nothing was changed. */
struct priority {
	bool raised;
	int nice;
};

/*
 * For the calling thread: short time slices, which make the scheduler run it soon after it wakes
 * (Linux 6.12, no rights needed; older kernels ignore that), and a lower nice value where that is
 * allowed (CAP_SYS_NICE, RLIMIT_NICE). Children start as if nothing had been changed.
 */
void priority_raise(struct priority *ret_before);
void priority_restore(const struct priority *before);

#endif
