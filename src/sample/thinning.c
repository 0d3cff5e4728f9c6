/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/thinning.h"

static void begin_window(struct thinning *t, uint64_t now_ns)
{
	t->window_ns = now_ns;
	t->spent_ns = 0;
	t->seen = t->kept = 0;
}

/* A window that ended with room to spare lowers the threshold; one with room for all ends it. */
static void relax(struct thinning *t, uint64_t now_ns, uint32_t most)
{
	if (t->seen < most)
		t->threshold_ns = 0;
	else if (t->kept < most / 2)
		t->threshold_ns /= 2;
	begin_window(t, now_ns);
}

static void tighten(struct thinning *t, uint64_t now_ns)
{
	uint64_t mean_ns = t->spent_ns / t->seen;

	t->threshold_ns = 2 * (t->threshold_ns > mean_ns ? t->threshold_ns : mean_ns);
	begin_window(t, now_ns);
}

/* What is owed is shared out anew once there is something to lay it on. */
static void share_owed(struct thinning *t)
{
	if (!t->brief_ns)
		return;
	t->on_top = (double)t->owed_ns / (double)t->brief_ns;
	t->brief_ns = 0;
}

static void at_time(struct thinning *t, uint64_t now_ns, uint32_t most)
{
	if (now_ns - t->window_ns < THINNING_WINDOW_NS)
		return;
	share_owed(t);
	relax(t, now_ns, most);
}

/* The weight with its part of what is owed. */
static uint64_t lay_on(struct thinning *t, uint64_t weight)
{
	uint64_t extra = (uint64_t)((double)weight * t->on_top);

	extra = extra < t->owed_ns ? extra : t->owed_ns;
	t->owed_ns -= extra;
	return weight + extra;
}

uint64_t thinning_weight(struct thinning *t, uint64_t end_ns, uint64_t duration_ns, uint32_t most,
	uint64_t random)
{
	uint64_t weight = duration_ns;

	at_time(t, end_ns, most);
	if (duration_ns < t->threshold_ns)
		weight = random % t->threshold_ns < duration_ns ? t->threshold_ns : 0;
	t->seen++;
	t->spent_ns += duration_ns;
	t->kept += weight != 0;
	if (t->kept >= most)
		tighten(t, end_ns);
	if (duration_ns >= THINNING_BRIEF_NS)
		return weight;
	t->brief_ns += duration_ns;
	return weight ? lay_on(t, weight) : 0;
}

void thinning_missed(struct thinning *t, uint64_t end_ns, uint64_t duration_ns)
{
	if (end_ns - t->window_ns >= THINNING_WINDOW_NS)
		share_owed(t);
	t->owed_ns += duration_ns;
}
