/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/sched_clock.h"

#include <sched.h>
#include <unistd.h>

#include "base/clock.h"
#include "os/usage.h"

/* What was seen is good for so long: a CPU does not lose more than a tenth of that to interrupts. */
#define GOOD_NS NS_PER_S
/* In all, moving about included. */
#define MOST_NS (50 * NS_PER_MS)

void sched_clock_release(struct sched_clock *c)
{
	vec_release(&c->cpus);
}

/* Its clock as of now, while we run there. */
static int64_t look(int cpu)
{
	cpu_set_t before, there;
	struct usage_sched own = {0};
	int64_t ahead = INT64_MIN;

	if (cpu < 0 || cpu >= CPU_SETSIZE || sched_getaffinity(0, sizeof(before), &before))
		return INT64_MIN;
	CPU_ZERO(&there);
	CPU_SET(cpu, &there);
	if (sched_setaffinity(0, sizeof(there), &there))
		return INT64_MIN;
	/* The kernel brings our own time up to date when it puts us on a CPU. */
	sched_yield();
	if (!usage_sched(getpid(), gettid(), &own, NULL) && own.last_ns)
		ahead = (int64_t)(clock_monotonic_ns() - own.last_ns);
	sched_setaffinity(0, sizeof(before), &before);
	return ahead;
}

static struct sched_clock_cpu *entry(struct sched_clock *c, int cpu)
{
	vec_each(&c->cpus, it)
		if (it->cpu == cpu)
			return it;
	return vec_push(&c->cpus, (struct sched_clock_cpu){.cpu = cpu}) ? NULL
									 : &c->cpus.data[c->cpus.len - 1];
}

uint64_t sched_clock_ago(struct sched_clock *c, int cpu, uint64_t at_ns)
{
	struct sched_clock_cpu *e = entry(c, cpu);
	uint64_t now = clock_monotonic_ns();
	int64_t ago;

	if (!e)
		return UINT64_MAX;
	if ((!e->asked_ns || now - e->asked_ns > GOOD_NS) && c->spent_ns < MOST_NS) {
		e->ahead_ns = look(cpu);
		e->asked_ns = clock_monotonic_ns();
		c->spent_ns += e->asked_ns - now;
		now = e->asked_ns;
	}
	if (!e->asked_ns || e->ahead_ns == INT64_MIN)
		return UINT64_MAX;
	ago = (int64_t)(now - at_ns) - e->ahead_ns;
	return ago > 0 ? (uint64_t)ago : 0;
}
