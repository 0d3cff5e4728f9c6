/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Whose events count for which thread.
 *
 * A thread may be under several events of the same kind at once: its own, and those it has inherited
 * from whoever started it and from those before. Its samples come from all of them, and only those of
 * one may count: its own, else those of the thread it was started by, or of that one's source.
 * A source can change while records of before are on their way; so it holds from a point in time on.
 */
#include "sample/perf/perf_priv.h"

#include <stdlib.h>

struct perf_thread *thread_table_find(const struct table *t, pid_t tid)
{
	return (struct perf_thread *)table_find(t, (uint64_t)tid);
}

struct perf_thread *thread_table_add(struct table *t, pid_t tid)
{
	struct perf_thread *th = calloc(1, sizeof(*th));

	if (!th)
		return NULL;
	th->tid = tid;
	if (table_add(t, &th->node, (uint64_t)tid)) {
		free(th);
		return NULL;
	}
	return th;
}

struct perf_thread *thread_table_next(const struct table *t, const struct perf_thread *th)
{
	return (struct perf_thread *)table_next(t, th ? &th->node : NULL);
}

void thread_table_remove(struct table *t, struct perf_thread *th)
{
	table_remove(t, &th->node);
	free(th);
}

void thread_table_release(struct table *t)
{
	struct perf_thread *th;

	while ((th = thread_table_next(t, NULL)))
		thread_table_remove(t, th);
	table_release(t);
}

/* ---- sources ---- */

static void count_inheritor(struct table *t, const struct perf_thread *th, int by)
{
	struct perf_thread *source =
		th->source && th->source != th->tid ? thread_table_find(t, th->source) : NULL;

	if (source)
		source->inheritors += (size_t)by;
}

void thread_table_set_source(
	struct table *t, struct perf_thread *th, pid_t source, uint64_t since_ns)
{
	count_inheritor(t, th, -1);
	th->before = th->source;
	th->since_ns = since_ns;
	th->source = source;
	count_inheritor(t, th, 1);
}

pid_t thread_source_at(const struct perf_thread *th, uint64_t time_ns)
{
	return time_ns < th->since_ns && th->before ? th->before : th->source;
}
