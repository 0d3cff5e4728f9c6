/* SPDX-License-Identifier: BSD-2-Clause */
/* How sure numbers of allocations are, and how they change over time. docs/heuristics/heap-intervals.md, heap-leaks.md */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "profile/heap.h"

#define Z95 1.959964 /* of the normal distribution, for 95 % between -Z95 and Z95 */

/* ---- intervals ---- */

/* Quantile of the chi-squared distribution with `k` degrees of freedom, where the normal one has `z` (Wilson and Hilferty). */
static double chi_squared(double k, double z)
{
	double cube = 1 - 2 / (9 * k) + z * sqrt(2 / (9 * k));

	return cube > 0 ? k * cube * cube * cube : 0;
}

/* A sum of independent parts, few of them or many, is taken for a multiple of a Poisson number with the same mean and
 * variance; for the upper end with one part more (Fay and Feuer 1997). */
struct heap_interval heap_interval(double value, double variance, double weight)
{
	struct heap_interval i = {value, value};
	double most = value + weight, spread = variance + weight * weight;

	if (value > 0 && variance > 0)
		i.low = variance / (2 * value) * chi_squared(2 * value * value / variance, -Z95);
	if (most > 0 && spread > 0)
		i.high = spread / (2 * most) * chi_squared(2 * most * most / spread, Z95);
	if (!(i.low >= 0 && i.low <= value))
		i.low = 0;
	if (!(i.high >= value))
		i.high = value;
	return i;
}

double heap_weight(const struct profile_heap *heap, const struct heap_sum *sum, bool bytes)
{
	double count = sum->number[HEAP_ALLOCATED];
	double size = count > 0 ? sum->number[HEAP_ALLOCATED_BYTES] / count : 0, p;

	if (!heap->sampled || heap->least_rate <= 0)
		return 0;
	if (size <= 0)
		return bytes ? heap->least_rate : 0;
	/* A block of the usual size, weighted by the chance that it was not sampled. */
	p = -expm1(-size / heap->least_rate);
	return (bytes ? size : 1) * (1 - p) / p;
}

/* ---- lines ---- */

void heap_line(const struct profile *p, const uint32_t *sites, size_t count, double *ret, double *ret_variance)
{
	const struct profile_heap *h = p->heap;

	memset(ret, 0, h->moments.len * sizeof(*ret));
	if (ret_variance)
		memset(ret_variance, 0, h->moments.len * sizeof(*ret_variance));
	/* What each point changes; then added up. */
	for (size_t i = 0; i < count; i++) {
		double live = 0, variance = 0;

		for (uint32_t at = h->sites.data[sites[i]].first_point; at != PROFILE_NONE; at = h->points.data[at].next) {
			const struct heap_point *point = &h->points.data[at];

			ret[point->moment] += (double)point->live_bytes - live;
			live = point->live_bytes;
			if (ret_variance)
				ret_variance[point->moment] += (double)point->variance - variance;
			variance = point->variance;
		}
	}
	for (size_t m = 1; m < h->moments.len; m++) {
		ret[m] += ret[m - 1];
		if (ret_variance)
			ret_variance[m] += ret_variance[m - 1];
	}
}

/* ---- growth ---- */

/* Moments [from, to) of a line. */
struct window {
	const uint64_t *times;
	const double *line, *variance;
	double weight; /* of one more block that was not sampled; 0: exact */
	double block;  /* bytes of a usual one: lines go up in such steps */
	double churn;  /* variance of what is allocated in a second */
	size_t from, to;
};

struct slope {
	double rate, low, high; /* bytes a second */
};

static double seconds(const struct window *w, size_t i)
{
	return (double)(w->times[i] - w->times[w->from]) / NS_PER_S;
}

/* Each moment counts for the time around it, so that many of them in a short while are no more than they are. */
static double span(const struct window *w, size_t i)
{
	size_t before = i > w->from ? i - 1 : i, after = i + 1 < w->to ? i + 1 : i;

	return (double)(w->times[after] - w->times[before]) / NS_PER_S;
}

/*
 * Blocks that were there all the time move no slope, however unsure their number is. What was allocated meanwhile has come, as far as it
 * is still there, and what it has replaced has gone: by chance other blocks of a cache are sampled than before. And where
 * there was less in between, what is above the least of the window at both ends came or went.
 */
static double sampling_variance(const struct window *w)
{
	double first = w->variance[w->from], last = w->variance[w->to - 1], least = INFINITY;
	double length = seconds(w, w->to - 1), allocated = w->churn * length;
	double turned = fmin(last, allocated) + fmin(first, fmax(allocated - (last - first), 0));

	for (size_t i = w->from; i < w->to; i++)
		least = fmin(least, w->variance[i]);
	return 1.2 * fmax(turned, first + last - 2 * least) / (length * length);
}

struct fit {
	double weight, t, y, tt, ty;
};

static struct fit fit_sums(const struct window *w)
{
	struct fit f = {0};

	for (size_t i = w->from; i < w->to; i++) {
		f.weight += span(w, i);
		f.t += span(w, i) * seconds(w, i);
		f.y += span(w, i) * w->line[i];
	}
	f.t /= f.weight;
	f.y /= f.weight;
	for (size_t i = w->from; i < w->to; i++) {
		double t = seconds(w, i) - f.t;

		f.tt += span(w, i) * t * t;
		f.ty += span(w, i) * t * (w->line[i] - f.y);
	}
	return f;
}

/* Of student's t, 97.5 % (Cornish and Fisher's expansion). */
static double student(double freedom)
{
	double z = Z95, z3 = z * z * z, z5 = z3 * z * z;

	return z + (z3 + z) / (4 * freedom) + (5 * z5 + 16 * z3 + 3 * z) / (96 * freedom * freedom);
}

/* What the line does beside the slope: as noise whose neighbours are alike, so that there are fewer of them than moments. */
static double residual_variance(const struct window *w, const struct fit *f, double rate, double *ret_freedom)
{
	double squares = 0, products = 0, last = 0, alike, n = (double)(w->to - w->from);

	for (size_t i = w->from; i < w->to; i++) {
		double r = w->line[i] - f->y - rate * (seconds(w, i) - f->t);

		squares += r * r;
		products += i > w->from ? r * last : 0;
		last = r;
	}
	alike = squares > 0 ? products / squares : 0;
	alike = fmin(fmax(alike, 0), 0.9);
	*ret_freedom = fmax(n * (1 - alike) / (1 + alike) - 2, 1);
	return squares / n / *ret_freedom;
}

/* What was never sampled may have been so many times what one sample counts, by 95 %. */
#define NONE_SEEN 3.69

static struct slope slope_of(const struct window *w)
{
	struct fit f = fit_sums(w);
	struct slope s = {0};
	double freedom, variance;

	if (!(f.tt > 0))
		return s;
	s.rate = f.ty / f.tt;
	variance = residual_variance(w, &f, s.rate, &freedom) * f.weight / f.tt;
	variance += sampling_variance(w);
	/* At either end a block more or less. */
	variance += pow(w->block / seconds(w, w->to - 1), 2) / 6;
	s.low = s.rate - student(freedom) * sqrt(variance);
	s.high = s.rate + hypot(student(freedom) * sqrt(variance), NONE_SEEN * w->weight / seconds(w, w->to - 1));
	return s;
}

#define SURE 1.7 /* half intervals: 3.3 standard deviations */
#define LEAST_MOMENTS 8u
#define LEAST_SECONDS 5.0
#define LEAST_GROWN 4096.0 /* bytes: what grows by less has no trend worth telling */
#define SLOWER 0.5         /* of a rate: what goes on at less is another one */
#define STOPS 0.7          /* of a rate that is less than the one before: at less than so much it is ending */
#define CLEAR 4            /* standard deviations */
#define TAIL 0.85          /* from this part of the time on it must not have stopped */

static bool is_flat(const struct window *w)
{
	double least = INFINITY, most = 0;

	for (size_t i = w->from; i < w->to; i++) {
		least = fmin(least, w->line[i]);
		most = fmax(most, w->line[i]);
	}
	return most - least < LEAST_GROWN;
}

/* The moments of the range, without the start: programs set themselves up then. */
static struct window whole_window(const struct profile_heap *h, const double *line, const double *variance,
	const struct heap_sum *sum)
{
	struct window w = {.times = h->moments.data, .line = line, .variance = variance, .to = h->moments.len,
		.weight = heap_weight(h, sum, true),
		.block = sum->number[HEAP_ALLOCATED_BYTES] / fmax(sum->number[HEAP_ALLOCATED], 1),
		.churn = sum->variance[HEAP_VAR_ALLOCATED_BYTES] * NS_PER_S / fmax((double)(h->to_ns - h->from_ns), 1)};
	uint64_t start = h->from_ns + (h->range ? 0 : (h->to_ns - h->from_ns) / 10);

	while (w.to && w.times[w.to - 1] > h->to_ns)
		w.to--;
	while (w.from < w.to && w.times[w.from] < start)
		w.from++;
	return w;
}

/* From `part` of the time of a window to its end. */
static struct window later(const struct window *w, double part)
{
	struct window l = *w;

	while (l.from + 1 < l.to && seconds(w, l.from) < seconds(w, w->to - 1) * part)
		l.from++;
	return l;
}

/* It has grown up to this part, and stays. */
static bool has_filled(const struct window *all, const struct window *late)
{
	double sum = 0, squares = 0, n = (double)(late->to - late->from), mean;

	for (size_t i = late->from; i < late->to; i++)
		sum += late->line[i];
	mean = sum / n;
	for (size_t i = late->from; i < late->to; i++)
		squares += (late->line[i] - mean) * (late->line[i] - mean);
	return mean - all->line[all->from] > CLEAR * sqrt(squares / n) + LEAST_GROWN;
}

/* A tail of a few moments at least. */
static bool has_stopped(const struct window *all, double rate)
{
	struct window tail = later(all, TAIL);

	return tail.to - tail.from >= LEAST_MOMENTS / 2 && slope_of(&tail).high < SLOWER * rate;
}

/* The slope that counts, and how far it must go on in the later part. */
struct course {
	struct slope base, check;
	double go_on;
	bool changed; /* only the second half counts */
};

static struct course course_of(const struct window *all, const struct window *late)
{
	struct window early = *all, last = later(all, 0.75);
	struct course c = {.check = slope_of(late), .base = slope_of(all), .go_on = SLOWER};
	struct slope before;

	early.to = late->from + 1;
	before = slope_of(&early);
	if (c.check.high >= SLOWER * before.rate && c.check.low <= fmax(before.high, 2 * before.rate))
		return c;
	/* It does something else than before: what counts is what it does now. */
	c.changed = true;
	c.base = c.check;
	c.go_on = STOPS;
	if (last.to - last.from >= LEAST_MOMENTS / 2)
		c.check = slope_of(&last);
	return c;
}

/* Where the time was divided after the fact, chance has had more than one try: then more is asked for than that 0 lies outside of a
 * 95 % interval. */
static bool goes_up(const struct course *c)
{
	double half = c->base.rate - c->base.low;

	return c->base.rate > (c->changed ? SURE : 1) * half;
}

struct heap_growth heap_growth_of(const struct profile *p, const double *line, const double *variance,
	const struct heap_sum *sum)
{
	struct window all = whole_window(p->heap, line, variance, sum), late, from;
	struct heap_growth g = {.trend = HEAP_TREND_UNKNOWN};
	struct course c;

	if (all.to - all.from < LEAST_MOMENTS || seconds(&all, all.to - 1) < LEAST_SECONDS)
		return g;
	late = later(&all, 0.5);
	if (late.to - late.from < LEAST_MOMENTS / 2 || late.from + 1 - all.from < LEAST_MOMENTS / 2)
		return g;
	g.trend = HEAP_TREND_STEADY;
	g.since_s = (double)(all.times[all.from] - p->start_ns) / NS_PER_S;
	if (is_flat(&all))
		return g;
	c = course_of(&all, &late);
	from = c.changed ? late : all;
	g.since_s = (double)(all.times[from.from] - p->start_ns) / NS_PER_S;
	g.rate = c.base.rate;
	g.low = c.base.low;
	g.high = c.base.high;
	if (goes_up(&c) && c.check.rate > 0 && c.check.high >= c.go_on * c.base.rate && !has_stopped(&all, c.base.rate))
		g.trend = HEAP_TREND_GROWS;
	else if (c.base.high < 0 && c.check.rate < 0)
		g.trend = HEAP_TREND_SHRINKS;
	else if (has_filled(&all, &late) || (c.base.low > 0 && c.base.rate > 0))
		g.trend = HEAP_TREND_FILLED;
	return g;
}
