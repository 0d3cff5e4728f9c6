/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A queue of byte records from one thread of ours to another, without locks: one writes, one reads.
 *
 * The writer reserves room for the most a record may need, fills it in place, and commits what it
 * took. The reader looks at the oldest record in place and gives its room back. A full ring gives no
 * room: the writer never waits.
 */
#ifndef SONDE_SAMPLE_PTRACE_RING_H
#define SONDE_SAMPLE_PTRACE_RING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct note_ring {
	uint8_t *bytes;
	size_t size;          /* a power of two */
	bool wraps;           /* the writer's: what is reserved begins at the start */
	_Atomic uint64_t head; /* written up to here; both only grow */
	_Atomic uint64_t tail; /* read up to here */
};

/* `size` is a power of two. 0 or -ENOMEM. */
int note_ring_init(struct note_ring *r, size_t size);
void note_ring_release(struct note_ring *r);

/* The writer's side. Room for `bytes`, 8-byte aligned; NULL when there is none now. Commit what was
 * filled, at most what was reserved; without commit nothing has happened. True when the ring was
 * empty before: the reader may sleep. */
void *note_ring_reserve(struct note_ring *r, size_t bytes);
bool note_ring_commit(struct note_ring *r, size_t bytes);

/* The reader's side: the oldest record, valid until it is popped; NULL when there is none. */
const void *note_ring_peek(struct note_ring *r);
void note_ring_pop(struct note_ring *r);

#endif
