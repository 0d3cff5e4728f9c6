/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sums of heap/model.h in the slowest and plainest way: all blocks that ever were stand in a list, a peak is noted
 * by looking at every site. And streams of events that could come from a program, by a fixed seed.
 */
#ifndef SONDE_TESTS_UNIT_HEAP_REFERENCE_H
#define SONDE_TESTS_UNIT_HEAP_REFERENCE_H

#include <math.h>
#include <stdlib.h>

#include "heap/model.h"

#define REF_SITES 512u
#define REF_BLOCKS 200000u
#define REF_FLOWS 8192u
#define REF_THREADS 64u

struct ref_site {
	uint32_t process, tid, stack;
	bool ended;
	double number[HEAP_NUMBERS], variance[HEAP_VARIANCES];
	double shape[HEAP_BUCKETS], lifetimes[HEAP_BUCKETS];
};

enum ref_where {
	REF_LIVE,
	REF_MOVING, /* realloc has it */
	REF_GONE,
	REF_LEFT,   /* its process has ended */
};

struct ref_block {
	uint32_t process, tid, site;
	enum ref_where where;
	uint64_t address, size, time_ns, rate;
	double weight, variance; /* of its count */
};

struct ref_thread {
	uint32_t process, tid;
	int64_t last;   /* block; -1: none */
	int64_t moving; /* the same, -2: a realloc of something unknown, -1: none */
	uint64_t from;
	double numbers[5]; /* as RECORD_HEAP_THREAD */
};

struct ref_flow {
	uint32_t site, process, tid, stack;
	double count, bytes;
};

struct ref {
	bool sampled;
	struct ref_site sites[REF_SITES];
	uint32_t site_count;
	struct ref_block *blocks;
	uint32_t block_count, first; /* none before `first` is live */
	struct ref_thread threads[REF_THREADS];
	uint32_t thread_count;
	struct ref_flow flows[REF_FLOWS];
	uint32_t flow_count;
	double peak, peak_ns, missed, unknown, temporary;
};

static inline struct ref *ref_new(bool sampled)
{
	struct ref *r = calloc(1, sizeof(*r));

	r->blocks = calloc(REF_BLOCKS, sizeof(*r->blocks));
	r->sampled = sampled;
	return r;
}

static inline void ref_free(struct ref *r)
{
	free(r->blocks);
	free(r);
}

static inline uint32_t ref_site(struct ref *r, uint32_t process, uint32_t tid, uint32_t stack)
{
	for (uint32_t i = 0; i < r->site_count; i++)
		if (r->sites[i].process == process && r->sites[i].tid == tid && r->sites[i].stack == stack)
			return i;
	r->sites[r->site_count] = (struct ref_site){.process = process, .tid = tid, .stack = stack};
	return r->site_count++;
}

static inline struct ref_thread *ref_thread(struct ref *r, uint32_t process, uint32_t tid)
{
	for (uint32_t i = 0; i < r->thread_count; i++)
		if (r->threads[i].process == process && r->threads[i].tid == tid)
			return &r->threads[i];
	r->threads[r->thread_count] = (struct ref_thread){.process = process, .tid = tid, .last = -1, .moving = -1};
	return &r->threads[r->thread_count++];
}

static inline int64_t ref_find(const struct ref *r, uint32_t process, uint64_t address)
{
	for (uint32_t i = r->first; i < r->block_count; i++)
		if (r->blocks[i].where == REF_LIVE && r->blocks[i].process == process && r->blocks[i].address == address)
			return i;
	return -1;
}

static inline double ref_live_of(const struct ref_site *s, bool bytes)
{
	return s->number[bytes ? HEAP_ALLOCATED_BYTES : HEAP_ALLOCATED] - s->number[bytes ? HEAP_FREED_BYTES : HEAP_FREED];
}

static inline double ref_living(const struct ref *r)
{
	double sum = 0;

	for (uint32_t i = 0; i < r->site_count; i++)
		if (!r->sites[i].ended)
			sum += ref_live_of(&r->sites[i], true);
	return sum;
}

/* Only what was just allocated can make a peak. */
static inline void ref_peak(struct ref *r, uint64_t time_ns)
{
	double living = ref_living(r);

	if (living <= r->peak * (1 + 1e-12))
		return;
	r->peak = living;
	r->peak_ns = (double)time_ns;
	for (uint32_t i = 0; i < r->site_count; i++) {
		struct ref_site *s = &r->sites[i];

		s->number[HEAP_PEAK] = s->ended ? 0 : ref_live_of(s, false);
		s->number[HEAP_PEAK_BYTES] = s->ended ? 0 : ref_live_of(s, true);
		s->variance[HEAP_VAR_PEAK_BYTES] = s->ended ? 0 : s->variance[HEAP_VAR_LIVE_BYTES];
	}
}

/* Times of blocks are kept in steps of 64 ns. */
static inline uint64_t ref_time(uint64_t time_ns)
{
	return time_ns / 64 * 64;
}

static inline uint32_t ref_bucket(uint64_t value)
{
	uint32_t b = 0;

	while (b < HEAP_BUCKETS - 1 && value >= 1ull << b)
		b++;
	return b;
}

static inline void ref_gone(struct ref *r, int64_t i, struct ref_thread *t, uint64_t time_ns)
{
	struct ref_block *b = &r->blocks[i];
	struct ref_site *s = &r->sites[b->site];

	b->where = REF_GONE;
	s->number[HEAP_FREED] += b->weight;
	s->number[HEAP_FREED_BYTES] += b->weight * (double)b->size;
	s->number[HEAP_LIFETIME_NS] += b->weight * (double)(ref_time(time_ns) - ref_time(b->time_ns));
	s->lifetimes[ref_bucket((ref_time(time_ns) - ref_time(b->time_ns)) / 1000)] += b->weight;
	s->variance[HEAP_VAR_LIVE] -= b->variance;
	s->variance[HEAP_VAR_LIVE_BYTES] -= b->variance * (double)b->size * (double)b->size;
	if (t) {
		t->numbers[2] += b->weight;
		t->numbers[3] += b->weight * (double)b->size;
	}
	while (r->first < r->block_count && r->blocks[r->first].where >= REF_GONE)
		r->first++;
}

static inline void ref_flow(struct ref *r, int64_t i, const struct heap_event *e, uint32_t stack)
{
	const struct ref_block *b = &r->blocks[i];
	struct ref_flow *f = r->flows;

	if (b->tid == e->tid)
		return;
	r->sites[b->site].number[HEAP_CROSS_FREED] += b->weight;
	r->sites[b->site].number[HEAP_CROSS_FREED_BYTES] += b->weight * (double)b->size;
	while (f < r->flows + r->flow_count && !(f->site == b->site && f->tid == e->tid && f->stack == stack))
		f++;
	if (f == r->flows + r->flow_count)
		r->flows[r->flow_count++] = (struct ref_flow){.site = b->site, .process = e->process, .tid = e->tid, .stack = stack};
	f->count += b->weight;
	f->bytes += b->weight * (double)b->size;
}

static inline void ref_alloc(struct ref *r, struct ref_thread *t, const struct heap_event *e, uint32_t stack, int64_t old)
{
	int64_t there = ref_find(r, e->process, e->address);
	struct ref_block *b = &r->blocks[r->block_count];
	double p = r->sampled ? 1 - exp(-(double)(e->size ? e->size : 1) / (double)e->rate) : 1;
	struct ref_site *s;

	if (there >= 0) {
		ref_gone(r, there, NULL, e->time_ns);
		r->missed++;
	}
	*b = (struct ref_block){
		.process = e->process, .tid = e->tid, .address = e->address, .size = e->size, .time_ns = e->time_ns,
		.rate = e->rate, .site = ref_site(r, e->process, e->tid, stack), .weight = 1 / p, .variance = (1 - p) / (p * p),
	};
	s = &r->sites[b->site];
	s->number[HEAP_ALLOCATED] += b->weight;
	s->number[HEAP_ALLOCATED_BYTES] += b->weight * (double)b->size;
	s->variance[HEAP_VAR_ALLOCATED] += b->variance;
	s->variance[HEAP_VAR_LIVE] += b->variance;
	s->variance[HEAP_VAR_ALLOCATED_BYTES] += b->variance * (double)b->size * (double)b->size;
	s->variance[HEAP_VAR_LIVE_BYTES] += b->variance * (double)b->size * (double)b->size;
	s->shape[ref_bucket(b->size)] += b->weight;
	t->numbers[0] += b->weight;
	t->numbers[1] += b->weight * (double)b->size;
	t->last = r->block_count++;
	if (old != -1) {
		s->number[HEAP_REALLOCATED] += b->weight;
		s->number[HEAP_MOVED] += e->address != t->from ? b->weight : 0;
	}
	if (old >= 0)
		s->number[HEAP_REALLOCATED_BYTES] += b->weight * r->blocks[old].weight * (double)r->blocks[old].size;
	ref_peak(r, e->time_ns);
}

static inline void ref_unknown(struct ref *r, struct ref_thread *t)
{
	if (r->sampled)
		return;
	r->unknown++;
	t->numbers[4]++;
}

static inline void ref_done(struct ref *r, struct ref_thread *t, const struct heap_event *e, uint32_t stack)
{
	int64_t old = t->moving;

	t->moving = -1;
	if (!e->address) {
		if (old >= 0 && ref_find(r, e->process, r->blocks[old].address) >= 0)
			ref_gone(r, old, NULL, e->time_ns);
		else if (old >= 0)
			r->blocks[old].where = REF_LIVE;
		return;
	}
	if (old >= 0) {
		ref_gone(r, old, t, e->time_ns);
		ref_flow(r, old, e, CAPTURE_NONE);
	} else if (old == -2) {
		ref_unknown(r, t);
	}
	if (e->node != SHARE_STACK_UNSAMPLED)
		ref_alloc(r, t, e, stack, old);
}

static inline void ref_take(struct ref *r, const struct heap_event *e, uint32_t stack)
{
	struct ref_thread *t = ref_thread(r, e->process, e->tid);
	int64_t i = -1;

	if (e->type == SHARE_REALLOC_DONE) {
		ref_done(r, t, e, stack);
		return;
	}
	if (t->moving >= 0)
		ref_gone(r, t->moving, NULL, e->time_ns);
	t->moving = -1;
	if (e->type != SHARE_ALLOC)
		i = ref_find(r, e->process, e->address);
	if (e->type == SHARE_ALLOC) {
		ref_alloc(r, t, e, stack, -1);
	} else if (e->type == SHARE_REALLOC) {
		t->moving = i >= 0 ? i : -2;
		t->from = e->address;
		if (i >= 0)
			r->blocks[i].where = REF_MOVING;
	} else if (i < 0) {
		ref_unknown(r, t);
	} else {
		bool last = e->type == SHARE_FREE_LAST || e->type == SHARE_FREE_STACK_LAST;

		if (r->sampled ? last && r->blocks[i].tid == e->tid : t->last == i) {
			r->sites[r->blocks[i].site].number[HEAP_TEMPORARY] += r->blocks[i].weight;
			r->sites[r->blocks[i].site].number[HEAP_TEMPORARY_BYTES] += r->blocks[i].weight * (double)r->blocks[i].size;
			r->temporary += r->blocks[i].weight;
		}
		ref_gone(r, i, t, e->time_ns);
		ref_flow(r, i, e, stack);
	}
}

static inline void ref_ended(struct ref *r, uint32_t process)
{
	for (uint32_t i = 0; i < r->site_count; i++)
		if (r->sites[i].process == process)
			r->sites[i].ended = true;
	for (uint32_t i = 0; i < r->block_count; i++)
		if (r->blocks[i].process == process && r->blocks[i].where < REF_GONE)
			r->blocks[i].where = REF_LEFT;
}

/* ---- streams ---- */

struct stream {
	uint64_t state, now_ns;
	bool sampled;
	uint32_t process; /* number of the one that the events are of */
};

static inline uint64_t stream_random(struct stream *s, uint64_t below)
{
	s->state ^= s->state << 13;
	s->state ^= s->state >> 7;
	s->state ^= s->state << 17;
	return (s->state >> 11) % below;
}

/* A next event: few addresses, so that everything happens that can, and what cannot. Stack 0: none. */
static inline struct heap_event stream_next(struct stream *s, uint32_t *ret_stack)
{
	static const uint32_t types[] = {SHARE_ALLOC, SHARE_ALLOC, SHARE_ALLOC, SHARE_FREE, SHARE_FREE, SHARE_FREE_STACK,
		SHARE_REALLOC, SHARE_REALLOC_DONE, SHARE_FREE_LAST, SHARE_FREE_STACK_LAST};
	struct heap_event e = {
		.type = types[stream_random(s, s->sampled ? 10 : 8)],
		.process = s->process,
		.tid = 100 + (uint32_t)stream_random(s, 4),
		.address = 0x10000 + 16 * stream_random(s, 150),
		.size = stream_random(s, 10) ? stream_random(s, 2000) : stream_random(s, s->sampled ? 3000000 : 3000000000),
		.rate = s->sampled ? 512u << stream_random(s, 3) : 0,
		.node = SHARE_STACK_FIRST,
	};

	if (e.address % 128 == 0)
		e.address |= 1ull << 50;
	s->now_ns += stream_random(s, 3) ? stream_random(s, 300) : stream_random(s, 5000000);
	e.time_ns = s->now_ns;
	if (e.type == SHARE_REALLOC_DONE && !stream_random(s, 6))
		e.address = 0;
	if (e.type == SHARE_REALLOC_DONE && s->sampled && !stream_random(s, 3))
		e.node = SHARE_STACK_UNSAMPLED;
	*ret_stack = (uint32_t)stream_random(s, 5);
	if (e.type == SHARE_FREE || e.type == SHARE_FREE_LAST)
		*ret_stack = CAPTURE_NONE;
	return e;
}

#endif
