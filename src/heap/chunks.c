/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A ring's list of chunks, and the list of those that are free.
 *
 * The free list is a stack with a tag against ABA. We alone push on it, the target alone pops: so what was the depth of
 * a chunk when it was pushed is its depth as long as it is there, and the first one says how many are free. Those beyond
 * KEEP_FREE we do not push: their memory goes back to the machine, and they stay with us until the target has
 * used up what is free. It does not wait for them: there are chunks that were never used.
 */
#include <string.h>
#include <sys/mman.h>

#include "heap/reader_priv.h"

#define KEEP_FREE 96u    /* chunks: 1.5 MiB a process */
#define FEW_FREE 16u     /* so many are to be there */
#define CAS_TRIES 64u
#define RETURN_MOST 1024u /* at once */

/* The note of a chunk; NULL when there is no memory for it. */
static uint16_t *note_of(struct process *p, uint32_t chunk)
{
	if (chunk >= p->notes.len) {
		size_t had = p->notes.len;

		if (vec_reserve(&p->notes, chunk + 1))
			return NULL;
		p->notes.len = p->notes.cap;
		memset(p->notes.data + had, 0, (p->notes.len - had) * sizeof(*p->notes.data));
	}
	return &p->notes.data[chunk];
}

void ring_abandon(struct process *p, struct ring *r)
{
	r->abandoned = true;
	p->losses.rings_abandoned++;
	free(take_ptr(r->raw));
}

static uint32_t free_depth(struct process *p, uint64_t list)
{
	uint32_t first = (uint32_t)list;

	return first && first < p->notes.len ? p->notes.data[first] & NOTE_DEPTH : 0;
}

/* On the list of free chunks; false when the target was always faster. */
static bool push(struct process *p, uint32_t chunk, uint16_t *note)
{
	struct share_chunk *c = shared_chunk(p, chunk);
	uint64_t *list = &shared_header(p)->free_chunks, now = shared_load(list);

	__atomic_store_n(&c->used, 0, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < CAS_TRIES; i++) {
		uint64_t then = ((now >> 32) + 1) << 32 | chunk;

		__atomic_store_n(&c->next, (uint32_t)now, __ATOMIC_RELAXED);
		*note = (uint16_t)(free_depth(p, now) + 1);
		if (__atomic_compare_exchange_n(list, &now, then, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			return true;
	}
	return false;
}

/* Without memory to note it the chunk is lost for the target, which has others. */
static void keep(struct process *p, uint32_t chunk, uint16_t *note)
{
	madvise(shared_chunk(p, chunk), SHARE_CHUNK_BYTES, MADV_REMOVE);
	*note = NOTE_KEPT;
	(void)!vec_push(&p->kept, chunk);
}

static void give_back(struct process *p, uint32_t chunk)
{
	uint16_t *note = note_of(p, chunk);

	if (!note)
		return;
	*note = 0;
	if (free_depth(p, shared_load(&shared_header(p)->free_chunks)) >= KEEP_FREE || !push(p, chunk, note))
		keep(p, chunk, note);
}

void chunks_return(struct process *p)
{
	const struct share_header *h = shared_header(p);
	uint32_t limit = shared_load(&h->chunk_limit), used = shared_load(&h->chunk_count);
	bool scarce = used >= limit / 4 * 3 || used >= SHARE_CHUNKS / 4 * 3;
	uint32_t most = scarce ? RETURN_MOST : FEW_FREE;

	if (!p->kept.len || (!scarce && free_depth(p, shared_load(&h->free_chunks)) >= FEW_FREE))
		return;
	for (; p->kept.len && most; most--) {
		uint32_t chunk = p->kept.data[p->kept.len - 1];
		uint16_t *note = note_of(p, chunk);

		if (!note || !push(p, chunk, note)) {
			if (note)
				*note = NOTE_KEPT;
			return;
		}
		p->kept.len--;
	}
}

/* The ring goes on in `chunk`, when that can be: no other one is there, and it is not one that we keep. */
static bool enter(struct process *p, struct ring *r, uint32_t chunk)
{
	uint16_t *note = chunk && chunk < SHARE_CHUNKS ? note_of(p, chunk) : NULL;

	if (!note || *note & (NOTE_READ | NOTE_KEPT)) {
		ring_abandon(p, r);
		return false;
	}
	*note = NOTE_READ;
	r->chunk = chunk;
	r->bytes = (const uint8_t *)(shared_chunk(p, chunk) + 1);
	r->at = r->used = 0;
	return true;
}

bool ring_start(struct process *p, struct ring *r, uint32_t first)
{
	return first && enter(p, r, first);
}

/* Every chunk that is left had an event, and those are what a drain counts. */
bool ring_fill(struct process *p, struct ring *r)
{
	for (;;) {
		const struct share_chunk *c = shared_chunk(p, r->chunk);
		uint32_t next = shared_acquire(&c->next); /* first: with it `used` is at its end */
		uint32_t used = shared_acquire(&c->used), left = r->chunk;

		if (used > SHARE_CHUNK_ROOM || used % 8 || used < r->used || (next && !used)) {
			ring_abandon(p, r);
			return false;
		}
		r->used = used;
		if (r->at < used)
			return true;
		if (!next || !enter(p, r, next))
			return false;
		give_back(p, left);
	}
}
