/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a recording knows about allocations: part of a profile (profile.h) and read-only like it.
 *
 * A site is a stack that allocates, of one thread. Its numbers are those at the end of the recording, or what was
 * added between the two times of the filter (heap_from_ns, heap_to_ns). Reports put sites together whose memory was
 * asked for in the same line of code: a spot.
 *
 * Numbers are doubles. Exact ones are integers with variance 0; of sampled allocations they are estimates
 * (docs/heuristics/heap-intervals.md). None is NaN, infinite or negative, whatever the file holds, but for differences.
 */
#ifndef SONDE_PROFILE_HEAP_H
#define SONDE_PROFILE_HEAP_H

#include "profile/profile.h"

struct heap_process {
	uint32_t pid;
	const char *name;      /* never NULL */
	uint64_t since_ns, rate; /* rate: bytes or calls; 0: exact */
	uint8_t precision;     /* enum heap_precision */
	uint8_t how;           /* enum heap_how */
	bool ended;            /* while it was recorded */
	bool maps;             /* what it maps itself was recorded as well */
	const char *allocator; /* NULL: not known */
	const char *uncovered; /* what is not seen, in words; NULL: nothing is known to be missing */
};

/* What sites can be measured by. */
enum heap_order {
	HEAP_BY_LIVE,
	HEAP_BY_LEAKED,
	HEAP_BY_GROWTH, /* what grows first, then by the rate; of a range by what became more in it */
	HEAP_BY_PEAK,
	HEAP_BY_TOTAL,
	HEAP_BY_TEMPORARY,
	HEAP_BY_CROSS,
	HEAP_BY_COUNT, /* how many blocks are live */
	HEAP_BY_WASTED,
	HEAP_ORDERS,
};

/* How much memory of a site is live goes on changing in this way (docs/heuristics/heap-leaks.md). */
enum heap_trend {
	HEAP_TREND_UNKNOWN, /* there are too few moments to tell */
	HEAP_TREND_STEADY,  /* no growth that could be told from chance */
	HEAP_TREND_GROWS,   /* all the time, to the end */
	HEAP_TREND_FILLED,  /* it grew, and then no more, or much slower */
	HEAP_TREND_SHRINKS,
};

struct heap_growth {
	enum heap_trend trend;
	double rate, low, high; /* bytes of live memory a second, with its 95 % interval */
	double since_s;         /* of the recording: what the rate was measured over began then */
};

struct heap_sum {
	double number[HEAP_NUMBERS];
	double variance[HEAP_VARIANCES];
	/* Live at the end, and when the range began (0: no range). */
	double live, live_bytes, before, before_bytes;
	/* Live at the end of a process that ended, else live and older than the last tenth of the recording. Zeros
	 * when there is a range. */
	double leaked, leaked_bytes;
	/* Of live blocks: what the allocator gave above what was asked for. 0 where that is not known. */
	double wasted_bytes;
	uint64_t samples; /* blocks that all this was made from */
};

struct heap_site {
	struct heap_sum sum;
	uint32_t pid, tid;      /* tid 0: of several threads */
	uint32_t process;       /* index, PROFILE_NONE: not known */
	uint32_t thread;        /* index into the profile's threads, PROFILE_NONE: several */
	uint32_t stack;         /* leaf node, PROFILE_NONE: not known */
	uint32_t shapes;        /* index of the first of its rows; PROFILE_NONE: none were written */
	uint32_t first_point, last_point; /* of its list; PROFILE_NONE */
};

#define HEAP_SHAPES 6u /* enum heap_shape */

/* Of one site and kind: buckets `first` and on, the others are 0. */
struct heap_shape_row {
	uint32_t at; /* index of the first of its counts */
	uint8_t first, buckets, room;
};

struct heap_shapes {
	VEC(struct heap_shape_row) rows; /* HEAP_SHAPES for each site that has some */
	VEC(float) counts;
};

/* Live memory of a site at a moment; it stays so until the next one of the site. */
struct heap_point {
	uint32_t moment, next; /* next: of the site, PROFILE_NONE: the last */
	float live_bytes, variance;
};

/* All processes together, as long as they run. */
struct heap_total {
	uint64_t time_ns;
	double live, live_bytes, allocated_bytes;
	double rss_bytes; /* 0: not known */
};

/* As record_heap_class. */
struct heap_class {
	uint64_t usable;
	double live, live_bytes, live_usable, peak, peak_bytes, peak_usable, variance_wasted;
};

struct heap_flow {
	uint32_t site;     /* index */
	uint32_t pid, tid; /* who freed */
	uint32_t thread;   /* index into the profile's threads, PROFILE_NONE: left out by the filter */
	uint32_t stack;    /* where: leaf node, PROFILE_NONE: not known */
	double count, bytes;
};

struct heap_thread {
	uint32_t pid, tid, thread; /* index into the profile's threads; PROFILE_NONE: left out by the filter */
	double allocated, allocated_bytes, freed, freed_bytes, freed_unknown;
};

struct profile_heap {
	VEC(struct heap_process) processes;
	VEC(struct heap_site) sites;
	VEC(uint64_t) moments; /* times, ascending: when states of sites were written */
	VEC(struct heap_point) points;
	struct heap_shapes shapes;
	VEC(struct heap_total) totals;     /* by time */
	VEC(struct heap_class) classes;    /* by `usable`; none: no allocator's sizes are known */
	VEC(struct heap_flow) flows; /* by site */
	VEC(struct heap_thread) threads;

	/* Of all sites that pass the filter. Exact where the recording has totals of its own and no thread is left out. */
	struct heap_sum sum;
	struct heap_sum mapped;   /* of what programs have mapped themselves: in none of the other numbers */
	double peak_bytes, peak_variance;
	uint64_t peak_ns;         /* 0: not known */
	uint64_t from_ns, to_ns;  /* what the numbers are of, CLOCK_MONOTONIC */
	/* By function: the program's own that only hands on what an allocator gives (docs/heuristics/heap-sites.md). NULL: none. */
	bool *wrappers;
	bool show_wrappers;       /* those that are known by name are the program's code, too */
	bool range;               /* the filter asked for a part of the recording */
	bool filtered;            /* threads were left out */
	bool sampled;             /* at least one process was */
	bool maps;                /* of at least one process what it maps was recorded */
	enum heap_order weighed;  /* what samples weigh (profile_heap_weigh()) */
	double least_rate;        /* of sampled processes: the largest rate in bytes; 0: none */
};

void heap_sum_add(struct heap_sum *to, const struct heap_sum *s);

/* Those of a site; *ret_count may be 0. */
const struct heap_flow *heap_flows_of(const struct profile_heap *heap, uint32_t site, size_t *ret_count);

/* ---- intervals ---- */

struct heap_interval {
	double low, high;
};

/* The 95 % interval of an estimate with this variance. `weight`: what one more block could have added, at most, that
 * was not sampled (heap_weight()). Exact numbers are their own interval. */
struct heap_interval heap_interval(double value, double variance, double weight);

/* For an interval: of the blocks of a site. `bytes`: else of their count. */
double heap_weight(const struct profile_heap *heap, const struct heap_sum *sum, bool bytes);

/* ---- spots ---- */

/* Sites in one line of code: that of the innermost frame outside the allocator (docs/heuristics/heap-sites.md). */
struct heap_spot {
	uint32_t function; /* index; PROFILE_NONE: there is no stack */
	uint32_t line;     /* 0: not known */
	uint32_t pool;     /* heap_pool_of() of its sites */
	const char *file;  /* NULL: not known */
	struct heap_sum sum;
	struct heap_growth growth;
	size_t first, count; /* its sites: order[first] and on, the largest first in what was sorted by */
};

/* "live", "leaked"...; -EINVAL for other words. */
const char *heap_order_name(enum heap_order order);
int heap_order_by_name(const char *name, enum heap_order *ret);

/* The bytes that an order goes by (of growth: what became more in the range, or leaked). */
double heap_measure(const struct heap_sum *sum, enum heap_order order);

struct heap_spots {
	VEC(struct heap_spot) spots;
	VEC(uint32_t) order; /* sites */
};

/* Sorted. *ret is untouched after a failure. The profile must have a heap. */
int heap_spots_build(const struct profile *p, enum heap_order order, struct heap_spots *ret, struct err *err);
void heap_spots_release(struct heap_spots *s);

/* What stands in a stack for an allocator of the program's own, a function "[pool NAME]", or for what the program has
 * mapped itself, "[mapped...]"; PROFILE_NONE: malloc has given the block. Neither is in the sum of all sites: blocks of pools
 * lie in others, and what is mapped may be handed out again. */
uint32_t heap_pool_of(const struct profile *p, uint32_t stack);

enum heap_kind {
	HEAP_MALLOC,
	HEAP_POOL,
	HEAP_MAPPED,
};
/* By heap_pool_of(). */
enum heap_kind heap_kind_of(const struct profile *p, uint32_t pool);

/* The level of the code that a site's memory is for, and the stack node whose frame it is in; both PROFILE_NONE
 * without a stack. */
uint32_t heap_site_level(const struct profile *p, uint32_t stack, uint32_t *ret_node);

/* From now on wrappers of allocators are code like any other; before anything is made of the sites. */
void heap_show_wrappers(struct profile *p);

/* What is a wrapper in one is one in the other, by its name: for what compares them. Either may have no heap. */
void heap_share_wrappers(struct profile *a, struct profile *b);

/* ---- over time ---- */

/* Live bytes of so many sites at each moment. `ret` and `ret_variance` (may be NULL) have room for moments.len. */
void heap_line(const struct profile *p, const uint32_t *sites, size_t count, double *ret, double *ret_variance);

/* From live bytes at each moment (heap_line()) of sites with this sum. */
struct heap_growth heap_growth_of(const struct profile *p, const double *line, const double *variance,
	const struct heap_sum *sum);

double heap_shape_count(const struct profile_heap *h, const struct heap_site *s, enum heap_shape kind, unsigned bucket);

/* Sums of shapes of so many sites; `sites` NULL: of all whose blocks are malloc's, and `count` means nothing. */
void heap_shape_sum(const struct profile *p, const uint32_t *sites, size_t count, enum heap_shape kind,
	double ret[HEAP_BUCKETS]);

/* ---- as samples ---- */

/* Makes the sites the samples of the profile, each of a weight as `order` measures it, so that call trees and the
 * views of them show memory. Once a profile. */
int profile_heap_weigh(struct profile *p, enum heap_order order, struct err *err);

#endif
