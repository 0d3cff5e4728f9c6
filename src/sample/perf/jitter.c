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
 * taken off. What was set stays in force for every further sample until we get to set another one; what those periods were
 * short of the mean (or beyond it) is a debt that later draws pay back, so the mean rate stays.
 *
 * Copies of an event that new threads have inherited cannot be reached (the ioctl does not go to
 * them); each keeps the period the event had when it was made, and PERF_SAMPLE_PERIOD tells which, so that
 * the session can make up for it (samples_due). For the event itself that field always says the period
 * it was opened with, whatever we set: one that no copy has. Whose sample it is does not tell them apart,
 * for threads that have copies of the same event trade them as they follow each other on a CPU.
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

bool perf_is_copy(const struct perf_sampler *s, const struct watched_event *e, pid_t tid,
	uint64_t period)
{
	if (e->tid == -1)
		return false;
	return s->attr.freq ? e->tid != tid : period != s->attr.sample_period;
}

static void set_period(const struct perf_sampler *s, struct watched_event *e, int64_t period_ns)
{
	uint64_t value = (uint64_t)period_ns;

	if (s->attr.freq)
		value = NS_PER_S / value;
	else if (value == s->attr.sample_period) /* copies could not be told from it */
		value--;
	if (!ioctl(e->fd, PERF_EVENT_IOC_PERIOD, &value))
		e->set_ns = period_ns;
}

void perf_first_period(struct perf_sampler *s, struct cpu_ring *r, struct watched_event *e)
{
	if (!s->attr.freq)
		set_period(s, e, draw_period(s, r));
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
	set_period(s, e, set);
}

void perf_take_over(struct perf_sampler *s, struct cpu_ring *r, const struct watched_event *old,
	struct watched_event *new)
{
	int64_t mean = (int64_t)s->period_ns, late, set;
	uint64_t now = clock_monotonic_ns();

	if (s->attr.freq) /* the kernel looks for a period again */
		return;
	pthread_mutex_lock(&r->lock);
	/* What may have run of the old one's period, at most half. */
	late = old->sampled_ns && now > old->sampled_ns ? (int64_t)(now - old->sampled_ns) : 0;
	late = late < mean / 2 ? late : mean / 2;
	new->debt_ns = old->debt_ns;
	set = draw_period(s, r) - late;
	if (set < mean / 4) {
		new->debt_ns -= mean / 4 - set;
		set = mean / 4;
	}
	set_period(s, new, set);
	pthread_mutex_unlock(&r->lock);
}

void perf_note_sample(struct cpu_ring *r, struct watched_event *e, uint64_t time_ns)
{
	e->sampled_ns = time_ns;
	if (!e->samples++ && vec_push(&r->sampled, e->node.key))
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
