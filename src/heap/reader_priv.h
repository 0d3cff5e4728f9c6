/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files of the reader:
 *
 *	reader.c  the set; what is mapped, and what was checked of it
 *	chunks.c  a ring's list of chunks: going on in it, giving chunks back
 *	events.c  the next event of one ring
 *	merge.c   the rings of all processes in order of time
 */
#ifndef SONDE_HEAP_READER_PRIV_H
#define SONDE_HEAP_READER_PRIV_H

#include "base/cleanup.h"
#include "base/vec.h"
#include "heap/counter.h"
#include "heap/reader.h"

/* What we know of a chunk, 16 bits. */
#define NOTE_READ 0x8000u    /* a ring is being read there */
#define NOTE_KEPT 0x4000u    /* it was given back, and we keep it (`kept`) */
#define NOTE_DEPTH 0x3fffu   /* in the list of free chunks: how many there are up to it, it included */

struct ring {
	uint32_t chunk;       /* that is being read; 0: the ring has none yet */
	uint32_t at, used;    /* bytes in it: read, and known to be there */
	const uint8_t *bytes; /* of the chunk */
	uint32_t tid;
	bool abandoned;
	uint64_t rate;
	uint64_t last, last_ns; /* time of the event before, by the target's clock and by ours */
	uint64_t head_ns;     /* of the event at `at` */
	uint8_t *raw;         /* of the event that comes next: struct share_raw_stack and what follows; owned */
};

struct process {
	uint32_t number, pid;
	struct heap_header header;
	uint8_t *memory;      /* SHARE_BYTES, shared with the target */
	VEC(struct ring) rings; /* by their descriptors */
	VEC(uint16_t) notes;  /* by chunk: NOTE_... */
	VEC(uint32_t) kept;   /* chunks without memory; given back when the target runs out of them */
	struct heap_losses losses;
};

struct turn {
	uint64_t ns;
	uint32_t slot, ring;
};

struct heap_readers {
	const struct heap_reader_ops *ops;
	void *ctx;
	struct counter counter;
	bool uses_counter;    /* one of the processes does */
	struct process *processes[HEAP_PROCESSES];
	uint16_t used_before[HEAP_PROCESSES]; /* upper half of the next number of a slot */
	uint32_t slot_count;  /* slots in use are below */

	/* A drain. */
	uint64_t until_ns;
	uint64_t last_ns;     /* of the last event that was handed over */
	VEC(struct turn) turns; /* a heap: rings that have something, the earliest first */
	struct heap_event batch[HEAP_BATCH];
	uint32_t batched;
	struct heap_event_more more;
	uint8_t *raw;         /* that `more` points at */
	char text[SHARE_CHUNK_ROOM + 8]; /* the same */
	uint64_t bytes;
};

static inline struct share_header *shared_header(const struct process *p)
{
	return (struct share_header *)(void *)p->memory;
}

static inline struct share_chunk *shared_chunk(const struct process *p, uint32_t chunk)
{
	return (struct share_chunk *)(void *)(p->memory + SHARE_CHUNKS_AT + (uint64_t)chunk * SHARE_CHUNK_BYTES);
}

/* Loads that happen once, whatever the compiler thinks: the target may change it meanwhile. */
#define shared_load(p) __atomic_load_n((p), __ATOMIC_RELAXED)
#define shared_acquire(p) __atomic_load_n((p), __ATOMIC_ACQUIRE)

/* chunks.c */

/* Has `r` an event? Goes on to the next chunk where one has ended. */
bool ring_fill(struct process *p, struct ring *r);
/* It makes no sense: counted, and not read any more. */
void ring_abandon(struct process *p, struct ring *r);
/* Chunks that we keep go back where the target needs them. */
void chunks_return(struct process *p);
/* Takes the first chunk of a ring. False: there is none yet. */
bool ring_start(struct process *p, struct ring *r, uint32_t first);

/* events.c */

static inline const uint64_t *ring_words(const struct ring *r)
{
	return (const uint64_t *)(const void *)(r->bytes + r->at);
}

/* As ring_head(), of a time that needs a second look. */
bool ring_odd_head(struct heap_readers *set, struct process *p, struct ring *r, uint64_t time, uint64_t ns);

/* Sets `head_ns` of the event at `at`. False: it is not to be handed over yet. */
static inline bool ring_head(struct heap_readers *set, struct process *p, struct ring *r)
{
	uint64_t time = shared_load(ring_words(r));
	uint64_t ns = p->header.clock == SHARE_CLOCK_COUNTER ? counter_ns(&set->counter, time) : time;

	if (time < r->last || ns < r->last_ns || ns > set->until_ns)
		return ring_odd_head(set, p, r, time, ns);
	r->last = time;
	r->head_ns = ns;
	return true;
}

enum event_result {
	EVENT_NONE,  /* it is a part of others */
	EVENT_PLAIN,
	EVENT_MORE,  /* set->more belongs to it: it has to be handed over before the next one is taken */
	EVENT_WRONG, /* it makes no sense */
};
/* The event at `at`, and `at` goes on behind it. */
enum event_result ring_event(struct heap_readers *set, struct process *p, struct ring *r, struct heap_event *ret);

/* The same of nearly all of them, faster. False: it is another one, and nothing was done. */
static inline bool ring_usual_event(struct heap_readers *set, const struct process *p, struct ring *r, struct heap_event *ret)
{
	const uint64_t *words = ring_words(r);
	uint32_t left = r->used - r->at, bytes = 16;
	uint64_t word, both = 0;

	if (left < bytes)
		return false;
	word = shared_load(&words[1]);
	if (SHARE_TYPE(word) == SHARE_ALLOC) {
		bytes = 24;
		if (left < bytes || r->raw)
			return false;
		both = shared_load(&words[2]);
		if ((uint32_t)both == SHARE_LARGE || both >> 32 >= SHARE_NODES)
			return false;
	} else if (SHARE_TYPE(word) != SHARE_FREE) {
		return false;
	}
	ret->time_ns = r->head_ns;
	ret->address = SHARE_ADDRESS(word);
	ret->size = (uint32_t)both;
	ret->rate = r->rate;
	ret->process = p->number;
	ret->tid = r->tid;
	ret->node = (uint32_t)(both >> 32);
	ret->type = SHARE_TYPE(word);
	ret->more = NULL;
	r->at += bytes;
	r->last_ns = r->head_ns;
	set->bytes += bytes;
	return true;
}

#endif
