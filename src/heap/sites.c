/* SPDX-License-Identifier: BSD-2-Clause */
/* Sites, threads and flows by their keys. Each kind is bounded, and what finds no place is put with others (model.h). */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/hash.h"
#include "heap/model_priv.h"

/* ---- sites ---- */

static uint64_t site_hash(const struct heap_model *m, uint32_t process, uint32_t tid, uint32_t stack)
{
	return hash_pair(m->seed ^ ((uint64_t)process << 32 | tid), stack);
}

static uint64_t hash_of_site(const void *ctx, uint32_t id)
{
	const struct heap_model *m = ctx;
	const struct site *s = &m->sites[id];

	return site_hash(m, s->process, s->tid, s->stack);
}

/* There is room for it. */
static struct site *new_site(struct heap_model *m, struct watched *p, uint32_t tid, uint32_t stack)
{
	struct site *s = &m->sites[m->site_count];

	s->process = p->number;
	s->pid = p->pid;
	s->tid = tid;
	s->stack = stack;
	s->epoch = m->epoch;
	s->next = p->first_site;
	s->changed = true;
	p->first_site = m->site_count++;
	return s;
}

/* Beyond twice as many as are told apart by thread: one for each process, then one for all. */
static struct site *merged_site(struct heap_model *m, struct watched *p)
{
	struct site *s;

	m->sites_merged++;
	if (p->merged_site == NO_SITE && m->site_count < 3 * HEAP_MOST_SITES) {
		p->merged_site = m->site_count;
		return new_site(m, p, 0, CAPTURE_NONE);
	}
	if (p->merged_site != NO_SITE)
		return &m->sites[p->merged_site];
	if (m->merged_site != NO_SITE)
		return &m->sites[m->merged_site];
	m->merged_site = m->site_count;
	s = new_site(m, p, 0, CAPTURE_NONE);
	p->first_site = s->next; /* it does not end with this process */
	s->next = NO_SITE;
	s->pid = 0;
	s->process = UINT32_MAX;
	return s;
}

struct site *site_of(struct heap_model *m, struct watched *p, uint32_t tid, uint32_t stack)
{
	uint64_t hash = site_hash(m, p->number, tid, stack);
	struct id_probe probe = id_probe_start(&m->site_index, hash);

	while (id_probe_next(&m->site_index, &probe)) {
		struct site *s = &m->sites[probe.id];

		if (s->stack == stack && s->tid == tid && s->process == p->number)
			return s;
	}
	if (m->site_count >= HEAP_MOST_SITES && tid) {
		m->sites_merged++;
		return site_of(m, p, 0, stack);
	}
	if (m->site_count >= 2 * HEAP_MOST_SITES)
		return merged_site(m, p);
	if (id_table_reserve(&m->site_index, hash_of_site, m))
		return NULL;
	id_table_add(&m->site_index, hash, m->site_count);
	return new_site(m, p, tid, stack);
}

/* ---- threads ---- */

static uint64_t thread_hash(const struct heap_model *m, uint32_t process, uint32_t tid)
{
	return hash_u64(m->seed ^ ((uint64_t)process << 32 | tid));
}

static uint64_t hash_of_thread(const void *ctx, uint32_t id)
{
	const struct heap_model *m = ctx;

	return thread_hash(m, m->threads.data[id]->process, m->threads.data[id]->tid);
}

static struct thread *new_thread(struct heap_model *m, const struct watched *p, uint32_t tid)
{
	struct thread *t = calloc(1, sizeof(*t));

	if (!t || vec_reserve(&m->threads, m->threads.len + 1) || id_table_reserve(&m->thread_index, hash_of_thread, m)) {
		free(t);
		return NULL;
	}
	t->process = p->number;
	t->pid = p->pid;
	t->tid = tid;
	id_table_add(&m->thread_index, thread_hash(m, p->number, tid), (uint32_t)m->threads.len);
	m->threads.data[m->threads.len++] = t;
	return t;
}

struct thread *thread_of(struct heap_model *m, struct watched *p, uint32_t tid)
{
	struct id_probe probe = id_probe_start(&m->thread_index, thread_hash(m, p->number, tid));
	struct thread *t = NULL;

	while (!t && id_probe_next(&m->thread_index, &probe))
		if (m->threads.data[probe.id]->tid == tid && m->threads.data[probe.id]->process == p->number)
			t = m->threads.data[probe.id];
	if (!t && m->threads.len >= HEAP_MOST_THREADS && tid)
		return p->others ? p->others : (p->others = thread_of(m, p, 0));
	if (!t)
		t = new_thread(m, p, tid);
	m->last_threads[tid % LAST_THREADS] = t;
	return t;
}

void threads_sweep(struct heap_model *m)
{
	size_t kept = 0;

	if (m->threads_ended < m->threads.len / 2 + 1)
		return;
	for (size_t i = 0; i < m->threads.len; i++) {
		struct thread *t = m->threads.data[i];

		if (t->ended)
			thread_free(t);
		else
			m->threads.data[kept++] = t;
	}
	m->threads.len = kept;
	m->threads_ended = 0;
	memset(m->last_threads, 0, sizeof(m->last_threads));
	for (size_t i = 0; i < m->thread_index.slot_count; i++)
		m->thread_index.slots[i] = 0;
	m->thread_index.used = 0;
	for (size_t i = 0; i < kept; i++)
		id_table_add(&m->thread_index, hash_of_thread(m, (uint32_t)i), (uint32_t)i);
}

/* ---- flows ---- */

static uint64_t flow_hash(const struct heap_model *m, const struct flow *f)
{
	return hash_pair(m->seed ^ ((uint64_t)f->site << 32 | f->tid), (uint64_t)f->pid << 32 | f->stack);
}

static uint64_t hash_of_flow(const void *ctx, uint32_t id)
{
	const struct heap_model *m = ctx;

	return flow_hash(m, &m->flows.data[id]);
}

static struct flow *find_flow(struct heap_model *m, const struct flow *key)
{
	struct id_probe probe = id_probe_start(&m->flow_index, flow_hash(m, key));

	while (id_probe_next(&m->flow_index, &probe)) {
		struct flow *f = &m->flows.data[probe.id];

		if (f->site == key->site && f->tid == key->tid && f->pid == key->pid && f->stack == key->stack)
			return f;
	}
	return NULL;
}

/* The flow of a key, made when it is new. NULL: no room. */
static struct flow *flow_of(struct heap_model *m, const struct flow *key, size_t most)
{
	struct flow *f = find_flow(m, key);

	if (f || m->flows.len >= most)
		return f;
	if (vec_reserve(&m->flows, m->flows.len + 1) || id_table_reserve(&m->flow_index, hash_of_flow, m))
		return NULL;
	id_table_add(&m->flow_index, flow_hash(m, key), (uint32_t)m->flows.len);
	m->flows.data[m->flows.len] = *key;
	return &m->flows.data[m->flows.len++];
}

void flow_add(struct heap_model *m, const struct thread *t, uint32_t site, uint32_t stack, const struct weight *w)
{
	struct flow key = {.site = site, .pid = t->pid, .tid = t->tid, .stack = stack};
	struct flow *f = flow_of(m, &key, HEAP_MOST_FLOWS);

	if (!f) {
		key.tid = 0;
		key.stack = CAPTURE_NONE;
		f = flow_of(m, &key, 2 * HEAP_MOST_FLOWS);
	}
	if (!f)
		return;
	f->count += w->count;
	f->bytes += w->bytes;
	f->changed = true;
}
