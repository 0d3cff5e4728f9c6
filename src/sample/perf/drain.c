/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rings of all CPUs as one stream in time order.
 *
 * Each ring is in order (nearly), so the oldest of the rings' next records comes next. A record of
 * another CPU may become visible a little after its time stamp; so the youngest records wait for
 * the next round. Records are handled where they lie, and their space is given back at once.
 */
#include "sample/perf/perf_priv.h"

#include "base/clock.h"

/* Looks at the oldest record of a ring. */
static void look(struct perf_sampler *s, struct cpu_ring *r)
{
	bool malformed = false;

	r->next = perf_ring_peek(&r->ring, &malformed);
	if (r->next)
		r->next_ns = perf_record_time(s, r->next);
	if (malformed)
		session_lost(s->session, LOSS_MALFORMED, 1);
}

static struct cpu_ring *oldest(struct perf_sampler *s)
{
	struct cpu_ring *first = NULL;

	vec_each(&s->rings, r)
		if (r->next && (!first || r->next_ns < first->next_ns))
			first = r;
	return first;
}

uint64_t perf_drain(struct sampler *sampler, bool last)
{
	struct perf_sampler *s = perf_of(sampler);
	/* Longer than a CPU takes from the time stamp to the published record. */
	uint64_t horizon = last ? UINT64_MAX : clock_monotonic_ns() - PERF_SETTLE_NS;
	struct cpu_ring *r;

	vec_each(&s->rings, ring) {
		perf_ring_begin(&ring->ring);
		if (!ring->next)
			look(s, ring);
	}
	while ((r = oldest(s)) && r->next_ns <= horizon) {
		s->ring_bytes_read += r->next->size;
		perf_decode(s, r->next);
		perf_ring_pop(&r->ring);
		look(s, r);
	}
	perf_jitter(s);
	return r ? PERF_SETTLE_NS : UINT64_MAX;
}
