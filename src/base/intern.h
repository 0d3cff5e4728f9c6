/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Interning: equal byte strings get equal small numbers.
 *
 * Ids count up from 0 in order of first appearance and never change. Strings may hold any bytes;
 * each is stored with a NUL after it. Stored bytes never move: a pointer from intern_get() stays
 * valid until intern_release(). All-zero is the empty table. Not thread-safe.
 */
#ifndef SONDE_BASE_INTERN_H
#define SONDE_BASE_INTERN_H

#include <stddef.h>
#include <stdint.h>

#include "base/vec.h"

struct intern_entry {
	const char *bytes;
	size_t len;
	uint64_t hash;
};

struct intern {
	VEC(struct intern_entry) entries; /* by id */
	uint32_t *slots;                  /* open addressing; id + 1, 0 = empty */
	size_t slot_count;                /* a power of two, or 0 */
	VEC(char *) chunks;               /* the bytes */
	size_t chunk_used, chunk_cap;     /* of the last chunk */
};

#define INTERN_NONE UINT32_MAX

/* The id of these bytes, added when new. INTERN_NONE when out of memory (nothing changed then). */
uint32_t intern_add(struct intern *t, const void *bytes, size_t len);
uint32_t intern_str(struct intern *t, const char *s);

/* The id, or INTERN_NONE when the bytes were never added. */
uint32_t intern_find(const struct intern *t, const void *bytes, size_t len);

/* The bytes of an id that intern_add() returned; `ret_len` may be NULL. */
const char *intern_get(const struct intern *t, uint32_t id, size_t *ret_len);

static inline size_t intern_count(const struct intern *t)
{
	return t->entries.len;
}

/* Memory held, about. */
static inline size_t intern_bytes(const struct intern *t)
{
	return t->chunks.len * ((size_t)64 << 10) + t->entries.len * sizeof(*t->entries.data) +
		t->slot_count * sizeof(*t->slots);
}

void intern_release(struct intern *t);

#endif
