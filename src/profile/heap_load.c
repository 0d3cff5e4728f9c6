/* SPDX-License-Identifier: BSD-2-Clause */
/* Records of allocations, one after the other, into the heap of a profile; then what follows from all of them. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "profile/heap_priv.h"
#include "profile/profile_priv.h"

/* A number that stands in a file: never negative, and small enough that sums of many stay finite. */
#define MOST 1e30

/* More than there can be (heap/model_priv.h). */
#define MOST_CLASSES 1024u

static double number_of(double stored)
{
	return stored > 0 && stored < MOST ? stored : 0;
}

static double more(double now, double before)
{
	return now > before ? now - before : 0;
}

static struct profile_heap *heap_of(struct loader *l)
{
	if (!l->p->heap)
		l->p->heap = calloc(1, sizeof(*l->p->heap));
	return l->p->heap;
}

/* ---- what is found by a key ---- */

static uint64_t process_hash_of(const void *ctx, uint32_t index)
{
	return hash_u64(((const struct profile_heap *)ctx)->processes.data[index].pid);
}

static uint32_t process_index(const struct loader *l, uint32_t pid)
{
	struct id_probe probe = id_probe_start(&l->heap.process_ids, hash_u64(pid));

	while (l->p->heap && id_probe_next(&l->heap.process_ids, &probe))
		if (l->p->heap->processes.data[probe.id].pid == pid)
			return probe.id;
	return PROFILE_NONE;
}

static uint64_t flow_hash(const struct heap_flow *f)
{
	return hash_pair((uint64_t)f->site << 32 | f->stack, (uint64_t)f->pid << 32 | f->tid);
}

static uint64_t flow_hash_of(const void *ctx, uint32_t index)
{
	return flow_hash(&((const struct profile_heap *)ctx)->flows.data[index]);
}

static uint64_t thread_hash_of(const void *ctx, uint32_t index)
{
	const struct heap_thread *t = &((const struct profile_heap *)ctx)->threads.data[index];

	return hash_u64((uint64_t)t->pid << 32 | t->tid);
}

/* Of a moment, added at the end when it is later than all others; PROFILE_NONE: it is not, and was never seen. */
static uint32_t moment_index(struct profile_heap *h, uint64_t time_ns, bool *ret_failed)
{
	size_t low = 0, high = h->moments.len;

	if (!high || h->moments.data[high - 1] < time_ns) {
		*ret_failed = high >= PROFILE_NONE - 1 || vec_push(&h->moments, time_ns);
		return *ret_failed ? PROFILE_NONE : (uint32_t)high;
	}
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->moments.data[middle] < time_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return h->moments.data[low] == time_ns ? (uint32_t)low : PROFILE_NONE;
}

/* ---- one function a record type: 0 or -ENOMEM ---- */

static int load_process(struct loader *l, const struct record_heap *r)
{
	struct profile_heap *h = heap_of(l);
	uint32_t at = process_index(l, r->pid);
	struct heap_process process = {
		.pid = r->pid,
		.since_ns = r->time_ns,
		.rate = r->rate,
		.precision = r->precision,
		.how = r->how,
		.allocator = loader_string(l, r->allocator),
		.uncovered = loader_string(l, r->uncovered),
		.maps = r->maps,
	};

	if (!h)
		return -ENOMEM;
	if (at != PROFILE_NONE) { /* it has called exec */
		h->processes.data[at] = process;
		return 0;
	}
	if (id_table_reserve(&l->heap.process_ids, process_hash_of, h) || vec_push(&h->processes, process))
		return -ENOMEM;
	id_table_add(&l->heap.process_ids, hash_u64(r->pid), (uint32_t)h->processes.len - 1);
	return 0;
}

static int load_site(struct loader *l, const struct record_heap_site *r)
{
	struct profile_heap *h = heap_of(l);
	struct heap_site s = {
		.pid = r->pid,
		.tid = r->tid,
		.process = process_index(l, r->pid),
		.thread = loader_thread(l, r->pid, r->tid),
		.stack = id_map_find(&l->node_ids, r->stack),
		.shapes = PROFILE_NONE,
		.first_point = PROFILE_NONE,
		.last_point = PROFILE_NONE,
	};

	if (!h || s.thread == PROFILE_NONE)
		return -ENOMEM;
	if (!id_map_accepts(&l->heap.site_ids, r->id))
		return 0;
	if (vec_push(&h->sites, s) || vec_push(&l->heap.site_ids.ids, r->id))
		return -ENOMEM;
	if (l->heap.ranged && vec_push(&l->heap.before, (struct heap_sum){0}))
		return -ENOMEM;
	return 0;
}

static void take_numbers(struct heap_sum *sum, const struct record_heap_state *r)
{
	for (size_t i = 0; i < HEAP_NUMBERS; i++)
		sum->number[i] = number_of(r->number[i]);
	for (size_t i = 0; i < HEAP_VARIANCES; i++)
		sum->variance[i] = number_of(r->variance[i]);
	sum->samples = r->samples;
}

/* Who counts calls alone knows nothing of frees. */
static bool frees_known(const struct profile_heap *h, const struct heap_site *s)
{
	return s->process == PROFILE_NONE || h->processes.data[s->process].precision != HEAP_CALLS;
}

static int add_point(struct profile_heap *h, struct heap_site *site, const struct record_heap_state *r)
{
	bool failed = false;
	double live = number_of(r->number[HEAP_ALLOCATED_BYTES]) - number_of(r->number[HEAP_FREED_BYTES]);
	struct heap_point point = {
		.moment = moment_index(h, r->time_ns, &failed),
		.next = PROFILE_NONE,
		.live_bytes = live > 0 && frees_known(h, site) ? (float)live : 0,
		.variance = (float)number_of(r->variance[HEAP_VAR_LIVE_BYTES]),
	};
	uint32_t at = (uint32_t)h->points.len;

	if (failed || h->points.len >= PROFILE_NONE - 1)
		return -ENOMEM;
	if (point.moment == PROFILE_NONE ||
		(site->last_point != PROFILE_NONE && h->points.data[site->last_point].moment >= point.moment))
		return 0;
	if (vec_push(&h->points, point))
		return -ENOMEM;
	if (site->last_point == PROFILE_NONE)
		site->first_point = at;
	else
		h->points.data[site->last_point].next = at;
	site->last_point = at;
	return 0;
}

static int load_state(struct loader *l, const struct record_heap_state *r)
{
	uint32_t at = id_map_find(&l->heap.site_ids, r->site);

	if (at == PROFILE_NONE)
		return 0;
	if (add_point(l->p->heap, &l->p->heap->sites.data[at], r))
		return -ENOMEM;
	if (l->heap.ranged && r->time_ns > l->heap.to_ns)
		return 0;
	if (l->heap.ranged && r->time_ns <= l->heap.from_ns)
		take_numbers(&l->heap.before.data[at], r);
	take_numbers(&l->p->heap->sites.data[at].sum, r);
	return 0;
}

static int load_shape(struct loader *l, const struct record_heap_shape *r)
{
	uint32_t at = id_map_find(&l->heap.site_ids, r->site);
	struct profile_heap *h = l->p->heap;
	const double *counts = (const void *)(r + 1);
	double kept[HEAP_BUCKETS];
	unsigned buckets = 0;

	if (at == PROFILE_NONE || r->kind >= HEAP_SHAPES || (l->heap.ranged && r->time_ns > l->heap.to_ns))
		return 0;
	for (; buckets < r->buckets && r->first + buckets < HEAP_BUCKETS; buckets++)
		kept[buckets] = number_of(counts[buckets]);
	return heap_shape_set(h, &h->sites.data[at], (enum heap_shape)r->kind, r->first, buckets, kept);
}

static int load_flow(struct loader *l, const struct record_heap_flow *r)
{
	struct profile_heap *h = l->p->heap;
	struct heap_flow flow = {
		.site = id_map_find(&l->heap.site_ids, r->site),
		.pid = r->pid,
		.tid = r->tid,
		.stack = id_map_find(&l->node_ids, r->stack),
		.count = number_of(r->count),
		.bytes = number_of(r->bytes),
	};
	struct id_probe probe;

	if (flow.site == PROFILE_NONE || (l->heap.ranged && r->time_ns > l->heap.to_ns))
		return 0;
	flow.thread = loader_thread(l, r->pid, r->tid);
	if (flow.thread == PROFILE_NONE)
		return -ENOMEM;
	probe = id_probe_start(&l->heap.flow_ids, flow_hash(&flow));
	while (id_probe_next(&l->heap.flow_ids, &probe)) {
		struct heap_flow *known = &h->flows.data[probe.id];

		if (known->site != flow.site || known->pid != flow.pid || known->tid != flow.tid ||
			known->stack != flow.stack)
			continue;
		*known = flow;
		return 0;
	}
	if (id_table_reserve(&l->heap.flow_ids, flow_hash_of, h) || vec_push(&h->flows, flow))
		return -ENOMEM;
	id_table_add(&l->heap.flow_ids, flow_hash(&flow), (uint32_t)h->flows.len - 1);
	return 0;
}

static int load_thread(struct loader *l, const struct record_heap_thread *r)
{
	struct profile_heap *h = heap_of(l);
	struct heap_thread t = {
		.pid = r->pid,
		.tid = r->tid,
		.thread = loader_thread(l, r->pid, r->tid),
		.allocated = number_of(r->allocated),
		.allocated_bytes = number_of(r->allocated_bytes),
		.freed = number_of(r->freed),
		.freed_bytes = number_of(r->freed_bytes),
		.freed_unknown = number_of(r->freed_unknown),
	};
	uint64_t hash = hash_u64((uint64_t)r->pid << 32 | r->tid);
	struct id_probe probe = id_probe_start(&l->heap.thread_ids, hash);

	if (!h || t.thread == PROFILE_NONE)
		return -ENOMEM;
	while (id_probe_next(&l->heap.thread_ids, &probe)) {
		struct heap_thread *known = &h->threads.data[probe.id];

		if (known->pid != r->pid || known->tid != r->tid)
			continue;
		*known = t;
		return 0;
	}
	if (id_table_reserve(&l->heap.thread_ids, thread_hash_of, h) || vec_push(&h->threads, t))
		return -ENOMEM;
	id_table_add(&l->heap.thread_ids, hash, (uint32_t)h->threads.len - 1);
	return 0;
}

static int load_class(struct loader *l, const struct record_heap_class *r)
{
	struct profile_heap *h = heap_of(l);
	struct heap_class class = {
		.usable = r->usable,
		.live = number_of(r->live),
		.live_bytes = number_of(r->live_bytes),
		.live_usable = number_of(r->live_usable),
		.peak = number_of(r->peak),
		.peak_bytes = number_of(r->peak_bytes),
		.peak_usable = number_of(r->peak_usable),
		.variance_wasted = number_of(r->variance_wasted),
	};
	size_t at = 0;

	if (!h)
		return -ENOMEM;
	if (l->heap.ranged && r->time_ns > l->heap.to_ns)
		return 0;
	while (at < h->classes.len && h->classes.data[at].usable < r->usable)
		at++;
	if (at < h->classes.len && h->classes.data[at].usable == r->usable) {
		h->classes.data[at] = class;
		return 0;
	}
	if (h->classes.len >= MOST_CLASSES)
		return 0; /* out of a damaged file */
	if (vec_push(&h->classes, class))
		return -ENOMEM;
	memmove(h->classes.data + at + 1, h->classes.data + at, (h->classes.len - 1 - at) * sizeof(class));
	h->classes.data[at] = class;
	return 0;
}

static int load_total(struct loader *l, const struct record_heap_total *r)
{
	struct profile_heap *h = heap_of(l);
	struct heap_total t = {
		.time_ns = r->time_ns,
		.live = more(number_of(r->live), number_of(r->ended)),
		.live_bytes = more(number_of(r->live_bytes), number_of(r->ended_bytes)),
		.allocated_bytes = number_of(r->allocated_bytes),
		.rss_bytes = (double)r->rss_bytes,
	};

	if (!h)
		return -ENOMEM;
	if (h->totals.len && h->totals.data[h->totals.len - 1].time_ns > t.time_ns)
		return 0; /* out of a damaged file */
	if (vec_push(&h->totals, t))
		return -ENOMEM;
	/* Of a part, sums are of what was written for the moments at its ends. */
	if (l->heap.ranged && (!r->with_sites || r->time_ns > l->heap.to_ns))
		return 0;
	if (l->heap.ranged && r->time_ns <= l->heap.from_ns)
		l->heap.total_before = *r;
	l->heap.total = *r;
	return 0;
}

int loader_heap_record(struct loader *l, const struct record_header *record)
{
	const void *r = record;

	switch (record->type) {
	case RECORD_HEAP:
		return load_process(l, r);
	case RECORD_HEAP_SITE:
		return load_site(l, r);
	case RECORD_HEAP_STATE:
		return load_state(l, r);
	case RECORD_HEAP_SHAPE:
		return load_shape(l, r);
	case RECORD_HEAP_FLOW:
		return load_flow(l, r);
	case RECORD_HEAP_THREAD:
		return load_thread(l, r);
	case RECORD_HEAP_CLASS:
		return load_class(l, r);
	default:
		return load_total(l, r);
	}
}

void loader_heap_exit(struct loader *l, uint32_t pid)
{
	uint32_t at = process_index(l, pid);

	if (at != PROFILE_NONE)
		l->p->heap->processes.data[at].ended = true;
}

void loader_heap_range(struct loader *l, uint64_t start_ns)
{
	const struct profile_filter *f = &l->options->filter;

	l->heap.ranged = f->heap_from_ns || f->heap_to_ns;
	l->heap.from_ns = f->heap_from_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + f->heap_from_ns;
	l->heap.to_ns = !f->heap_to_ns || f->heap_to_ns > UINT64_MAX - start_ns ? UINT64_MAX : start_ns + f->heap_to_ns;
}

/* ---- threads that the filter leaves out ---- */

int loader_heap_filter(struct loader *l, const uint32_t *kept_as)
{
	struct profile_heap *h = l->p->heap;
	uint32_t *site_as;
	size_t kept = 0;

	if (!h)
		return 0;
	site_as = calloc(h->sites.len + 1, sizeof(*site_as));
	if (!site_as)
		return -ENOMEM;
	for (size_t i = 0; i < h->sites.len; i++) {
		struct heap_site s = h->sites.data[i];

		s.thread = kept_as[s.thread];
		site_as[i] = s.thread == PROFILE_NONE ? PROFILE_NONE : (uint32_t)kept;
		if (s.thread == PROFILE_NONE)
			continue;
		if (l->heap.ranged)
			l->heap.before.data[kept] = l->heap.before.data[i];
		h->sites.data[kept++] = s;
	}
	h->filtered = kept < h->sites.len;
	h->sites.len = kept;
	kept = 0;
	vec_each(&h->flows, f) {
		f->site = site_as[f->site];
		f->thread = kept_as[f->thread];
		if (f->site != PROFILE_NONE)
			h->flows.data[kept++] = *f;
	}
	h->flows.len = kept;
	vec_each(&h->threads, t)
		t->thread = kept_as[t->thread];
	free(site_as);
	return 0;
}

void loader_heap_move_nodes(struct loader *l, const uint32_t *as)
{
	struct profile_heap *h = l->p->heap;

	if (!h)
		return;
	vec_each(&h->sites, s)
		s->stack = s->stack == PROFILE_NONE ? PROFILE_NONE : as[s->stack];
	vec_each(&h->flows, f)
		f->stack = f->stack == PROFILE_NONE ? PROFILE_NONE : as[f->stack];
}

/* ---- the end ---- */

static void live_of(struct heap_sum *s, bool frees_known)
{
	if (!frees_known)
		return;

	s->live = more(s->number[HEAP_ALLOCATED], s->number[HEAP_FREED]);
	s->live_bytes = more(s->number[HEAP_ALLOCATED_BYTES], s->number[HEAP_FREED_BYTES]);
}

/* What happened between two states. Peaks are no sums: those of the end stay. */
static void subtract(struct heap_sum *s, struct heap_sum *before, bool frees_known)
{
	live_of(before, frees_known);
	s->before = before->live;
	s->before_bytes = before->live_bytes;
	for (size_t i = 0; i < HEAP_NUMBERS; i++)
		if (i != HEAP_PEAK && i != HEAP_PEAK_BYTES)
			s->number[i] = more(s->number[i], before->number[i]);
	s->variance[HEAP_VAR_ALLOCATED] = more(s->variance[HEAP_VAR_ALLOCATED], before->variance[HEAP_VAR_ALLOCATED]);
	s->variance[HEAP_VAR_ALLOCATED_BYTES] =
		more(s->variance[HEAP_VAR_ALLOCATED_BYTES], before->variance[HEAP_VAR_ALLOCATED_BYTES]);
	s->samples = s->samples > before->samples ? s->samples - before->samples : 0;
}

/* How much of a shape of ages is older than so many microseconds. Inside a bucket ages are taken to be spread evenly. */
static double older_than(const struct profile_heap *h, const struct heap_site *s, enum heap_shape kind, double age_us)
{
	double sum = 0;

	for (unsigned i = 0; i < HEAP_BUCKETS; i++) {
		double low = i ? ldexp(1, (int)i - 1) : 0, high = ldexp(1, (int)i);
		double count = heap_shape_count(h, s, kind, i);

		if (low >= age_us)
			sum += count;
		else if (high > age_us)
			sum += count * (high - age_us) / (high - low);
	}
	return sum;
}

/* Live bytes at the last moment that is not after `time_ns`. */
static double live_at(const struct profile_heap *h, const struct heap_site *s, uint64_t time_ns)
{
	double live = 0;

	for (uint32_t i = s->first_point; i != PROFILE_NONE; i = h->points.data[i].next) {
		if (h->moments.data[h->points.data[i].moment] > time_ns)
			break;
		live = h->points.data[i].live_bytes;
	}
	return live;
}

#define YOUNG_PART 10u /* of the recording is too young to be called leaked */

static void find_leaked(struct loader *l, struct heap_site *s)
{
	struct profile_heap *h = l->p->heap;
	uint64_t length_ns = h->to_ns - h->from_ns, young_ns = length_ns / YOUNG_PART;
	double most;

	s->sum.leaked = s->sum.live;
	s->sum.leaked_bytes = s->sum.live_bytes;
	if (s->process != PROFILE_NONE && h->processes.data[s->process].ended)
		return;
	if (s->shapes != PROFILE_NONE) {
		double young_us = (double)young_ns / NS_PER_US;

		s->sum.leaked = fmin(s->sum.live, older_than(h, s, HEAP_AGES, young_us));
		s->sum.leaked_bytes = fmin(s->sum.live_bytes, older_than(h, s, HEAP_LIVE_BYTES_BY_AGE, young_us));
	}
	most = live_at(h, s, h->to_ns - young_ns);
	if (s->sum.leaked_bytes > most) {
		s->sum.leaked *= most / s->sum.leaked_bytes;
		s->sum.leaked_bytes = most;
	}
}

void heap_sum_add(struct heap_sum *to, const struct heap_sum *s)
{
	for (size_t i = 0; i < HEAP_NUMBERS; i++)
		to->number[i] += s->number[i];
	for (size_t i = 0; i < HEAP_VARIANCES; i++)
		to->variance[i] += s->variance[i];
	to->live += s->live;
	to->live_bytes += s->live_bytes;
	to->before += s->before;
	to->before_bytes += s->before_bytes;
	to->leaked += s->leaked;
	to->leaked_bytes += s->leaked_bytes;
	to->wasted_bytes += s->wasted_bytes;
	to->samples += s->samples;
}

static void finish_sites(struct loader *l)
{
	struct profile_heap *h = l->p->heap;

	for (size_t i = 0; i < h->sites.len; i++) {
		struct heap_site *s = &h->sites.data[i];

		live_of(&s->sum, frees_known(h, s));
		for (unsigned b = 0; b < HEAP_BUCKETS; b++)
			s->sum.wasted_bytes += heap_shape_count(h, s, HEAP_USABLE, b);
		if (l->heap.ranged)
			subtract(&s->sum, &l->heap.before.data[i], frees_known(h, s));
		else
			find_leaked(l, s);
		if (!h->peak_ns && h->range)
			s->sum.number[HEAP_PEAK] = s->sum.number[HEAP_PEAK_BYTES] = 0;
		switch (heap_kind_of(l->p, heap_pool_of(l->p, s->stack))) {
		case HEAP_MALLOC:
			heap_sum_add(&h->sum, &s->sum);
			break;
		case HEAP_MAPPED:
			heap_sum_add(&h->mapped, &s->sum);
			break;
		case HEAP_POOL:
			break;
		}
	}
}

/* Where the recording has added up all sites itself, that is better than to add them up here. */
static void take_totals(struct loader *l)
{
	const struct record_heap_total *end = &l->heap.total, *before = &l->heap.total_before;
	struct profile_heap *h = l->p->heap;

	h->sum.live = number_of(end->live);
	h->sum.live_bytes = number_of(end->live_bytes);
	h->sum.before = number_of(before->live);
	h->sum.before_bytes = number_of(before->live_bytes);
	h->sum.number[HEAP_ALLOCATED] = more(number_of(end->allocated), number_of(before->allocated));
	h->sum.number[HEAP_ALLOCATED_BYTES] = more(number_of(end->allocated_bytes), number_of(before->allocated_bytes));
	h->sum.number[HEAP_TEMPORARY] = more(number_of(end->temporary), number_of(before->temporary));
	h->sum.variance[HEAP_VAR_LIVE_BYTES] = number_of(end->variance_live_bytes);
	h->sum.variance[HEAP_VAR_ALLOCATED_BYTES] =
		more(number_of(end->variance_allocated_bytes), number_of(before->variance_allocated_bytes));
}

static void find_peak(struct loader *l)
{
	const struct record_heap_total *end = &l->heap.total;
	struct profile_heap *h = l->p->heap;

	if (!h->range || (end->peak_ns >= h->from_ns && end->peak_ns <= h->to_ns)) {
		h->peak_bytes = number_of(end->peak_bytes);
		h->peak_variance = number_of(end->variance_peak_bytes);
		h->peak_ns = end->peak_ns;
		return;
	}
	vec_each(&h->totals, t)
		if (t->time_ns >= h->from_ns && t->time_ns <= h->to_ns && t->live_bytes > h->peak_bytes)
			h->peak_bytes = t->live_bytes;
}

/* The range begins and ends at moments that have numbers of sites. */
static void set_range(struct loader *l)
{
	struct profile_heap *h = l->p->heap;

	h->range = l->heap.ranged;
	h->from_ns = l->p->start_ns;
	h->to_ns = l->p->end_ns;
	if (!h->range)
		return;
	if (l->heap.total_before.time_ns > h->from_ns)
		h->from_ns = l->heap.total_before.time_ns;
	h->to_ns = l->heap.total.time_ns > h->from_ns ? l->heap.total.time_ns : h->from_ns;
}

int loader_heap_names(struct loader *l)
{
	struct profile_heap *h = l->p->heap;

	if (!h)
		return 0;
	vec_each(&h->processes, process) {
		process->name = loader_process_name(l, process->pid);
		if (!process->name)
			return -ENOMEM;
	}
	return 0;
}

static void finish_processes(struct loader *l)
{
	struct profile_heap *h = l->p->heap;

	vec_each(&h->processes, process) {
		process->ended |= l->end_ns && l->p->end_reason == END_TARGET_EXITED;
		h->sampled |= process->precision != HEAP_EXACT;
		h->maps |= process->maps;
		if (process->precision == HEAP_SAMPLED && (double)process->rate > h->least_rate)
			h->least_rate = (double)process->rate;
	}
}

static int compare_flows(const void *left, const void *right)
{
	const struct heap_flow *a = left, *b = right;

	if (a->site != b->site)
		return (a->site > b->site) - (a->site < b->site);
	return (a->bytes < b->bytes) - (a->bytes > b->bytes);
}

const struct heap_flow *heap_flows_of(const struct profile_heap *h, uint32_t site, size_t *ret_count)
{
	size_t low = 0, high = h->flows.len, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (h->flows.data[middle].site < site)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < h->flows.len && h->flows.data[end].site == site; end++)
		;
	*ret_count = end - low;
	return *ret_count ? h->flows.data + low : NULL;
}

void loader_heap_finish(struct loader *l)
{
	struct profile_heap *h = l->p->heap;

	if (!h)
		return;
	if (h->flows.len)
		qsort(h->flows.data, h->flows.len, sizeof(*h->flows.data), compare_flows);
	finish_processes(l);
	set_range(l);
	find_peak(l);
	finish_sites(l);
	if (h->filtered || !l->heap.total.time_ns)
		h->peak_bytes = h->sum.number[HEAP_PEAK_BYTES];
	else
		take_totals(l);
	if (h->filtered)
		h->peak_variance = h->sum.variance[HEAP_VAR_PEAK_BYTES];
	heap_find_wrappers(l->p);
}

void loader_heap_release(struct loader *l)
{
	vec_release(&l->heap.site_ids.ids);
	vec_release(&l->heap.before);
	id_table_release(&l->heap.process_ids);
	id_table_release(&l->heap.flow_ids);
	id_table_release(&l->heap.thread_ids);
}

void profile_heap_free(struct profile_heap *h)
{
	if (!h)
		return;
	vec_release(&h->processes);
	vec_release(&h->sites);
	vec_release(&h->moments);
	vec_release(&h->points);
	heap_shapes_release(&h->shapes);
	vec_release(&h->totals);
	vec_release(&h->classes);
	vec_release(&h->flows);
	vec_release(&h->threads);
	free(h->wrappers);
	free(h);
}
