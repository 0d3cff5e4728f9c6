/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/priority.h"

#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"

/* The shortest slice that the kernel takes. */
#define SLICE_NS (100 * NS_PER_US)
#define NICE (-5)

/* sched_setattr(2), the first version of the struct; not in all libcs. For SCHED_OTHER
 * `runtime_ns` is the time slice, 0 the usual one. */
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime_ns, deadline_ns, period_ns;
};

_Static_assert(sizeof(struct attributes) == 48, "SCHED_ATTR_SIZE_VER0");

#define RESET_ON_FORK 1u /* SCHED_FLAG_RESET_ON_FORK */

static int set(uint64_t slice_ns, int nice, uint64_t flags)
{
	struct attributes a = {
		.size = sizeof(a),
		.policy = SCHED_OTHER,
		.flags = flags,
		.nice = nice,
		.runtime_ns = slice_ns,
	};

	return syscall(SYS_sched_setattr, 0, &a, 0) ? -errno : 0;
}

void priority_raise(struct priority *ret_before)
{
	int nice = getpriority(PRIO_PROCESS, 0);

	*ret_before = (struct priority){0};
	if (sched_getscheduler(0) != SCHED_OTHER) /* somebody knew better */
		return;
	if (set(SLICE_NS, nice < NICE ? nice : NICE, RESET_ON_FORK) &&
		set(SLICE_NS, nice, RESET_ON_FORK))
		return;
	*ret_before = (struct priority){.raised = true, .nice = nice};
}

void priority_restore(const struct priority *before)
{
	/* The flag cannot be taken back without rights, and does not matter any more. */
	if (before->raised && set(0, before->nice, 0))
		set(0, before->nice, RESET_ON_FORK);
}
