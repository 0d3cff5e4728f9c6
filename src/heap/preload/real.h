/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The functions that ours stand in front of: the next ones in the order in which the loader looks for symbols, whoever
 * has them (libc, or an allocator that the program was linked with or that comes later in LD_PRELOAD).
 *
 * Looking for them may itself allocate. Those calls get memory of a small pool, whose blocks are known by their address
 * and never go to an allocator.
 */
#ifndef SONDE_HEAP_PRELOAD_REAL_H
#define SONDE_HEAP_PRELOAD_REAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct real {
	void *(*malloc)(size_t);
	void (*free)(void *);
	void *(*calloc)(size_t, size_t);
	void *(*realloc)(void *, size_t);
	void *(*memalign)(size_t, size_t);
	int (*posix_memalign)(void **, size_t, size_t);
	void *(*aligned_alloc)(size_t, size_t);
	void *(*valloc)(size_t);
	void *(*pvalloc)(size_t);
	size_t (*usable_size)(void *);
	void (*free_sized)(void *, size_t);                  /* NULL: not there, as in most libcs */
	void (*free_aligned_sized)(void *, size_t, size_t);
	void *(*dlopen)(const char *, int);
	void *(*dlmopen)(long, const char *, int);
	int (*dlclose)(void *);
	int (*mlockall)(int);
	bool nests; /* calloc calls malloc as programs do, and so is seen there (musl) */
};
extern struct real real;

struct thread;
bool real_search(struct thread *t);

/* Finds them all when nobody has. False: this is a call from within the search, the pool has to serve it. */
static inline bool real_ready(struct thread *t)
{
	return __atomic_load_n((void **)&real.malloc, __ATOMIC_ACQUIRE) != NULL || real_search(t);
}

#define POOL_BYTES 65536u
extern uint8_t pool[POOL_BYTES];

static inline bool pool_has(const void *p)
{
	return (uintptr_t)p - (uintptr_t)pool < POOL_BYTES;
}

/* Zeroed. NULL: the pool is used up. `alignment`: a power of two, at most 4096. Blocks are never used again. */
void *pool_take(size_t alignment, size_t size);
size_t pool_size(const void *p);

#endif
