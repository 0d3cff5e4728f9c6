/* SPDX-License-Identifier: BSD-2-Clause */
/* Sums as times, in order, and whom to talk about. docs/heuristics/over-time.md. */
#include "wait/over_time.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

/* A thread that lost one part in so many is worth talking about. */
#define WORTH_PARTS 20u

const char *over_class_name(enum over_class class)
{
	static const char *const names[OVER_CLASS_COUNT] = {
		[OVER_BEHIND] = "behind",
		[OVER_DEVICE] = "device",
		[OVER_STOPPED] = "stopped",
		[OVER_IDLE] = "idle",
	};

	return names[class];
}

/* ---- times ---- */

static uint64_t part(uint64_t whole, uint64_t some, uint64_t all)
{
	return all ? (uint64_t)((double)whole * (double)some / (double)all) : 0;
}

static uint64_t at_most(uint64_t ns, uint64_t limit)
{
	return ns < limit ? ns : limit;
}

uint64_t over_ran_ns(const struct over_thread *th)
{
	uint64_t watched_ns = over_watched_ns(th);

	return th->counted ? at_most(th->ran_ns, watched_ns)
			   : part(watched_ns, th->running_looks, th->looks);
}

uint64_t over_ready_ns(const struct over_thread *th)
{
	return th->counted ? at_most(th->queued_ns, over_watched_ns(th) - over_ran_ns(th)) : 0;
}

uint64_t over_blocked_ns(const struct over_thread *th)
{
	return over_watched_ns(th) - over_ran_ns(th) - over_ready_ns(th);
}

uint64_t over_cause_ns(const struct over_thread *th, const struct over_cause *c)
{
	return part(over_blocked_ns(th), c->looks, th->blocked_looks);
}

uint64_t over_class_ns(const struct over_thread *th, enum over_class class)
{
	uint64_t looks = 0;

	vec_each(&th->causes, c)
		if (c->class == class)
			looks += c->looks;
	return part(over_blocked_ns(th), looks, th->blocked_looks);
}

uint64_t over_handed_on(const struct over_lock *l)
{
	return l->last_ns > l->first_ns
		? (l->last_counter - l->first_counter) * NS_PER_S / (l->last_ns - l->first_ns)
		: 0;
}

uint64_t over_lost_ns(const struct over_thread *th)
{
	return over_ready_ns(th) + over_class_ns(th, OVER_BEHIND) + over_class_ns(th, OVER_DEVICE) +
		over_class_ns(th, OVER_STOPPED);
}

/* ---- order ---- */

static int compare(uint64_t a, uint64_t b)
{
	return (b > a) - (b < a);
}

static int compare_roots(const void *x, const void *y)
{
	const struct over_root *a = x, *b = y;

	return compare(a->looks, b->looks);
}

static int compare_causes(const void *x, const void *y)
{
	const struct over_cause *a = x, *b = y;

	return compare(a->looks, b->looks);
}

static int compare_threads(const void *x, const void *y)
{
	const struct over_thread *a = *(struct over_thread *const *)x, *b = *(struct over_thread *const *)y;
	int lost = compare(over_lost_ns(a), over_lost_ns(b));

	if (!lost)
		lost = compare(over_ran_ns(a), over_ran_ns(b));
	return lost ? lost : (a->tid > b->tid) - (a->tid < b->tid);
}

static int compare_locks(const void *x, const void *y)
{
	const struct over_lock *a = x, *b = y;

	return compare(a->waiters, b->waiters);
}

#define SORT(v, how)                                                                               \
	do {                                                                                       \
		if ((v)->len)                                                                      \
			qsort((v)->data, (v)->len, sizeof(*(v)->data), (how));                     \
	} while (0)

/* Causes say by its number which lock they mean. */
static int sort_locks(struct over_time *o)
{
	size_t *place = calloc(o->locks.len + 1, sizeof(*place));

	if (!place)
		return -ENOMEM;
	vec_each(&o->locks, l)
		l->number = (size_t)(l - o->locks.data);
	SORT(&o->locks, compare_locks);
	vec_each(&o->locks, l) {
		place[l->number] = (size_t)(l - o->locks.data);
		SORT(&l->holders, compare_roots);
	}
	vec_each(&o->threads, th)
		vec_each(&(*th)->causes, c)
			if (c->lock != OVER_NO_LOCK)
				c->lock = place[c->lock];
	free(place);
	return 0;
}

/* ---- whom to talk about ---- */

static bool is_worth(const struct over_thread *th)
{
	return th && over_lost_ns(th) * WORTH_PARTS >= over_watched_ns(th) && over_lost_ns(th);
}

static const struct over_thread *choose(const struct over_time *o)
{
	const struct over_thread *first = NULL, *most = NULL, *busiest = NULL;

	vec_each(&o->threads, it) {
		const struct over_thread *th = *it;

		if (!th->asked)
			continue;
		if (th->is_first)
			first = th;
		if (!most)
			most = th; /* they are in that order */
		if (!busiest || over_ran_ns(th) > over_ran_ns(busiest))
			busiest = th;
	}
	if (is_worth(first))
		return first;
	if (is_worth(most))
		return most;
	return first && over_ran_ns(first) * WORTH_PARTS >= over_watched_ns(first) ? first
		: busiest && over_ran_ns(busiest)				   ? busiest
										   : first;
}

int over_time_finish(struct over_time *o, struct err *err)
{
	if (sort_locks(o))
		return err_nomem(err);
	vec_each(&o->threads, it) {
		struct over_thread *th = *it;

		th->ended = th->look != o->looks || o->target_ended;
		vec_each(&th->causes, c)
			SORT(&c->roots, compare_roots);
		SORT(&th->causes, compare_causes);
		if (o->options.focus && th->asked && th->tid == o->options.focus)
			o->focus = th;
	}
	SORT(&o->threads, compare_threads);
	if (!o->options.focus)
		o->focus = choose(o);
	if (o->focus)
		return 0;
	return o->options.focus ? err_set(err, ESRCH, "process %d has no thread %d", (int)o->options.pid,
					  (int)o->options.focus)
				: err_set(err, ESRCH, "process %d ended before there was a second look",
					  (int)o->options.pid);
}
