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

#include <string.h>
#include <unistd.h>

#include "base/clock.h"

/* Before the caller gets its turn, though new records keep coming. */
#define MAX_ROUNDS 16
/* How long a sample may wait for its ring's thread. */
#define PATIENCE_NS (8 * NS_PER_MS)

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
	s->round_ns = clock_monotonic_ns();
	vec_each(&s->rings, ring) {
		perf_ring_begin(&ring->ring);
		if (!ring->next)
			look(s, ring);
	}
}

/* A sample whose stack the ring's thread is about to read. */
static bool is_too_young(const struct perf_sampler *s, struct cpu_ring *r)
{
	uint64_t id;

	if (r->next->type != PERF_RECORD_SAMPLE || s->round_ns >= r->next_ns + PATIENCE_NS ||
		!early_is_due(r, r->ring.tail))
		return false;
	memcpy(&id, r->next + 1, sizeof(id));

	const struct watched_event *e = perf_event_of(r, id);

	return e && !e->off_cpu;
}

/* The ring whose record comes next, NULL when none may be taken yet. */
static struct cpu_ring *next_ring(struct perf_sampler *s)
{
	struct cpu_ring *r = oldest(s);

	return r && !is_too_young(s, r) ? r : NULL;
}

uint64_t perf_oldest_ns(struct sampler *sampler)
{
	struct perf_sampler *s = perf_of(sampler);

	begin_round(s);

	const struct cpu_ring *r = next_ring(s);

	return r ? r->next_ns : UINT64_MAX;
}

void perf_drain_until(struct sampler *sampler, uint64_t time_ns)
{
	struct perf_sampler *s = perf_of(sampler);

	for (struct cpu_ring *r = next_ring(s); r && r->next_ns <= time_ns; r = next_ring(s)) {
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
	uint64_t before = s->ring_bytes_read;

	begin_round(s);
	perf_drain_until(&s->sampler, last ? UINT64_MAX : s->round_ns);
	return s->ring_bytes_read != before;
}

/* The timer that the rings' threads have set has done its work; false: it still runs, or was not set. */
static bool take_kick(struct perf_sampler *s)
{
	uint64_t times;

	if (s->timer_fd < 0 || read(s->timer_fd, &times, sizeof(times)) != sizeof(times))
		return false;
	__atomic_store_n(&s->kicked, false, __ATOMIC_RELEASE);
	return true;
}

uint64_t perf_settle(struct sampler *sampler, bool last)
{
	struct perf_sampler *s = perf_of(sampler);
	bool kicked = take_kick(s); /* for something that came after the last look */
	uint64_t again_ns, families_ns;

	vec_each(&s->rings, r)
		if (!r->has_thread)
			perf_jitter(s, r);
	again_ns = perf_off_cpu_settle(s, last);
	families_ns = last ? UINT64_MAX : perf_settle_families(s);
	again_ns = families_ns < again_ns ? families_ns : again_ns;
	perf_forget_retired(s);
	perf_python_settle(s);
	if (kicked && perf_oldest_ns(sampler) != UINT64_MAX)
		return 0;
	return oldest(s) && again_ns > PATIENCE_NS ? PATIENCE_NS : again_ns;
}

uint64_t perf_drain(struct sampler *sampler, bool last)
{
	struct perf_sampler *s = perf_of(sampler);
	uint64_t again_ns;
	int rounds = 0;

	take_kick(s);
	perf_off_cpu_look(s);
	while (drain_round(s, last) && ++rounds < MAX_ROUNDS)
		;
	again_ns = perf_settle(sampler, last);
	return rounds < MAX_ROUNDS ? again_ns : 0;
}
