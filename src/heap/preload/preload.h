/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the files of the preload share: libsonde-heap.so, which is loaded into watched programs, stands in front of their
 * allocator and writes down what it is asked for (heap/share.h). docs/HEAP-PRELOAD.md tells why it is as it is.
 *
 * Rules for all code here. It runs inside malloc of programs that know nothing of it, in any thread, from before the first
 * constructor to after the last destructor, in signal handlers and after fork. So it allocates nothing, takes no lock,
 * waits only at the places that share.h names and never for long, leaves errno as it was, and works with all of its
 * memory zero. Without a collector it does nothing at all, for ever.
 */
#ifndef SONDE_HEAP_PRELOAD_PRELOAD_H
#define SONDE_HEAP_PRELOAD_PRELOAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/preload/walk.h"
#include "heap/share.h"

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

enum preload_state {
	PRELOAD_NEW = 0, /* nobody has looked for a collector yet */
	PRELOAD_STARTING, /* somebody does */
	PRELOAD_ON,
	PRELOAD_OFF, /* there is none, or not any more; this is left by being attached (again) alone */
};

/* Of the process. What hooks read with each call comes first. */
struct preload {
	/* Blocks whose counter is 0 are of no interest when they are freed. NULL: all may be, ask. */
	const uint8_t *filter;
	uint64_t size_mask;      /* what of a block's size its call costs: all, or nothing */
	uint32_t state;          /* enum preload_state */
	uint32_t mode;           /* enum share_mode */
	const uint32_t *alive;   /* `generation` in the process that has started, 0 in a forked child of it; NULL: never */
	uint32_t generation;     /* + 1 with each start, so not 0: what threads know of an older one is void */
	uint32_t clock, options;
	bool plain;              /* on, exact, by the CPU's counter, and frees have no stacks: most questions in one */
	bool tells_sizes;        /* of blocks that malloc makes (SHARE_SIZES_TOLD) */
	uint32_t early;          /* calls that came too early */
	bool attached;           /* to a program that was running: it may end, and begin again */
	bool has_key;            /* `key` is there: threads tell when they end */
	uint32_t key;            /* pthread_key_t */
	uint64_t idle_list;      /* the header's free_chunks when a ring grew last */
	uint64_t idle_since_ns;  /* since when it is the same; 0: it was not, the last time */
	struct walk_memory memory;
	struct share_ring *rings;
	uint8_t *filter_counts;
	uint8_t *chunks;
	struct walk_state *walks[SHARE_RINGS]; /* of the thread that owns the ring, */
	uint32_t walkers[SHARE_RINGS];         /* and its tid */
};
extern struct preload preload;

/* Of a thread; zero at first. */
struct thread {
	int64_t left;            /* bytes or calls until the next sampled one; <= 0: this call is it, or ask */
	uint64_t random;         /* 0: nothing was drawn yet */
	struct share_chunk *chunk; /* of its ring's, the last one; NULL: it has no ring */
	struct walk_state *walk;
	uint64_t rate;           /* that `left` was drawn with */
	uint64_t told_rate;      /* that the ring says */
	uint64_t last;           /* address of the last sampled block */
	int64_t last_left;       /* what `left` was then: it still is when the thread has not allocated since */
	uint64_t cpu_ns;         /* at the end of the last sampled call */
	int64_t drawn;           /* what `left` was after the last draw */
	uint32_t generation;     /* of the process that the above belongs to */
	uint32_t used;           /* bytes in `chunk` */
	uint32_t ring;           /* 1 + its number; 0: none */
	uint8_t busy;            /* we are at work: calls from within (signal handlers, the allocator itself) pass through */
	uint8_t ended;           /* its destructors have run: rings are borrowed for one event */
	uint8_t rounds;          /* of destructors that were seen */
};
extern __thread struct thread thread;

#define PRELOAD_EXPORT __attribute__((visibility("default"), used))

static inline void preload_lost(enum share_loss what)
{
	struct share_header *h = preload.memory.header;

	if (h)
		__atomic_fetch_add(&h->lost[what], 1, __ATOMIC_RELAXED);
}

/* ---- start.c ---- */

/* Looks for a collector when nobody did. True: events of this thread can be written. */
bool preload_ready(struct thread *t);

/* Nothing is written any more, in no thread, for ever. */
void preload_off(void);

/* The same, because nobody reads any more; the memory is given back. */
void preload_give_up(void);

/* Whether a limit on address space leaves too little for the program beside what is mapped here. */
bool preload_needs_room(uint64_t limit_bytes);

/* Whether there are more filters of system calls than a program of the collector's has. filters.c. */
bool preload_in_sandbox(uint64_t options);

/* Waits until the collector knows the code that is mapped now, at most so long. */
void preload_wait(uint32_t milliseconds);

/* Of a program that is attached to, where the real functions are known: memory as `text` (the value of
 * SHARE_ENVIRONMENT) wishes it. Its descriptor; -EBUSY, -EINVAL, -ENOMEM. Nothing is written before preload_shared_on(). */
int preload_share(const char *text);
void preload_shared_on(void);

/* The end of that. Threads that are still writing do so to memory that nobody reads. */
void preload_unshare(void);

/* ---- thread.c ---- */

/* Gives the thread a ring, with its name as the first event. False: there is none. */
bool thread_claim(struct thread *t);
void thread_release(struct thread *t);

/* Before the memory is shared with another collector. */
void thread_leave_walks(void);
void thread_ended(void *value); /* of `preload.key` */

/* ---- ring.c ---- */

uint32_t chunk_take(void); /* 0: there is none */

static inline struct share_chunk *chunk_at(uint32_t index)
{
	return (struct share_chunk *)(void *)(preload.chunks + (uint64_t)index * SHARE_CHUNK_BYTES);
}

#endif
