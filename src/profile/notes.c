/* SPDX-License-Identifier: BSD-2-Clause */
#include "profile/notes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "profile/profile_priv.h"

/* Ids count up from 0: in a file that is damaged they may be anything. */
#define MOST_COUNTERS (1u << 20)

static const char *text(const struct loader *l, uint32_t id)
{
	const char *s = loader_string(l, id);

	return s ? s : "";
}

static int load_mark(struct loader *l, const struct record_mark *r)
{
	return vec_push(&l->p->notes->marks,
		(struct profile_mark){
			.time_ns = r->time_ns,
			.duration_ns = r->duration_ns,
			.group = text(l, r->group),
			.name = text(l, r->name),
			.message = text(l, r->message),
			.pid = r->pid,
			.tid = r->tid,
			.severity = r->severity <= MARK_ERROR ? r->severity : MARK_MESSAGE,
		});
}

/* NULL with 0: there is no such counter. */
static int counter(struct loader *l, uint32_t id, struct profile_counter **ret)
{
	struct profile_notes *n = l->p->notes;

	*ret = NULL;
	if (id >= MOST_COUNTERS)
		return 0;
	while (n->counters.len <= id)
		if (vec_push(&n->counters, (struct profile_counter){.group = "", .name = "", .description = ""}))
			return -ENOMEM;
	*ret = &n->counters.data[id];
	return 0;
}

static int load_counter(struct loader *l, const struct record_counter *r)
{
	struct profile_counter *c;
	int rc = counter(l, r->id, &c);

	if (rc || !c)
		return rc;
	c->group = text(l, r->group);
	c->name = text(l, r->name);
	c->description = text(l, r->description);
	c->pid = r->pid;
	c->kind = r->kind == COUNTER_DOUBLE ? COUNTER_DOUBLE : COUNTER_INT64;
	c->defined = true;
	return 0;
}

static int load_value(struct loader *l, const struct record_counter_value *r)
{
	struct profile_counter *c;
	int rc = counter(l, r->counter, &c);

	if (rc || !c || (c->values.len && c->values.data[c->values.len - 1].time_ns > r->time_ns))
		return rc;
	return vec_push(&c->values, (struct profile_value){r->time_ns, r->value});
}

int loader_note(struct loader *l, const struct record_header *record)
{
	const void *r = record;

	if (!l->p->notes) {
		l->p->notes = calloc(1, sizeof(*l->p->notes));
		if (!l->p->notes)
			return -ENOMEM;
	}
	switch (record->type) {
	case RECORD_MARK:
		return load_mark(l, r);
	case RECORD_COUNTER:
		return load_counter(l, r);
	default:
		return load_value(l, r);
	}
}

void profile_notes_free(struct profile_notes *n)
{
	if (!n)
		return;
	vec_each(&n->counters, c)
		vec_release(&c->values);
	vec_release(&n->counters);
	vec_release(&n->marks);
	free(n);
}

double profile_value(const struct profile_counter *c, const struct profile_value *v)
{
	double value;

	if (c->kind == COUNTER_INT64)
		return (double)(int64_t)v->value;
	memcpy(&value, &v->value, sizeof(value));
	return value;
}

/* ---- sums ---- */

/* Texts of a profile are interned: equal ones are one. */
static uint64_t hash_of(const void *ctx, uint32_t id)
{
	const struct profile_mark_sum *s = &((const struct profile_mark_sums *)ctx)->data[id];

	return hash_pair(hash_u64((uintptr_t)s->group), (uintptr_t)s->name);
}

static int add_mark(struct profile_mark_sums *sums, struct id_table *ids, const struct profile_mark *m)
{
	struct profile_mark_sum fresh = {.group = m->group, .name = m->name, .least_ns = UINT64_MAX}, *sum = NULL;
	uint64_t hash = hash_pair(hash_u64((uintptr_t)m->group), (uintptr_t)m->name);
	struct id_probe probe = id_probe_start(ids, hash);

	while (!sum && id_probe_next(ids, &probe))
		if (sums->data[probe.id].group == m->group && sums->data[probe.id].name == m->name)
			sum = &sums->data[probe.id];
	if (!sum) {
		if (id_table_reserve(ids, hash_of, sums) || vec_push(sums, fresh))
			return -ENOMEM;
		id_table_add(ids, hash, (uint32_t)(sums->len - 1));
		sum = &sums->data[sums->len - 1];
	}
	sum->count++;
	sum->sum_ns += m->duration_ns;
	if (m->duration_ns < sum->least_ns)
		sum->least_ns = m->duration_ns;
	if (m->duration_ns > sum->most_ns)
		sum->most_ns = m->duration_ns;
	return 0;
}

static int compare_sums(const void *va, const void *vb)
{
	const struct profile_mark_sum *a = va, *b = vb;
	int c;

	if (a->sum_ns != b->sum_ns)
		return (a->sum_ns < b->sum_ns) - (a->sum_ns > b->sum_ns);
	if (a->count != b->count)
		return (a->count < b->count) - (a->count > b->count);
	c = strcmp(a->group, b->group);
	return c ? c : strcmp(a->name, b->name);
}

int profile_mark_sums(const struct profile *p, struct profile_mark_sums *ret)
{
	struct profile_mark_sums sums = {0};
	struct id_table ids = {0};
	int rc = 0;

	for (size_t i = 0; p->notes && !rc && i < p->notes->marks.len; i++)
		if (p->notes->marks.data[i].severity == MARK_NO_MESSAGE)
			rc = add_mark(&sums, &ids, &p->notes->marks.data[i]);
	id_table_release(&ids);
	if (rc) {
		vec_release(&sums);
		return rc;
	}
	if (sums.len)
		qsort(sums.data, sums.len, sizeof(*sums.data), compare_sums);
	*ret = sums;
	return 0;
}
