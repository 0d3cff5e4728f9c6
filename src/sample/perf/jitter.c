/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling out of step.
 *
 * A program whose phases repeat with the sampling period is seen always in the same phase, and its
 * profile is wrong by any amount. So after a sample the event's next period is drawn anew, evenly
 * between 3/4 and 5/4 of the mean. Setting a period restarts it from now; the time since the sample
 * is taken off, so the mean rate stays. Events that new threads inherited cannot be reached (the
 * ioctl does not go to children); each keeps the period its parent had when it was made.
 */
#include "sample/perf/perf_priv.h"

#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/hash.h"

static uint64_t draw_period(struct perf_sampler *s)
{
	s->random += 0x9e3779b97f4a7c15ULL;
	uint64_t half = s->period_ns / 2;

	return s->period_ns - s->period_ns / 4 + hash_u64(s->random) % (half ? half : 1);
}

void perf_jitter(struct perf_sampler *s)
{
	uint64_t now = clock_monotonic_ns();

	vec_each(&s->events, e) {
		if (!e->sampled_ns)
			continue;

		uint64_t late = now - e->sampled_ns, period = draw_period(s), value;

		e->sampled_ns = 0;
		/* Too late to tell where the running period stands: leave it alone. */
		if (late > s->period_ns / 2)
			continue;
		value = s->attr.freq ? NS_PER_S / period : period - late;
		ioctl(e->fd, PERF_EVENT_IOC_PERIOD, &value);
	}
}
