/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rings of all CPUs as one stream in time order.
 *
 * Each ring is in order (nearly), so the oldest of the rings' next records comes next. Records are
 * handled where they lie, and their space is given back at once.
 *
 * Only what is older than the moment before we looked at the rings is handled. Then whatever led to
 * a record was handled before it: its time stamp, and so its cause's record, was before that moment,
 * and a record is in its ring before anyone can act on what it tells (a thread that was just made
 * runs only after the record of its fork was written, and so on). Records of CPUs that do not know
 * of each other may still be handled some microseconds out of order. Waiting for those would cost
 * what matters more: the stack beyond the copy is read from the running target, and it is still
 * there if we come soon.
 */
#include "sample/perf/perf_priv.h"

#include "base/clock.h"

/* Before the caller gets its turn, though new records keep coming. */
#define MAX_ROUNDS 16

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

static void begin_round(struct perf_sampler *s)
{
	vec_each(&s->rings, ring) {
		perf_ring_begin(&ring->ring);
		if (!ring->next)
			look(s, ring);
	}
}

uint64_t perf_oldest_ns(struct sampler *sampler)
{
	struct perf_sampler *s = perf_of(sampler);

	begin_round(s);

	const struct cpu_ring *r = oldest(s);

	return r ? r->next_ns : UINT64_MAX;
}

void perf_drain_until(struct sampler *sampler, uint64_t time_ns)
{
	struct perf_sampler *s = perf_of(sampler);

	for (struct cpu_ring *r = oldest(s); r && r->next_ns <= time_ns; r = oldest(s)) {
		s->ring_bytes_read += r->next->size;
		perf_decode(s, r);
		r->handled_ns = r->next_ns;
		perf_ring_pop(&r->ring);
		look(s, r);
	}
}

/* Whether there was anything. */
static bool drain_round(struct perf_sampler *s, bool last)
{
	uint64_t horizon = last ? UINT64_MAX : clock_monotonic_ns();
	bool any;

	begin_round(s);
	any = oldest(s);
	perf_drain_until(&s->sampler, horizon);
	return any;
}

uint64_t perf_drain(struct sampler *sampler, bool last)
{
	struct perf_sampler *s = perf_of(sampler);
	uint64_t again_ns;
	int rounds = 0;

	perf_off_cpu_look(s);
	while (drain_round(s, last) && ++rounds < MAX_ROUNDS)
		;
	vec_each(&s->rings, r)
		perf_jitter(s, r);
	again_ns = perf_off_cpu_settle(s, last);
	return rounds < MAX_ROUNDS ? again_ns : 0;
}
