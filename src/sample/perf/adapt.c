/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Each thread's own amount of stack (stack_size.h), and what follows from it for the events.
 *
 * What an event copies is fixed, so a thread with events of its own has each of them replaced, right
 * after a sample of it, when another size is wanted. A thread that has only inherited its creator's
 * gets its own then. The inherited one goes on, for nothing: the interrupt is paid twice. So where a
 * family is small, all of its threads get events of their own, and when none is left that needs the
 * inherited ones, these are closed ("settled"). What the threads start later inherits from them.
 *
 * Closing an event takes it away from everyone who has inherited it. A thread that was being made when
 * its creator's event was replaced may have inherited the old one alone, and nothing then; its fork is
 * told later. So the threads that someone makes about the time of a replacement get their own.
 *
 *	thread             has            its creator's event may be replaced
 *	attached           its own        when nobody has inherited from it, else after settling
 *	started later      inherited      -
 *	  and grown        both           when its family settles
 */
#include "sample/perf/perf_priv.h"

#include <errno.h>

#include "base/clock.h"

/* Larger families never settle: each thread is an event a CPU. */
#define FAMILY_MOST 64u
#define SETTLE_EVERY_NS NS_PER_S
#define LOOK_AGAIN_NS NS_PER_MS
#define MAX_LOOKS 32
/* A thread may be in the making for that long. */
#define DOUBT_NS NS_PER_S
/* After events could not be opened. */
#define PAUSE_NS NS_PER_S
/* Records of the same fork, by different events. */
#define TOLD_NS NS_PER_MS
#define RATE_NS (250 * NS_PER_MS)
/* Samples of a thread that only come from an event that is not its source's. */
#define STRAYS_MOST 8

_Static_assert(STACK_SIZE_COUNT == SAMPLER_STACK_SIZES, "sampler_facts tells of all of them");

static uint32_t wanted_bytes(const struct perf_sampler *s, const struct perf_thread *th)
{
	return s->adaptive ? stack_size_bytes(th->size.level) : 0;
}

/* ---- threads come and go ---- */

int perf_attach(struct perf_sampler *s, pid_t tid, const struct event_wish *how)
{
	struct perf_thread *th = thread_table_find(&s->threads, tid);
	bool known = th;
	int rc;

	if (!th)
		th = thread_table_add(&s->threads, tid);
	if (!th)
		return -ENOMEM;

	struct event_wish wish = *how;

	wish.stack_bytes = wanted_bytes(s, th);
	if (s->options.on_cpu)
		early_start(s);
	rc = perf_open_thread(s, th, &wish);
	if (!rc)
		thread_table_set_source(&s->threads, th, tid, known ? clock_monotonic_ns() : 0);
	else if (!known)
		thread_table_remove(&s->threads, th);
	return rc;
}

int perf_attach_all(struct perf_sampler *s)
{
	struct event_wish wish = {.stack_bytes = wanted_bytes(s, &s->everything)};

	if (s->options.on_cpu)
		early_start(s);
	return perf_open_thread(s, &s->everything, &wish);
}

bool perf_is_attached(const struct perf_sampler *s, pid_t tid)
{
	const struct perf_thread *th = thread_table_find(&s->threads, tid);

	return th && th->events;
}

static void set_unsettled(struct perf_sampler *s, struct perf_thread *th, bool unsettled)
{
	if (th->unsettled == unsettled)
		return;
	th->unsettled = unsettled;
	s->unsettled += unsettled ? 1 : (size_t)-1;
}

/* Events of its own for a thread that has inherited ones. */
static int give_own(struct perf_sampler *s, struct perf_thread *th)
{
	struct event_wish wish = {.inherit = true, .stack_bytes = wanted_bytes(s, th)};
	struct perf_thread *source = thread_table_find(&s->threads, th->source);
	int rc = th->events ? 0 : perf_open_thread(s, th, &wish);

	if (rc) {
		if (rc != -ESRCH)
			s->paused_until_ns = clock_monotonic_ns() + PAUSE_NS;
		return rc;
	}
	th->replaced_ns = clock_monotonic_ns();
	thread_table_set_source(&s->threads, th, th->tid, th->replaced_ns);
	if (source && source != th)
		set_unsettled(s, source, true);
	return 0;
}

void perf_thread_forked(struct perf_sampler *s, pid_t ptid, pid_t tid, uint64_t time_ns)
{
	struct perf_thread *parent = thread_table_find(&s->threads, ptid);
	struct perf_thread *th = thread_table_find(&s->threads, tid);

	/* Attached since, or told already: every event of the creator tells it. */
	if (!parent || tid == ptid || (th && (th->events || time_ns < th->born_ns + TOLD_NS)))
		return;
	if (th)
		perf_thread_exited(s, tid); /* its end was not told */
	th = thread_table_add(&s->threads, tid);
	if (!th)
		return;
	th->born_ns = time_ns;
	thread_table_set_source(&s->threads, th, thread_source_at(parent, time_ns), 0);
	if (parent->replaced_ns && time_ns < parent->replaced_ns + DOUBT_NS)
		give_own(s, th);
}

/* Nobody needs its events any more. */
static void let_go(struct perf_sampler *s, struct perf_thread *th)
{
	struct perf_thread *source = NULL;

	if (th->inheritors)
		return;
	if (th->source != th->tid)
		source = thread_table_find(&s->threads, th->source);
	thread_table_set_source(&s->threads, th, 0, 0);
	set_unsettled(s, th, false);
	perf_close_thread(s, th);
	thread_table_remove(&s->threads, th);
	if (source && source->gone)
		let_go(s, source);
}

void perf_thread_exited(struct perf_sampler *s, pid_t tid)
{
	struct perf_thread *th = thread_table_find(&s->threads, tid);

	if (!th || th->gone)
		return;
	if (th->sampled)
		s->sizes_of_gone[th->level]++;
	th->gone = true;
	let_go(s, th);
}

/* ---- samples ---- */

bool perf_is_second(
	const struct perf_sampler *s, const struct watched_event *e, pid_t tid, uint64_t time_ns)
{
	const struct perf_thread *th = e && e->tid != -1 ? thread_table_find(&s->threads, tid) : NULL;

	return th && th->source && thread_source_at(th, time_ns) != e->tid;
}

struct perf_thread *perf_sampled_thread(
	struct perf_sampler *s, const struct watched_event *e, pid_t tid, uint64_t time_ns)
{
	struct perf_thread *th = thread_table_find(&s->threads, tid);

	if (!th)
		th = thread_table_add(&s->threads, tid);
	if (!th || !e || e->tid == -1)
		return th;
	if (!th->source)
		thread_table_set_source(&s->threads, th, e->tid, 0);
	if (thread_source_at(th, time_ns) == e->tid) {
		th->strays = 0;
		return th;
	}
	/* Its beginning was not told right, or lost. */
	if (++th->strays == STRAYS_MOST && (th->gone || !th->events))
		thread_table_set_source(&s->threads, th, e->tid, time_ns);
	return NULL;
}

static bool may_change(const struct perf_sampler *s, const struct watched_event *e)
{
	return e->fd >= 0 && clock_monotonic_ns() >= s->paused_until_ns;
}

static void replace(struct perf_sampler *s, struct perf_thread *th, struct watched_event *e)
{
	if (perf_replace(s, th, e, wanted_bytes(s, th)))
		s->paused_until_ns = clock_monotonic_ns() + PAUSE_NS;
	else
		th->replaced_ns = clock_monotonic_ns();
}

void perf_adapt(struct perf_sampler *s, struct perf_thread *th, struct watched_event *e,
	const struct stored_stack *stack)
{
	struct perf_thread *who = e && e->tid == -1 ? &s->everything : th;
	struct stack_seen seen = {
		.cut = stack->used_bytes &&
			(stack->end == UNWIND_TRUNCATED || stack->end == UNWIND_CHANGED),
		.needed = stack->used_bytes,
	};

	if (!s->adaptive || !e)
		return;
	th->level = stack_size_level(e->stack_bytes);
	if (!th->sampled && e->tid != th->tid) /* its creator's size */
		th->size.level = th->level;
	th->sampled = true;
	if (e->stack_bytes == wanted_bytes(s, who)) /* not of before it was changed */
		stack_size_note(&who->size, seen, s->room);
	if (e->stack_bytes == wanted_bytes(s, who) || !may_change(s, e))
		return;
	if (e->tid != -1 && e->tid != th->tid) { /* inherited */
		if (e->stack_bytes < wanted_bytes(s, th))
			give_own(s, th);
	} else if (who->inheritors) {
		set_unsettled(s, who, true);
	} else {
		replace(s, who, e);
	}
}

/* ---- settling ---- */

/* Events of their own for all that inherit from it. */
static void free_family(struct perf_sampler *s, const struct perf_thread *root)
{
	for (struct perf_thread *th = NULL; (th = thread_table_next(&s->threads, th));)
		if (th->source == root->tid && th != root && !th->gone && give_own(s, th) &&
			s->paused_until_ns > clock_monotonic_ns())
			return;
}

/* The events of its own, which nobody shares with it any more, at the size it wants. */
static void renew(struct perf_sampler *s, struct perf_thread *root)
{
	set_unsettled(s, root, false);
	if (root->gone) {
		let_go(s, root);
		return;
	}
	for (struct watched_event *e = root->events, *next; e; e = next) {
		next = e->sibling;
		replace(s, root, e);
	}
}

static struct perf_thread *next_unsettled(const struct perf_sampler *s)
{
	struct perf_thread *th = NULL;

	while ((th = thread_table_next(&s->threads, th)))
		if (th->unsettled)
			return th;
	return NULL;
}

static void settle(struct perf_sampler *s, struct perf_thread *root)
{
	if (!root->events || root->inheritors > FAMILY_MOST) {
		set_unsettled(s, root, false);
	} else if (!root->inheritors) {
		renew(s, root);
		s->settle_after_ns = clock_monotonic_ns() + SETTLE_EVERY_NS;
	} else if (s->settle_looks++ < MAX_LOOKS) {
		/* Those that were made or have ended meanwhile are told of with the next records. */
		free_family(s, root);
		return;
	} else {
		set_unsettled(s, root, false);
	}
	s->settle_looks = 0;
}

static void measure_rate(struct perf_sampler *s, uint64_t now)
{
	uint64_t bytes = s->ring_bytes_read - s->rate_bytes;

	if (now < s->rate_ns + RATE_NS)
		return;
	s->room = stack_room_at(bytes * NS_PER_MS / ((now - s->rate_ns) / NS_PER_US));
	s->rate_bytes = s->ring_bytes_read;
	s->rate_ns = now;
}

uint64_t perf_settle_families(struct perf_sampler *s)
{
	uint64_t now = clock_monotonic_ns();
	struct perf_thread *root;

	measure_rate(s, now);
	if (!s->unsettled || now < s->settle_after_ns || now < s->paused_until_ns)
		return UINT64_MAX;
	root = next_unsettled(s);
	if (root)
		settle(s, root);
	return s->settle_looks ? LOOK_AGAIN_NS : UINT64_MAX;
}

/* ---- facts ---- */

void perf_count_sizes(const struct perf_sampler *s, struct sampler_facts *facts)
{
	for (unsigned level = 0; s->adaptive && level < STACK_SIZE_COUNT; level++)
		facts->stack_sizes[level] = (struct sampler_stack_size){
			stack_size_bytes(level), s->sizes_of_gone[level]};
	for (const struct perf_thread *th = NULL; (th = thread_table_next(&s->threads, th));)
		if (s->adaptive && th->sampled && !th->gone)
			facts->stack_sizes[th->level].threads++;
}
