/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/perf/perf_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/hash.h"

#define FIRST_BUCKETS 64

static struct watched_event **bucket_of(const struct event_table *t, uint64_t id)
{
	return &t->buckets[hash_u64(id) & (t->bucket_count - 1)];
}

/* When there is no memory for that, chains get longer. */
static int grow(struct event_table *t)
{
	struct event_table bigger = {
		.bucket_count = t->bucket_count ? t->bucket_count * 2 : FIRST_BUCKETS,
		.count = t->count,
	};

	bigger.buckets = calloc(bigger.bucket_count, sizeof(*bigger.buckets));
	if (!bigger.buckets)
		return t->bucket_count ? 0 : -ENOMEM;
	for (size_t i = 0; i < t->bucket_count; i++) {
		for (struct watched_event *e = t->buckets[i], *next; e; e = next) {
			struct watched_event **bucket = bucket_of(&bigger, e->id);

			next = e->next;
			e->next = *bucket;
			*bucket = e;
		}
	}
	free(t->buckets);
	*t = bigger;
	return 0;
}

struct watched_event *event_table_add(struct event_table *t, const struct watched_event *event)
{
	struct watched_event *e;

	if (t->count >= t->bucket_count && grow(t))
		return NULL;
	e = malloc(sizeof(*e));
	if (!e)
		return NULL;

	struct watched_event **bucket = bucket_of(t, event->id);

	*e = *event;
	e->next = *bucket;
	*bucket = e;
	t->count++;
	return e;
}

struct watched_event *event_table_find(const struct event_table *t, uint64_t id)
{
	struct watched_event *e = t->bucket_count ? *bucket_of(t, id) : NULL;

	while (e && e->id != id)
		e = e->next;
	return e;
}

struct watched_event *event_table_next(const struct event_table *t, const struct watched_event *e)
{
	size_t bucket = 0;

	if (e && e->next)
		return e->next;
	if (e)
		bucket = (size_t)(bucket_of(t, e->id) - t->buckets) + 1;
	while (bucket < t->bucket_count && !t->buckets[bucket])
		bucket++;
	return bucket < t->bucket_count ? t->buckets[bucket] : NULL;
}

void event_table_remove(struct event_table *t, struct watched_event *e)
{
	struct watched_event **at = bucket_of(t, e->id);

	while (*at != e)
		at = &(*at)->next;
	*at = e->next;
	t->count--;
	if (e->fd >= 0)
		close(e->fd);
	free(e);
}

void event_table_release(struct event_table *t)
{
	struct watched_event *e;

	while ((e = event_table_next(t, NULL)))
		event_table_remove(t, e);
	free(t->buckets);
	*t = (struct event_table){0};
}

struct watched_event *perf_event_of(struct cpu_ring *r, uint64_t id)
{
	pthread_mutex_lock(&r->lock);
	struct watched_event *e = event_table_find(&r->events, id);
	pthread_mutex_unlock(&r->lock);
	return e;
}
