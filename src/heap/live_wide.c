/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/live_wide.h"

#include <errno.h>
#include <sys/mman.h>

#define FIRST_SLOTS 256u
#define SMALL_SLOTS (1u << 18)  /* 8 MiB: here looking for a block costs more than memory does */
#define HUGE_BYTES (4u << 20)   /* from here on large pages are asked for: blocks are looked up all over the table */
#define RELEASE_BYTES (2u << 20) /* of the old table at once, while a new one is filled */

static struct live_block *map_slots(size_t slot_count)
{
	size_t bytes;
	void *p;

	if (__builtin_mul_overflow(slot_count, sizeof(struct live_block), &bytes))
		return NULL;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	if (bytes >= HUGE_BYTES)
		madvise(p, bytes, MADV_HUGEPAGE);
	return p;
}

/* Blocks come out of the old table in the order in which they go into the new one, and what was read of the old one is given back
 * on the way: both together take hardly more than the larger one. */
static int resize(struct live_wide *l, size_t slot_count)
{
	struct live_wide bigger = *l;
	size_t released = 0;

	bigger.slots = map_slots(slot_count);
	if (!bigger.slots)
		return -ENOMEM;
	bigger.slot_count = slot_count;
	bigger.shift = 64 - (unsigned)__builtin_ctzll(slot_count);
	bigger.count = 0;
	for (size_t i = 0; i < l->slot_count; i++) {
		if (l->slots[i].address)
			wide_add(&bigger, &l->slots[i]);
		if ((i + 1) * sizeof(*l->slots) - released >= RELEASE_BYTES) {
			madvise((char *)l->slots + released, RELEASE_BYTES, MADV_DONTNEED);
			released += RELEASE_BYTES;
		}
	}
	wide_release(l);
	*l = bigger;
	return 0;
}

int wide_reserve(struct live_wide *l)
{
	size_t most = l->slot_count <= SMALL_SLOTS ? l->slot_count / 2 : l->slot_count / 4 * 3;

	if (l->count + 1 <= most)
		return 0;
	return resize(l, l->slot_count ? l->slot_count * 2 : FIRST_SLOTS);
}

/* Those behind it that are not at home move up, so that nothing is ever between a block and its home. */
void wide_remove(struct live_wide *l, struct live_block *block)
{
	size_t mask = l->slot_count - 1, hole = (size_t)(block - l->slots), i = hole;

	for (;;) {
		i = (i + 1) & mask;
		if (!l->slots[i].address)
			break;
		if (((i - wide_home(l, l->slots[i].address)) & mask) < ((i - hole) & mask))
			continue;
		l->slots[hole] = l->slots[i];
		hole = i;
	}
	l->slots[hole].address = 0;
	l->count--;
}

void wide_fit(struct live_wide *l)
{
	size_t want = l->slot_count;

	while (want > FIRST_SLOTS && l->count < want / 8)
		want /= 2;
	if (want < l->slot_count)
		(void)resize(l, want);
}

void wide_release(struct live_wide *l)
{
	if (l->slots)
		munmap(l->slots, wide_bytes(l));
	l->slots = NULL;
	l->slot_count = l->count = 0;
}
