/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many stacks are copied as threads leave CPUs.
 *
 * A copy costs as much as a switch. A thread that switches a hundred thousand times a second would run
 * at half its speed for stacks of which nearly all are alike; so its event is only on for a while, and off
 * until the mean is what it may be. Records of leaving and entering go on: times stay exact, and what the
 * waits without a copy come to is laid on those with one (sample/thinning.h). How long an event is
 * off is drawn by chance, for a program may have phases.
 *
 * An event covers all threads that inherited it: those are turned off and on together.
 */
#include "sample/perf/perf_priv.h"

#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/hash.h"

#define MOST_PER_S 8000u   /* copies, in the mean */
#define MOST_AT_ONCE 200u  /* without a look at how long that took */
#define COUNT_NS (100 * NS_PER_MS)
#define WORTH_A_CALL 16u   /* an event with a smaller part of all copies stays on */
#define OFF_LEAST_NS (2 * NS_PER_MS)
#define OFF_MOST_NS (200 * NS_PER_MS)

void perf_copies_count(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e)
{
	struct event_ref ref = {(size_t)(r - s->rings.data), e->node.key};

	s->copies.count++;
	if (!e->samples++ && vec_push(&s->copies.seen, ref))
		e->samples = 0; /* it stays on */
}

static void turn(struct perf_sampler *s, struct event_ref ref, unsigned long request)
{
	struct cpu_ring *r = &s->rings.data[ref.ring];
	struct watched_event *e = perf_event_of(r, ref.id);

	if (e)
		ioctl(e->fd, request, 0);
}

static void resume(struct perf_sampler *s)
{
	vec_each(&s->copies.paused, ref)
		turn(s, *ref, PERF_EVENT_IOC_ENABLE);
	s->copies.paused.len = 0;
}

/* So long that the copies since the last look are what may be made until then. */
static uint64_t draw_pause(struct perf_sampler *s, uint64_t since_ns)
{
	uint64_t fair_ns = s->copies.count * NS_PER_S / MOST_PER_S;
	uint64_t off_ns = fair_ns > since_ns ? fair_ns - since_ns : 0;

	off_ns = off_ns < OFF_LEAST_NS ? OFF_LEAST_NS : off_ns > OFF_MOST_NS ? OFF_MOST_NS : off_ns;
	s->copies.random += 0x9e3779b97f4a7c15ULL;
	return off_ns / 2 + hash_u64(s->copies.random) % off_ns;
}

static void pause_copies(struct perf_sampler *s, uint64_t now_ns)
{
	vec_each(&s->copies.seen, ref) {
		struct watched_event *e = perf_event_of(&s->rings.data[ref->ring], ref->id);

		if (e && e->samples * WORTH_A_CALL >= s->copies.count &&
			!vec_push(&s->copies.paused, *ref))
			turn(s, *ref, PERF_EVENT_IOC_DISABLE);
	}
	s->copies.resume_ns = now_ns + draw_pause(s, now_ns - s->copies.since_ns);
	off_cpu_leaves_out(s->off_cpu);
}

/* Counts from now on. */
static void begin_count(struct perf_sampler *s, uint64_t now_ns)
{
	vec_each(&s->copies.seen, ref) {
		struct watched_event *e = perf_event_of(&s->rings.data[ref->ring], ref->id);

		if (e)
			e->samples = 0;
	}
	s->copies.seen.len = 0;
	s->copies.count = 0;
	s->copies.since_ns = now_ns;
}

uint64_t perf_copies_settle(struct perf_sampler *s, uint64_t now_ns)
{
	struct copies *c = &s->copies;
	uint64_t since_ns = now_ns - c->since_ns;

	if (c->paused.len && now_ns < c->resume_ns)
		return c->resume_ns - now_ns;
	if (c->paused.len) {
		resume(s);
		begin_count(s, now_ns);
	} else if (c->count > MOST_AT_ONCE && c->count * NS_PER_S > MOST_PER_S * since_ns) {
		pause_copies(s, now_ns);
		begin_count(s, now_ns);
		return c->resume_ns - now_ns;
	} else if (since_ns >= COUNT_NS) {
		begin_count(s, now_ns);
	}
	return UINT64_MAX;
}
