/* SPDX-License-Identifier: BSD-2-Clause */
/* Memory as a watched program shares it, for tests of the preload's parts: no collector, no file. */
#ifndef SONDE_TESTS_UNIT_PRELOAD_WORLD_H
#define SONDE_TESTS_UNIT_PRELOAD_WORLD_H

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "heap/preload/preload.h"

static uint32_t world_alive;

static inline void world_begin(uint32_t mode, uint64_t rate)
{
	uint8_t *at = mmap(NULL, SHARE_TABLES_AT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
		0);

	if (at == MAP_FAILED)
		abort();
	memset(&preload, 0, sizeof(preload));
	memset(&thread, 0, sizeof(thread));
	preload.memory.header = (struct share_header *)(void *)at;
	preload.filter_counts = at + SHARE_FILTER_AT;
	preload.rings = (struct share_ring *)(void *)(at + SHARE_RINGS_AT);
	preload.chunks = at + SHARE_CHUNKS_AT;
	preload.memory.index = (uint32_t *)(void *)(at + SHARE_INDEX_AT);
	preload.memory.nodes = (struct share_node *)(void *)(at + SHARE_NODES_AT);
	preload.memory.header->node_count = SHARE_STACK_FIRST;
	preload.memory.header->rate = rate;
	preload.memory.header->chunk_limit = SHARE_CHUNKS - 1;
	preload.alive = &world_alive;
	world_alive = 1;
	preload.mode = mode;
	preload.generation = thread.generation = 1;
	preload.state = PRELOAD_ON;
}

static inline void world_end(void)
{
	munmap(preload.memory.header, SHARE_TABLES_AT);
	memset(&preload, 0, sizeof(preload));
	memset(&thread, 0, sizeof(thread));
}

/* A ring for this thread, whose stacks are of no interest. */
static inline void world_claim(void)
{
	if (!thread_claim(&thread))
		abort();
	thread.walk = NULL;
}

/* As a collector gives a chunk back. */
static inline void world_give_back(uint32_t index)
{
	uint64_t *list = &preload.memory.header->free_chunks, old = __atomic_load_n(list, __ATOMIC_ACQUIRE);

	do
		__atomic_store_n(&chunk_at(index)->next, (uint32_t)old, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(list, &old, ((old >> 32) + 1) << 32 | index, false, __ATOMIC_ACQ_REL,
		__ATOMIC_ACQUIRE));
}

#endif
