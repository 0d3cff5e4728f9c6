/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a cycle is in time.
 *
 * The hardware counts cycles, and the kernel keeps changing how many of them are a period, so that
 * as many samples come as were asked for. It begins with a period of one: the first milliseconds of
 * every process give a burst of samples that stand for next to nothing, and that no profile should
 * be made of. Each sample tells its period; with the length of a cycle that is the time it stands
 * for, and the session keeps as many samples as are due.
 *
 * The length is measured once, on ourselves. A processor that later runs slower or faster is taken
 * for one that does more or less, by the same factor in all samples.
 */
#include "sample/perf/perf_priv.h"

#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"

#define MEASURE_NS (2 * NS_PER_MS)

static volatile uint64_t sink;

/* Cycles in `ret_ns` of our own CPU time; false: the counter does not count. */
static bool count(int fd, uint64_t *ret_cycles, uint64_t *ret_ns)
{
	uint64_t start = clock_own_cpu_ns(), before, after, x = start;

	if (read(fd, &before, sizeof(before)) != sizeof(before))
		return false;
	do {
		for (int i = 0; i < 10000; i++)
			x = x * 6364136223846793005u + 1;
		sink = x;
		*ret_ns = clock_own_cpu_ns() - start;
	} while (*ret_ns < MEASURE_NS);
	if (read(fd, &after, sizeof(after)) != sizeof(after))
		return false;
	*ret_cycles = after - before;
	return *ret_cycles > 0;
}

void perf_measure_cycle(struct perf_sampler *s)
{
	struct perf_event_attr attr = s->attr;
	uint64_t cycles, ns;

	if (!attr.freq)
		return;
	attr.freq = 0;
	attr.sample_period = 0;
	attr.sample_type = 0;
	attr.sample_regs_user = 0;
	attr.sample_stack_user = 0;
	attr.inherit = 0;

	int fd = perf_event_open(&attr, 0, -1, -1);

	if (fd < 0)
		return;
	if (count(fd, &cycles, &ns))
		s->cycle_ps = 1000 * ns / cycles;
	close(fd);
}
