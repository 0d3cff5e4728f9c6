/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stack memory that was read right after a sample, on its way from the thread that read it to the
 * one that unwinds: a queue with one writer and one reader, without locks.
 *
 *	writer                                  reader
 *	early_store_reserve(room)               early_store_find(position)
 *	  fills in what reserve gave              borrowed until
 *	early_store_publish()                   early_store_drop(position)
 *
 * Entries are known by the position of their sample in its ring. A writer that finds no room leaves
 * the sample without.
 */
#ifndef SONDE_SAMPLE_PERF_EARLY_STORE_H
#define SONDE_SAMPLE_PERF_EARLY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EARLY_STORE_BYTES ((size_t)1 << 20)

/* [start, start + size) of the thread's memory as it stood at read_ns; behind it in `bytes` a piece of
 * another stack, which may be empty. */
struct early_entry {
	uint64_t position, read_ns, start, other_start;
	uint32_t size, other_size;
	uint32_t room; /* bytes that follow; with them an entry is a multiple of its header's size */
	uint32_t pad[5];
	uint8_t bytes[];
};

_Static_assert(EARLY_STORE_BYTES % sizeof(struct early_entry) == 0, "what is left holds a header");

struct early_store {
	uint8_t *bytes;
	uint64_t head, tail; /* counted through: written by the writer, by the reader */
	uint64_t next_head;  /* the writer's, between reserve and publish */
};

int early_store_init(struct early_store *q); /* 0 or -ENOMEM */
void early_store_release(struct early_store *q);

/* Room for `room` bytes, NULL when there is none. `size` is to be set to those that count. */
struct early_entry *early_store_reserve(struct early_store *q, size_t room);
void early_store_publish(struct early_store *q);

/* Whether it is half full, or more. Of the writer. */
bool early_store_is_filling(const struct early_store *q);

/* The entry of that sample, NULL when there is none. */
const struct early_entry *early_store_find(const struct early_store *q, uint64_t position);
/* Forgets the oldest entries, up to the first one of a later sample than that. */
void early_store_drop(struct early_store *q, uint64_t position);

#endif
