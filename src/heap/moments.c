/* SPDX-License-Identifier: BSD-2-Clause */
/* What is written to a recording, and when: the sums of sites at moments, never single events. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "heap/model_priv.h"

#define SHAPES_EVERY 16u /* moments */

/* ---- sites ---- */

void site_state(const struct heap_model *m, uint32_t id, struct record_heap_state *ret)
{
	struct site s = m->sites[id];
	struct rare r = m->rares[s.rare];

	if (s.epoch != m->epoch) {
		s.rare = 0;
		site_note_peak(m, &s);
		r.variance[HEAP_VAR_PEAK_BYTES] = s.ended ? 0 : r.variance[HEAP_VAR_LIVE_BYTES];
	}
	*ret = (struct record_heap_state){
		.site = id,
		.samples = s.samples,
		.number = {
			[HEAP_ALLOCATED] = s.allocated,
			[HEAP_ALLOCATED_BYTES] = s.allocated_bytes,
			[HEAP_FREED] = s.freed,
			[HEAP_FREED_BYTES] = s.freed_bytes,
			[HEAP_TEMPORARY] = s.temporary,
			[HEAP_TEMPORARY_BYTES] = s.temporary_bytes,
			[HEAP_CROSS_FREED] = r.cross_freed,
			[HEAP_CROSS_FREED_BYTES] = r.cross_freed_bytes,
			[HEAP_REALLOCATED] = r.reallocated,
			[HEAP_REALLOCATED_BYTES] = r.reallocated_bytes,
			[HEAP_MOVED] = r.moved,
			[HEAP_PEAK] = s.peak,
			[HEAP_PEAK_BYTES] = s.peak_bytes,
			[HEAP_LIFETIME_NS] = s.lifetime_ns,
		},
	};
	memcpy(ret->variance, r.variance, sizeof(ret->variance));
	for (size_t i = 0; i < HEAP_VARIANCES; i++)
		if (ret->variance[i] < 0)
			ret->variance[i] = 0;
}

static struct record_heap_site site_record(const struct site *s, uint32_t id)
{
	return (struct record_heap_site){.id = id, .pid = s->pid, .tid = s->tid, .stack = s->stack};
}

/* Ids count up from 0 in a recording, so those before it come first. */
static void tell_site(struct heap_model *m, struct capture_writer *w, uint32_t id)
{
	for (; m->told <= id; m->told++) {
		struct record_heap_site site = site_record(&m->sites[m->told], m->told);

		capture_record(w, RECORD_HEAP_SITE, &site, sizeof(site));
	}
}

static void write_site(struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint32_t id)
{
	struct site *s = &m->sites[id];
	struct record_heap_state state;

	site_note_peak(m, s);
	if (!s->changed && s->peak == s->written_peak && s->peak_bytes == s->written_peak_bytes)
		return;
	tell_site(m, w, id);
	site_state(m, id, &state);
	state.time_ns = time_ns;
	capture_record(w, RECORD_HEAP_STATE, &state, sizeof(state));
	s->changed = false;
	s->written_peak = s->peak;
	s->written_peak_bytes = s->peak_bytes;
}

void heap_model_each_site(const struct heap_model *m,
	void (*fn)(void *ctx, const struct record_heap_site *site, const struct record_heap_state *state), void *ctx)
{
	for (uint32_t id = 0; id < m->site_count; id++) {
		struct record_heap_site site = site_record(&m->sites[id], id);
		struct record_heap_state state;

		site_state(m, id, &state);
		fn(ctx, &site, &state);
	}
}

/* ---- what is written less often ---- */

static void write_shapes(struct heap_model *m, struct capture_writer *w, uint64_t time_ns)
{
	for (uint32_t id = 0; id < m->site_count; id++) {
		struct site *s = &m->sites[id];

		if (!s->reshaped)
			continue;
		if (s->sizes.buckets)
			shape_write(w, time_ns, id, HEAP_SIZES, &s->sizes);
		if (s->lifetimes.buckets)
			shape_write(w, time_ns, id, HEAP_LIFETIMES, &s->lifetimes);
		s->reshaped = false;
	}
	for (size_t i = 0; i < HEAP_PROCESSES; i++)
		if (m->processes[i])
			shapes_of_live(m, m->processes[i], w, time_ns);
}

static void write_flows(struct heap_model *m, struct capture_writer *w, uint64_t time_ns)
{
	vec_each(&m->flows, f) {
		struct record_heap_flow record = {
			.time_ns = time_ns,
			.site = f->site,
			.pid = f->pid,
			.tid = f->tid,
			.stack = f->stack,
			.count = f->count,
			.bytes = f->bytes,
		};

		if (f->changed)
			capture_record(w, RECORD_HEAP_FLOW, &record, sizeof(record));
		f->changed = false;
	}
}

void threads_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns, const struct watched *only)
{
	for (size_t i = 0; i < m->threads.len; i++) {
		struct thread *t = m->threads.data[i];
		struct record_heap_thread record = {
			.time_ns = time_ns,
			.pid = t->pid,
			.tid = t->tid,
			.allocated = t->allocated,
			.allocated_bytes = t->allocated_bytes,
			.freed = t->freed,
			.freed_bytes = t->freed_bytes,
			.freed_unknown = t->freed_unknown,
		};

		if (!t->changed || (only && t->process != only->number))
			continue;
		capture_record(w, RECORD_HEAP_THREAD, &record, sizeof(record));
		t->changed = false;
	}
}

/* ---- the total ---- */

static double above_zero(double v)
{
	return v > 0 ? v : 0;
}

static struct record_heap_total total_of(const struct heap_model *m)
{
	return (struct record_heap_total){
		.live = above_zero(m->living.count + m->ended.count),
		.live_bytes = above_zero(m->living.bytes + m->ended.bytes),
		.peak_bytes = m->peak_bytes,
		.allocated = m->allocated.count,
		.allocated_bytes = m->allocated.bytes,
		.temporary = m->temporary,
		.peak_ns = m->peak_ns,
		.variance_live_bytes = above_zero(m->living.variance_bytes + m->ended.variance_bytes),
		.variance_allocated_bytes = m->allocated.variance_bytes,
		.variance_peak_bytes = above_zero(m->peak_variance),
		.ended = m->ended.count,
		.ended_bytes = m->ended.bytes,
	};
}

static void write_total(const struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint64_t rss_bytes, bool with_sites)
{
	struct record_heap_total total = total_of(m);

	total.time_ns = time_ns;
	total.rss_bytes = rss_bytes;
	total.with_sites = with_sites;
	capture_record(w, RECORD_HEAP_TOTAL, &total, sizeof(total));
}

void heap_model_point(const struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint64_t rss_bytes)
{
	write_total(m, w, time_ns, rss_bytes, false);
}

void heap_model_write(struct heap_model *m, struct capture_writer *w, uint64_t time_ns, uint64_t rss_bytes, bool last)
{
	for (uint32_t id = 0; id < m->site_count; id++)
		write_site(m, w, time_ns, id);
	if (++m->moments % SHAPES_EVERY == 0 || last) {
		write_shapes(m, w, time_ns);
		write_flows(m, w, time_ns);
		classes_write(m, w, time_ns);
		threads_write(m, w, time_ns, NULL);
		threads_sweep(m);
	}
	for (size_t i = 0; i < HEAP_PROCESSES; i++)
		if (m->processes[i])
			live_fit(&m->processes[i]->live);
	write_total(m, w, time_ns, rss_bytes, true);
}

void heap_model_totals(const struct heap_model *m, struct heap_totals *ret)
{
	*ret = (struct heap_totals){
		.total = total_of(m),
		.samples = m->samples,
		.freed_unknown = m->freed_unknown,
		.missed_frees = m->missed_frees,
		.sites = m->site_count,
		.sites_merged = m->sites_merged,
		.threads = (uint32_t)m->threads.len,
		.flows = (uint32_t)m->flows.len,
		.bytes = m->site_count * sizeof(struct site) + m->rare_count * sizeof(struct rare) +
			m->threads.len * (sizeof(struct thread) + 2 * sizeof(void *)) +
			m->flows.cap * sizeof(struct flow) + m->site_index.slot_count * sizeof(uint32_t),
		.no_memory = m->no_memory,
	};
	for (size_t i = 0; i < HEAP_PROCESSES; i++) {
		if (!m->processes[i])
			continue;
		ret->live_blocks += m->processes[i]->live.count;
		ret->bytes += live_bytes(&m->processes[i]->live);
	}
	for (uint32_t id = 0; id < m->site_count; id++)
		ret->bytes += (m->sites[id].sizes.outside * m->sites[id].sizes.buckets +
			m->sites[id].lifetimes.outside * m->sites[id].lifetimes.buckets) * sizeof(double);
}

/* ---- a process has ended ---- */

static void end_site(struct heap_model *m, struct site *s)
{
	struct weight left = {
		.count = site_live(s),
		.bytes = site_live_bytes(s),
		.variance = m->rares[s->rare].variance[HEAP_VAR_LIVE],
		.variance_bytes = m->rares[s->rare].variance[HEAP_VAR_LIVE_BYTES],
	};

	site_note_peak(m, s);
	if (s->ended)
		return;
	s->ended = true;
	if (s->mapped)
		return;
	m->living.count -= left.count;
	m->living.bytes -= left.bytes;
	m->living.variance -= left.variance;
	m->living.variance_bytes -= left.variance_bytes;
	m->ended.count += left.count;
	m->ended.bytes += left.bytes;
	m->ended.variance += left.variance;
	m->ended.variance_bytes += left.variance_bytes;
}

void heap_model_process_ended(struct heap_model *m, struct capture_writer *w, uint32_t number, uint64_t time_ns)
{
	struct watched *p = watched_of(m, number);
	struct kept_sums kept;

	if (!p)
		return;
	sums_keep(m, &kept);
	if (w) {
		for (uint32_t id = p->first_site; id != NO_SITE; id = m->sites[id].next)
			write_site(m, w, time_ns, id);
		shapes_of_live(m, p, w, time_ns);
		threads_write(m, w, time_ns, p);
	}
	for (uint32_t id = p->first_site; id != NO_SITE; id = m->sites[id].next)
		end_site(m, &m->sites[id]);
	for (size_t i = 0; i < m->threads.len; i++) {
		if (m->threads.data[i]->process != number || m->threads.data[i]->ended)
			continue;
		m->threads.data[i]->ended = true;
		m->threads_ended++;
	}
	memset(m->last_threads, 0, sizeof(m->last_threads));
	m->live_blocks -= p->live.count;
	classes_ended(m, p);
	if (p->apart)
		sums_put_back(m, &kept);
	live_release(&p->live);
	told_sizes_free(p->told);
	maps_free(p->maps);
	free(p);
	m->processes[HEAP_SLOT(number)] = NULL;
}

double heap_model_ci95(double variance)
{
	return variance > 0 ? 1.96 * sqrt(variance) : 0;
}
