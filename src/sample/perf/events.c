/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/perf/perf_priv.h"

#include <stdlib.h>
#include <unistd.h>

struct watched_event *event_table_add(
	struct table *t, const struct watched_event *event, uint64_t id)
{
	struct watched_event *e = malloc(sizeof(*e));

	if (!e)
		return NULL;
	*e = *event;
	if (table_add(t, &e->node, id)) {
		free(e);
		return NULL;
	}
	return e;
}

struct watched_event *event_table_find(const struct table *t, uint64_t id)
{
	return (struct watched_event *)table_find(t, id);
}

struct watched_event *event_table_next(const struct table *t, const struct watched_event *e)
{
	return (struct watched_event *)table_next(t, e ? &e->node : NULL);
}

void event_table_remove(struct table *t, struct watched_event *e)
{
	table_remove(t, &e->node);
	if (e->fd >= 0)
		close(e->fd);
	free(e);
}

void event_table_release(struct table *t)
{
	struct watched_event *e;

	while ((e = event_table_next(t, NULL)))
		event_table_remove(t, e);
	table_release(t);
}

struct watched_event *perf_event_of(struct cpu_ring *r, uint64_t id)
{
	pthread_mutex_lock(&r->lock);
	struct watched_event *e = event_table_find(&r->events, id);
	pthread_mutex_unlock(&r->lock);
	return e;
}
