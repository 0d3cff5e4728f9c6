/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A drain: the rings of all processes in order of time.
 *
 * The time T is taken first, and only then are the rings looked at: up to T everything is there that another
 * event depends on (share.h). What is later than T stays for the next drain. An event of before T may come to light in
 * the next drain all the same, when its thread was preempted between taking the time and writing it down: nothing
 * depends on its place, and it gets the time of the last one that was handed over.
 */
#include <string.h>

#include "base/clock.h"
#include "heap/reader_priv.h"

/* ---- whose turn it is ---- */

static void sift_down(struct turn *t, size_t count, size_t i)
{
	struct turn it = t[i];

	for (size_t child; (child = 2 * i + 1) < count; i = child) {
		if (child + 1 < count && t[child + 1].ns < t[child].ns)
			child++;
		if (it.ns <= t[child].ns)
			break;
		t[i] = t[child];
	}
	t[i] = it;
}

/* When the first one but one is to come. */
static uint64_t second_ns(const struct heap_readers *set)
{
	const struct turn *t = set->turns.data;
	uint64_t ns = UINT64_MAX;

	if (set->turns.len > 1)
		ns = t[1].ns;
	if (set->turns.len > 2 && t[2].ns < ns)
		ns = t[2].ns;
	return ns;
}

static bool ring_ready(struct heap_readers *set, struct process *p, struct ring *r)
{
	return (r->at < r->used || ring_fill(p, r)) && ring_head(set, p, r);
}

/* Rings that were claimed since the last drain. Without memory they come the next time. */
static void find_rings(struct process *p)
{
	uint32_t count = shared_acquire(&shared_header(p)->ring_count);
	size_t had = p->rings.len;

	if (count > SHARE_RINGS)
		count = SHARE_RINGS;
	if (count <= had || vec_reserve(&p->rings, count))
		return;
	memset(p->rings.data + had, 0, (count - had) * sizeof(*p->rings.data));
	p->rings.len = count;
	for (size_t i = had; i < count; i++)
		p->rings.data[i].rate = p->header.rate;
}

static bool begun(struct process *p, struct ring *r, uint32_t number)
{
	const struct share_ring *shared = (const struct share_ring *)(const void *)(p->memory + SHARE_RINGS_AT) + number;

	if (!ring_start(p, r, shared_acquire(&shared->first)))
		return false;
	r->tid = shared_load(&shared->tid);
	return true;
}

static void look_at(struct heap_readers *set, uint32_t slot)
{
	struct process *p = set->processes[slot];

	find_rings(p);
	chunks_return(p);
	for (uint32_t i = 0; i < p->rings.len; i++) {
		struct ring *r = &p->rings.data[i];

		if (r->abandoned || (!r->chunk && !begun(p, r, i)) || !ring_ready(set, p, r))
			continue;
		if (vec_push(&set->turns, ((struct turn){.ns = r->head_ns, .slot = slot, .ring = i})))
			return; /* without memory it waits for its turn */
	}
}

static void look_at_all(struct heap_readers *set)
{
	set->turns.len = 0;
	for (uint32_t slot = 0; slot < set->slot_count; slot++)
		if (set->processes[slot])
			look_at(set, slot);
	for (size_t i = set->turns.len / 2; i-- > 0;)
		sift_down(set->turns.data, set->turns.len, i);
}

/* ---- handing over ---- */

static void drop_more(struct heap_readers *set)
{
	free(take_ptr(set->raw));
	set->more = (struct heap_event_more){.text = {"", "", ""}};
}

static void hand_over(struct heap_readers *set)
{
	uint32_t count = set->batched;

	set->batched = 0;
	if (count)
		set->ops->events(set->ctx, set->batch, count);
}

/* The first event of `r`; false: the ring has to be given up. */
static bool take_event(struct heap_readers *set, struct process *p, struct ring *r)
{
	struct heap_event *e = &set->batch[set->batched];
	enum event_result result = EVENT_PLAIN;

	if (!ring_usual_event(set, p, r, e))
		result = ring_event(set, p, r, e);

	if (result == EVENT_WRONG) {
		drop_more(set);
		ring_abandon(p, r);
		return false;
	}
	if (result == EVENT_NONE)
		return true;
	if (e->time_ns < set->last_ns) {
		e->time_ns = set->last_ns;
		p->losses.late++;
	}
	set->last_ns = e->time_ns;
	set->batched++;
	if (result == EVENT_MORE) {
		e->more = &set->more;
		hand_over(set);
		drop_more(set);
	} else if (set->batched == HEAP_BATCH) {
		hand_over(set);
	}
	return true;
}

/* Events of the first ring, as long as none of another one is earlier. Returns how many. */
static size_t run(struct heap_readers *set, size_t most)
{
	struct turn *turn = &set->turns.data[0];
	struct process *p = set->processes[turn->slot];
	struct ring *r = &p->rings.data[turn->ring];
	uint64_t until_ns = second_ns(set);
	size_t count = 0;
	bool more;

	do {
		more = take_event(set, p, r) && ring_ready(set, p, r);
		count++;
	} while (more && r->head_ns <= until_ns && count < most);

	if (more)
		turn->ns = r->head_ns;
	else
		*turn = set->turns.data[--set->turns.len];
	if (set->turns.len)
		sift_down(set->turns.data, set->turns.len, 0);
	return count;
}

size_t heap_readers_drain(struct heap_readers *set, size_t limit)
{
	size_t count = 0;

	if (set->uses_counter)
		counter_update(&set->counter);
	set->until_ns = set->uses_counter ? set->counter.now.ns : clock_monotonic_ns();
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	look_at_all(set);
	while (set->turns.len && count < limit)
		count += run(set, limit - count);
	hand_over(set);
	return count;
}
