/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/notes.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/vec.h"
#include "capture/id_table.h"

/* A counter or a pool of a process: both count from the same numbers. */
struct defined {
	uint32_t process, number;
	uint32_t counter;  /* id in the recording; CAPTURE_NONE: it is no counter */
	char *pool;        /* its name; NULL: it is no pool. Owned */
	bool told;         /* RECORD_COUNTER is written */
};

struct heap_notes {
	struct capture_writer *writer;
	struct session *session;
	VEC(struct defined) defined;
	struct id_table ids;
	uint32_t counters; /* ids so far */
	struct heap_notes_stats stats;
};

int heap_notes_new(struct capture_writer *w, struct session *s, struct heap_notes **ret, struct err *err)
{
	struct heap_notes *n = calloc(1, sizeof(*n));

	if (!n)
		return err_nomem(err);
	n->writer = w;
	n->session = s;
	*ret = n;
	return 0;
}

void heap_notes_free(struct heap_notes *n)
{
	if (!n)
		return;
	vec_each(&n->defined, d)
		free(d->pool);
	vec_release(&n->defined);
	id_table_release(&n->ids);
	free(n);
}

/* ---- what is defined ---- */

static uint64_t hash_of(const void *ctx, uint32_t id)
{
	const struct defined *d = &((const struct heap_notes *)ctx)->defined.data[id];

	return hash_pair(d->process, d->number);
}

static struct defined *find(const struct heap_notes *n, uint32_t process, uint64_t number)
{
	struct id_probe probe = id_probe_start(&n->ids, hash_pair(process, (uint32_t)number));

	while (id_probe_next(&n->ids, &probe)) {
		struct defined *d = &n->defined.data[probe.id];

		if (d->process == process && d->number == number)
			return d;
	}
	return NULL;
}

/* NULL: there is no room, or no memory. */
static struct defined *find_or_add(struct heap_notes *n, uint32_t process, uint64_t number)
{
	struct defined *d = find(n, process, number);
	uint32_t id = (uint32_t)n->defined.len;

	if (d)
		return d;
	if (id >= HEAP_MOST_DEFINED || number > UINT32_MAX || id_table_reserve(&n->ids, hash_of, n) ||
		vec_push(&n->defined,
			(struct defined){.process = process, .number = (uint32_t)number, .counter = CAPTURE_NONE})) {
		session_lost(n->session, LOSS_NOTE, 1);
		return NULL;
	}
	id_table_add(&n->ids, hash_pair(process, (uint32_t)number), id);
	return &n->defined.data[id];
}

static uint32_t text(const struct heap_notes *n, const struct heap_event *e, unsigned i)
{
	uint32_t bytes = e->more->text_bytes[i];

	return bytes ? capture_string_bytes(n->writer, e->more->text[i], bytes) : CAPTURE_NONE;
}

/* Its id in the recording. A value may come before its counter, from another thread. */
static uint32_t counter_id(struct heap_notes *n, struct defined *d)
{
	if (d->counter == CAPTURE_NONE)
		d->counter = n->counters++;
	return d->counter;
}

static void define_counter(struct heap_notes *n, const struct heap_event *e, pid_t pid)
{
	struct defined *d = find_or_add(n, e->process, e->address);

	if (!d || d->told)
		return;

	struct record_counter r = {
		.id = counter_id(n, d),
		.pid = (uint32_t)pid,
		.group = text(n, e, 0),
		.name = text(n, e, 1),
		.description = text(n, e, 2),
		.kind = e->more->value ? COUNTER_DOUBLE : COUNTER_INT64,
	};

	capture_record(n->writer, RECORD_COUNTER, &r, sizeof(r));
	d->told = true;
	n->stats.counters++;
}

static void set_counter(struct heap_notes *n, const struct heap_event *e, pid_t tid)
{
	struct defined *d = find_or_add(n, e->process, e->address);

	if (!d)
		return;

	struct record_counter_value r = {
		.time_ns = e->time_ns,
		.value = e->more->value,
		.counter = counter_id(n, d),
		.tid = (uint32_t)tid,
	};

	capture_record(n->writer, RECORD_COUNTER_VALUE, &r, sizeof(r));
	n->stats.values++;
}

static void define_pool(struct heap_notes *n, const struct heap_event *e)
{
	struct defined *d = find_or_add(n, e->process, e->address);

	if (d && !d->pool)
		d->pool = strndup(e->more->text[0], e->more->text_bytes[0]);
}

const char *heap_notes_pool(const struct heap_notes *n, uint32_t process, uint32_t pool)
{
	const struct defined *d = find(n, process, pool);

	return d ? d->pool : NULL;
}

/* ---- marks ---- */

static void mark(struct heap_notes *n, const struct heap_event *e, pid_t pid, pid_t tid)
{
	bool message = e->type == SHARE_LOG;
	uint64_t severity = e->more->value;
	struct record_mark r = {
		.time_ns = message ? e->time_ns : e->more->value,
		.duration_ns = e->address,
		.pid = (uint32_t)pid,
		.tid = (uint32_t)tid,
		.group = text(n, e, 0),
		.name = message ? CAPTURE_NONE : text(n, e, 1),
		.message = text(n, e, message ? 1 : 2),
	};

	if (message)
		r.severity = severity >= MARK_DEBUG && severity <= MARK_ERROR ? (uint8_t)severity : MARK_MESSAGE;
	capture_record(n->writer, RECORD_MARK, &r, sizeof(r));
	if (message)
		n->stats.messages++;
	else
		n->stats.marks++;
}

bool heap_note(struct heap_notes *n, const struct heap_event *e, pid_t pid, pid_t tid)
{
	switch (e->type) {
	case SHARE_MARK:
	case SHARE_LOG:
		mark(n, e, pid, tid);
		return true;
	case SHARE_COUNTER:
		define_counter(n, e, pid);
		return true;
	case SHARE_VALUE:
		set_counter(n, e, tid);
		return true;
	case SHARE_POOL:
		define_pool(n, e);
		return true;
	case SHARE_CODE:
		session_told_code(n->session, pid, e->time_ns, e->address, e->more->value, e->more->text[0]);
		n->stats.code++;
		return true;
	default:
		return false;
	}
}

void heap_notes_stats(const struct heap_notes *n, struct heap_notes_stats *ret)
{
	*ret = n->stats;
}
