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

#include <errno.h>
#include <stdlib.h>

#include "base/hash.h"

#define FIRST_BUCKETS 64

static struct perf_thread **bucket_of(const struct thread_table *t, pid_t tid)
{
	return &t->buckets[hash_u64((uint64_t)tid) & (t->bucket_count - 1)];
}

/* When there is no memory for that, chains get longer. */
static int grow(struct thread_table *t)
{
	struct thread_table bigger = {
		.bucket_count = t->bucket_count ? t->bucket_count * 2 : FIRST_BUCKETS,
		.count = t->count,
	};

	bigger.buckets = calloc(bigger.bucket_count, sizeof(struct perf_thread *));
	if (!bigger.buckets)
		return t->bucket_count ? 0 : -ENOMEM;
	for (size_t i = 0; i < t->bucket_count; i++) {
		for (struct perf_thread *th = t->buckets[i], *next; th; th = next) {
			struct perf_thread **bucket = bucket_of(&bigger, th->tid);

			next = th->next;
			th->next = *bucket;
			*bucket = th;
		}
	}
	free(t->buckets);
	*t = bigger;
	return 0;
}

struct perf_thread *thread_table_find(const struct thread_table *t, pid_t tid)
{
	struct perf_thread *th = t->bucket_count ? *bucket_of(t, tid) : NULL;

	while (th && th->tid != tid)
		th = th->next;
	return th;
}

struct perf_thread *thread_table_add(struct thread_table *t, pid_t tid)
{
	struct perf_thread *th;

	if (t->count >= t->bucket_count && grow(t))
		return NULL;
	th = calloc(1, sizeof(*th));
	if (!th)
		return NULL;

	struct perf_thread **bucket = bucket_of(t, tid);

	th->tid = tid;
	th->next = *bucket;
	*bucket = th;
	t->count++;
	return th;
}

struct perf_thread *thread_table_next(const struct thread_table *t, const struct perf_thread *th)
{
	size_t bucket = 0;

	if (th && th->next)
		return th->next;
	if (th)
		bucket = (size_t)(bucket_of(t, th->tid) - t->buckets) + 1;
	while (bucket < t->bucket_count && !t->buckets[bucket])
		bucket++;
	return bucket < t->bucket_count ? t->buckets[bucket] : NULL;
}

void thread_table_remove(struct thread_table *t, struct perf_thread *th)
{
	struct perf_thread **at = bucket_of(t, th->tid);

	while (*at != th)
		at = &(*at)->next;
	*at = th->next;
	t->count--;
	free(th);
}

void thread_table_release(struct thread_table *t)
{
	struct perf_thread *th;

	while ((th = thread_table_next(t, NULL)))
		thread_table_remove(t, th);
	free(t->buckets);
	*t = (struct thread_table){0};
}

/* ---- sources ---- */

static void count_inheritor(struct thread_table *t, const struct perf_thread *th, int by)
{
	struct perf_thread *source =
		th->source && th->source != th->tid ? thread_table_find(t, th->source) : NULL;

	if (source)
		source->inheritors += (size_t)by;
}

void thread_table_set_source(
	struct thread_table *t, struct perf_thread *th, pid_t source, uint64_t since_ns)
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
