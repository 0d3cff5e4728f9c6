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
	void *(*mmap)(void *, size_t, int, int, int, off_t);
	void *(*mmap64)(void *, size_t, int, int, int, off_t); /* the same: offsets have 64 bits */
	int (*munmap)(void *, size_t);
	void *(*mremap)(void *, size_t, size_t, int, ...);
	int (*brk)(void *);
	void *(*sbrk)(intptr_t);
	uint64_t low, high; /* [low, high): the object file that `malloc` is in; empty: not known */
	uint32_t sizes;     /* enum share_sizes: what is known of `malloc` */
	int (*prctl)(int, unsigned long, unsigned long, unsigned long, unsigned long);
#if defined(__x86_64__)
	long (*syscall)(long, long, long, long, long, long); /* the seventh lies on the stack */
#else
	long (*syscall)(long, long, long, long, long, long, long);
#endif
	bool nests; /* calloc calls malloc as programs do, and so is seen there (musl) */
};
extern struct real real;

struct thread;
bool real_search(struct thread *t);

/* Sets `low`, `high` and `sizes`, when `malloc` is known. It asks the loader: not from within malloc, but for the first call. */
void real_find_object(void);

/* The allocator's own code: what it maps it hands out again. */
static inline bool real_has(uint64_t address)
{
	return address - real.low < real.high - real.low;
}

/* Whether they are known. What an allocator calls asks this and does not search: one that is part of the program maps memory and
 * reads files while it begins, under its lock, and the search would ask it for memory. */
static inline bool real_known(void)
{
	return __atomic_load_n((void **)&real.malloc, __ATOMIC_ACQUIRE) != NULL;
}

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
