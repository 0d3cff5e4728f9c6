/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which ring a thread writes to. It claims one with its first event and lets go of it in the last round of its
 * destructors; the next thread goes on at the end of one that was let go, so there are never more rings than threads
 * that were alive at a time (and a few, of those that end without destructors until the collector sees that).
 *
 * What a thread does after that (libc frees its memory, late destructors) goes into a ring that it borrows.
 */
#include <errno.h>
#include <linux/prctl.h>
#include <pthread.h>
#include <sys/mman.h>

#include "heap/preload/clock.h"
#include "heap/preload/preload.h"
#include "heap/preload/ring.h"
#include "heap/preload/sys.h"

#pragma weak pthread_setspecific
/* Not in programs that only say things themselves, without stacks. */
#pragma weak walk_stack
#pragma weak walk_state_bytes
#pragma weak walk_forget

__attribute__((tls_model("initial-exec"))) __thread struct thread thread;

/* Rounds of destructors (PTHREAD_DESTRUCTOR_ITERATIONS of all libcs): ours is called again in each. */
#define ROUNDS 4

static bool claim(uint32_t index, uint32_t from)
{
	return __atomic_compare_exchange_n(&preload.rings[index].state, &from, SHARE_RING_OWNED, false, __ATOMIC_ACQ_REL,
		__ATOMIC_RELAXED);
}

/* Number of a ring that is ours now, or SHARE_RINGS. */
static uint32_t find_ring(void)
{
	struct share_header *h = preload.memory.header;
	uint32_t count = __atomic_load_n(&h->ring_count, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < count && i < SHARE_RINGS; i++)
		if (__atomic_load_n(&preload.rings[i].state, __ATOMIC_RELAXED) == SHARE_RING_RELEASED &&
			claim(i, SHARE_RING_RELEASED))
			return i;
	do {
		if (count >= SHARE_RINGS)
			return SHARE_RINGS;
	} while (!__atomic_compare_exchange_n(&h->ring_count, &count, count + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
	return claim(count, SHARE_RING_NEVER) ? count : SHARE_RINGS;
}

/* The end of the ring: of one that was killed while it linked a chunk that is behind `last`. */
static bool find_end(struct thread *t, struct share_ring *ring)
{
	uint32_t index = ring->last, next;

	if (!index) {
		index = chunk_take();
		if (!index)
			return false;
		ring->last = index;
		__atomic_store_n(&ring->first, index, __ATOMIC_RELEASE);
	}
	next = chunk_at(index)->next;
	if (next && next < SHARE_CHUNKS)
		ring->last = index = next;
	t->chunk = chunk_at(index);
	t->used = t->chunk->used;
	return t->used <= SHARE_CHUNK_ROOM && t->used % 8 == 0;
}

/* What threads had for their walks when they were watched by another collector. One may still be in the middle of a walk, so
 * it has its own again; that of one which is no more is anybody's. */
static struct spare {
	struct walk_state *walk;
	uint32_t tid; /* 0: taken */
} spares[SHARE_RINGS];
static uint32_t spare_count;

void thread_leave_walks(void)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < spare_count; i++)
		if (spares[i].tid)
			spares[kept++] = spares[i];
	for (uint32_t i = 0; i < SHARE_RINGS; i++) {
		/* Whoever is still in there finds it empty. */
		if (preload.walks[i] && walk_state_bytes)
			sys3(SYS_madvise, preload.walks[i], walk_state_bytes(), MADV_DONTNEED);
		if (preload.walks[i] && kept < SHARE_RINGS)
			spares[kept++] = (struct spare){preload.walks[i], preload.walkers[i]};
		preload.walks[i] = NULL;
	}
	spare_count = kept;
}

static struct walk_state *take_spare(uint32_t tid)
{
	long pid = sys3(SYS_getpid, 0, 0, 0);

	for (int own = 1; own >= 0; own--)
		for (uint32_t i = 0; i < spare_count; i++) {
			uint32_t who = __atomic_load_n(&spares[i].tid, __ATOMIC_RELAXED);

			if (!who || (own ? who != tid : sys3(SYS_tgkill, pid, who, 0) != -ESRCH))
				continue;
			if (__atomic_compare_exchange_n(&spares[i].tid, &who, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
				return spares[i].walk;
		}
	return NULL;
}

static struct walk_state *walk_of(uint32_t ring, uint32_t tid)
{
	uint64_t bytes;
	long at;

	if (!walk_stack)
		return NULL;
	preload.walkers[ring] = tid;
	if (!preload.walks[ring])
		preload.walks[ring] = take_spare(tid);
	if (preload.walks[ring]) {
		walk_forget(preload.walks[ring]);
		return preload.walks[ring];
	}
	bytes = walk_state_bytes();
	at = sys6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (at < 0 && at > -4096)
		return NULL;
	/* Most of its pages are never touched, and would be with the first one. */
	sys3(SYS_madvise, at, bytes, MADV_NOHUGEPAGE);
	return preload.walks[ring] = (struct walk_state *)at;
}

static void tell_name(struct thread *t, uint32_t tid)
{
	uint64_t *e = ring_reserve(t, 32);

	if (!e)
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(SHARE_THREAD, tid);
	e[2] = e[3] = 0;
	sys3(SYS_prctl, PR_GET_NAME, e + 2, 0);
	ring_commit(t, 32);
}

bool thread_claim(struct thread *t)
{
	uint32_t index = find_ring(), tid;
	struct share_ring *ring;

	if (index == SHARE_RINGS) {
		preload_lost(SHARE_LOST_RING);
		return false;
	}
	ring = &preload.rings[index];
	tid = (uint32_t)sys3(SYS_gettid, 0, 0, 0);
	__atomic_store_n(&ring->tid, tid, __ATOMIC_RELEASE);
	if (!find_end(t, ring)) {
		preload_lost(SHARE_LOST_CHUNK);
		t->chunk = NULL;
		__atomic_store_n(&ring->tid, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&ring->state, SHARE_RING_RELEASED, __ATOMIC_RELEASE);
		return false;
	}
	t->ring = index + 1;
	t->walk = walk_of(index, tid);
	t->told_rate = 0;
	if (preload.has_key && !t->ended)
		pthread_setspecific(preload.key, t);
	tell_name(t, tid);
	return true;
}

void thread_release(struct thread *t)
{
	struct share_ring *ring;

	if (!t->ring)
		return;
	ring = &preload.rings[t->ring - 1];
	t->ring = 0;
	t->chunk = NULL;
	t->walk = NULL;
	/* Without a number first: a ring whose owner is not there is let go of by the collector, and that must not be the
	 * next one's. */
	__atomic_store_n(&ring->tid, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&ring->state, SHARE_RING_RELEASED, __ATOMIC_RELEASE);
}

void thread_ended(void *value)
{
	struct thread *t = &thread;

	(void)value;
	if (++t->rounds < ROUNDS && !pthread_setspecific(preload.key, t))
		return;
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->ended = 1;
	if (t->generation == preload.generation && *preload.alive)
		thread_release(t);
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}
