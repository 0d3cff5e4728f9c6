/* SPDX-License-Identifier: BSD-2-Clause */
/* The target's side of heap/share.h, plain: for tests and benchmarks of the side that reads. */
#ifndef SONDE_TESTS_UNIT_HEAP_WRITER_H
#define SONDE_TESTS_UNIT_HEAP_WRITER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "heap/share.h"

struct shared {
	int fd;
	uint8_t *memory;
	struct share_header *header;
};

#if defined(__aarch64__)
#define SHARED_ARCH 1
#else
#define SHARED_ARCH 0
#endif

static inline struct shared shared_new(uint32_t mode, uint32_t clock)
{
	struct shared s = {.fd = memfd_create("target", MFD_CLOEXEC | MFD_ALLOW_SEALING)};

	if (s.fd < 0 || ftruncate(s.fd, (off_t)SHARE_BYTES))
		abort();
	s.memory = mmap(NULL, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, s.fd, 0);
	if (s.memory == MAP_FAILED)
		abort();
	s.header = (struct share_header *)(void *)s.memory;
	*s.header = (struct share_header){
		.magic = SHARE_MAGIC,
		.version = SHARE_VERSION,
		.mode = mode,
		.clock = clock,
		.ready = 1,
		.pid = 42,
		.arch = SHARED_ARCH,
		.bytes = SHARE_BYTES,
		.chunk_limit = SHARE_CHUNKS - 1,
	};
	return s;
}

static inline void shared_free(struct shared *s)
{
	munmap(s->memory, SHARE_BYTES);
	close(s->fd);
}

static inline struct share_ring *shared_rings(const struct shared *s)
{
	return (struct share_ring *)(void *)(s->memory + SHARE_RINGS_AT);
}

static inline struct share_node *shared_nodes(const struct shared *s)
{
	return (struct share_node *)(void *)(s->memory + SHARE_NODES_AT);
}

static inline struct share_chunk *shared_chunk_at(const struct shared *s, uint32_t chunk)
{
	return (struct share_chunk *)(void *)(s->memory + SHARE_CHUNKS_AT + (uint64_t)chunk * SHARE_CHUNK_BYTES);
}

/* A free chunk; 0: there is none. */
static inline uint32_t shared_take_chunk(struct shared *s)
{
	uint64_t list = __atomic_load_n(&s->header->free_chunks, __ATOMIC_ACQUIRE);
	uint32_t chunk;

	while ((chunk = (uint32_t)list)) {
		uint32_t next = __atomic_load_n(&shared_chunk_at(s, chunk)->next, __ATOMIC_RELAXED);

		if (__atomic_compare_exchange_n(&s->header->free_chunks, &list, ((list >> 32) + 1) << 32 | next, false,
			    __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE))
			break;
	}
	if (!chunk) {
		chunk = __atomic_add_fetch(&s->header->chunk_count, 1, __ATOMIC_RELAXED);
		if (chunk > __atomic_load_n(&s->header->chunk_limit, __ATOMIC_RELAXED))
			return 0;
	}
	__atomic_store_n(&shared_chunk_at(s, chunk)->used, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shared_chunk_at(s, chunk)->next, 0, __ATOMIC_RELAXED);
	return chunk;
}

struct writer {
	struct shared *s;
	uint32_t ring, chunk, used;
};

static inline struct writer writer_claim(struct shared *s, uint32_t tid)
{
	struct writer w = {.s = s};
	uint32_t count = __atomic_load_n(&s->header->ring_count, __ATOMIC_ACQUIRE), was = SHARE_RING_RELEASED;
	struct share_ring *r = shared_rings(s);

	for (w.ring = 0; w.ring < count; w.ring++, was = SHARE_RING_RELEASED)
		if (__atomic_compare_exchange_n(&r[w.ring].state, &was, SHARE_RING_OWNED, false, __ATOMIC_ACQ_REL,
			    __ATOMIC_RELAXED))
			break;
	if (w.ring == count)
		w.ring = __atomic_fetch_add(&s->header->ring_count, 1, __ATOMIC_ACQ_REL);
	r += w.ring;
	__atomic_store_n(&r->tid, tid, __ATOMIC_RELAXED);
	__atomic_store_n(&r->state, SHARE_RING_OWNED, __ATOMIC_RELEASE);
	w.chunk = __atomic_load_n(&r->last, __ATOMIC_RELAXED);
	if (!w.chunk) {
		w.chunk = shared_take_chunk(s);
		__atomic_store_n(&r->last, w.chunk, __ATOMIC_RELAXED);
		__atomic_store_n(&r->first, w.chunk, __ATOMIC_RELEASE);
	}
	w.used = __atomic_load_n(&shared_chunk_at(s, w.chunk)->used, __ATOMIC_RELAXED);
	return w;
}

static inline void writer_release(struct writer *w)
{
	__atomic_store_n(&shared_rings(w->s)[w->ring].state, SHARE_RING_RELEASED, __ATOMIC_RELEASE);
}

/* Words of whole events. False: there was no chunk, and it is counted. */
static inline bool writer_put(struct writer *w, const uint64_t *words, uint32_t count)
{
	struct share_chunk *c = shared_chunk_at(w->s, w->chunk);

	if (w->used + count * 8 > SHARE_CHUNK_ROOM) {
		uint32_t next = shared_take_chunk(w->s);

		if (!next) {
			__atomic_fetch_add(&w->s->header->lost[SHARE_LOST_CHUNK], 1, __ATOMIC_RELAXED);
			return false;
		}
		__atomic_store_n(&shared_rings(w->s)[w->ring].last, next, __ATOMIC_RELAXED);
		__atomic_store_n(&c->next, next, __ATOMIC_RELEASE);
		w->chunk = next;
		w->used = 0;
		c = shared_chunk_at(w->s, next);
	}
	memcpy((uint8_t *)(c + 1) + w->used, words, count * 8);
	w->used += count * 8;
	__atomic_store_n(&c->used, w->used, __ATOMIC_RELEASE);
	return true;
}

#define writer_event(w, ...)                                                                                           \
	({                                                                                                             \
		const uint64_t words_[] = {__VA_ARGS__};                                                               \
		writer_put((w), words_, sizeof(words_) / 8);                                                           \
	})

static inline bool writer_alloc(struct writer *w, uint64_t time, uint64_t address, uint32_t node, uint64_t size)
{
	return writer_event(w, time, SHARE_WORD(SHARE_ALLOC, address), SHARE_STACK_AND_SIZE(node, size));
}

static inline bool writer_free(struct writer *w, uint64_t time, uint64_t address)
{
	return writer_event(w, time, SHARE_WORD(SHARE_FREE, address));
}

#endif
