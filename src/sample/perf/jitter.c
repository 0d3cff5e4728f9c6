/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Sampling out of step.
 *
 * A program whose phases repeat with the sampling period is seen always in the same phase, and its
 * profile is wrong by any amount. So after a sample the event's next period is drawn anew, evenly
 * between 1/2 and 3/2 of the mean: then two samples in a row tell nothing about each other's phase,
 * while with a narrower draw it takes many samples to forget one. At more than 250 Hz several
 * samples in a row share a period.
 *
 * Setting a period restarts it from now, so the time that the thread has had since the sample is
 * taken off. What was set
 * stays in force for every further sample until we get to set another one; what those periods were
 * short of the mean (or beyond it) is a debt that later draws pay back, so the mean rate stays.
 *
 * Events that new threads inherited cannot be reached (the ioctl does not go to children); each
 * keeps the period its parent had when it was made, and PERF_SAMPLE_PERIOD tells which, so that the
 * session can make up for it (samples_due). For events of our own that field says the mean, whatever
 * we set.
 */
#include "sample/perf/perf_priv.h"

#include <sys/ioctl.h>

#include "base/clock.h"
#include "base/hash.h"

/* An ioctl that interrupts the CPU the thread is on: at high rates not for each sample. */
#define DRAW_EVERY_NS (4 * NS_PER_MS)

/* While we run in the thread's place it does not use its period up: what it has had since the sample
 * is the interrupt that took it, and being put aside. */
#define TAKEN_NS ((int64_t)(20 * NS_PER_US))

static int64_t draw_period(const struct perf_sampler *s, struct cpu_ring *r)
{
	r->random += 0x9e3779b97f4a7c15ULL;
	return (int64_t)(s->period_ns / 2 + hash_u64(r->random) % (s->period_ns + 1));
}

/* At most a quarter of a period is paid at a time. */
static int64_t pay_back(const struct perf_sampler *s, struct watched_event *e)
{
	int64_t most = (int64_t)s->period_ns / 4, paid = e->debt_ns;

	paid = paid > most ? most : paid < -most ? -most : paid;
	e->debt_ns -= paid;
	return paid;
}

static void draw_anew(const struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e,
	uint64_t now)
{
	int64_t mean = (int64_t)s->period_ns;
	int64_t late = now > e->sampled_ns ? (int64_t)(now - e->sampled_ns) : 0;
	int64_t kept = e->set_ns ? mean - e->set_ns : 0, set;

	/* The first of these samples ended the period that was drawn; the others ran as it was set. */
	e->debt_ns += (int64_t)(e->samples - 1) * kept;
	e->samples = 0;
	e->drawn_ns = now;
	if (late > mean / 2) { /* too late to tell where the running period stands */
		e->debt_ns += kept;
		return;
	}
	set = draw_period(s, r) + pay_back(s, e);
	if (r->has_thread && late > TAKEN_NS)
		late = TAKEN_NS;
	if (!s->attr.freq) /* a frequency does not restart anything */
		set -= late;
	if (set < mean / 8) {
		e->debt_ns -= mean / 8 - set;
		set = mean / 8;
	}

	uint64_t value = s->attr.freq ? NS_PER_S / (uint64_t)set : (uint64_t)set;

	if (!ioctl(e->fd, PERF_EVENT_IOC_PERIOD, &value))
		e->set_ns = set;
}

void perf_take_over(struct perf_sampler *s, struct cpu_ring *r, const struct watched_event *old,
	struct watched_event *new)
{
	int64_t mean = (int64_t)s->period_ns, late;
	uint64_t now = clock_monotonic_ns(), value;

	if (s->attr.freq) /* the kernel looks for a period again */
		return;
	pthread_mutex_lock(&r->lock);
	/* What may have run of the old one's period, at most half. */
	late = old->sampled_ns && now > old->sampled_ns ? (int64_t)(now - old->sampled_ns) : 0;
	late = late < mean / 2 ? late : mean / 2;
	new->debt_ns = old->debt_ns;
	new->set_ns = draw_period(s, r) - late;
	if (new->set_ns < mean / 4) {
		new->debt_ns -= mean / 4 - new->set_ns;
		new->set_ns = mean / 4;
	}
	value = (uint64_t)new->set_ns;
	ioctl(new->fd, PERF_EVENT_IOC_PERIOD, &value);
	pthread_mutex_unlock(&r->lock);
}

void perf_note_sample(struct cpu_ring *r, struct watched_event *e, uint64_t time_ns)
{
	e->sampled_ns = time_ns;
	if (!e->samples++ && vec_push(&r->sampled, e->id))
		e->samples = 0; /* it keeps its period */
}

void perf_jitter(struct perf_sampler *s, struct cpu_ring *r)
{
	uint64_t now = clock_monotonic_ns();
	size_t kept = 0;

	pthread_mutex_lock(&r->lock);
	for (size_t i = 0; i < r->sampled.len; i++) {
		uint64_t id = r->sampled.data[i];
		struct watched_event *e = event_table_find(&r->events, id);

		if (e && now - e->drawn_ns >= DRAW_EVERY_NS)
			draw_anew(s, r, e, now);
		else if (e)
			r->sampled.data[kept++] = id;
	}
	r->sampled.len = kept;
	pthread_mutex_unlock(&r->lock);
}
