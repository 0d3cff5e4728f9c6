/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A hash table of ids: finds the id of a thing that stands in an array of the caller.
 *
 * The table holds four bytes a slot and nothing of the things themselves: the caller hashes,
 * compares and stores. At most three quarters of the slots are in use. All-zero is the empty table.
 *
 *	struct id_probe probe = id_probe_start(&table, hash);
 *	while (id_probe_next(&table, &probe))
 *		if (things[probe.id] is the one)
 *			return probe.id;
 *	// not there; after id_table_reserve() a new one goes in with id_table_add()
 */
#ifndef SONDE_CAPTURE_ID_TABLE_H
#define SONDE_CAPTURE_ID_TABLE_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

struct id_table {
	uint32_t *slots; /* id + 1, 0 = empty */
	size_t slot_count; /* a power of two, or 0 */
	size_t used;
};

struct id_probe {
	size_t at;
	uint32_t id;
};

static inline struct id_probe id_probe_start(const struct id_table *t, uint64_t hash)
{
	return (struct id_probe){.at = t->slot_count ? hash & (t->slot_count - 1) : 0};
}

static inline bool id_probe_next(const struct id_table *t, struct id_probe *probe)
{
	if (!t->slot_count || !t->slots[probe->at])
		return false;
	probe->id = t->slots[probe->at] - 1;
	probe->at = (probe->at + 1) & (t->slot_count - 1);
	return true;
}

/* There must be room: id_table_reserve() first. */
static inline void id_table_add(struct id_table *t, uint64_t hash, uint32_t id)
{
	size_t i = hash & (t->slot_count - 1);

	while (t->slots[i])
		i = (i + 1) & (t->slot_count - 1);
	t->slots[i] = id + 1;
	t->used++;
}

/* Room for one more; `hash_of` gives the hash of an id that is in the table. 0 or -ENOMEM. */
static inline int id_table_reserve(
	struct id_table *t, uint64_t (*hash_of)(const void *ctx, uint32_t id), const void *ctx)
{
	if ((t->used + 1) * 4 <= t->slot_count * 3)
		return 0;

	size_t count = t->slot_count ? t->slot_count * 2 : 64;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;

	struct id_table grown = {.slots = slots, .slot_count = count};

	for (size_t i = 0; i < t->slot_count; i++)
		if (t->slots[i])
			id_table_add(&grown, hash_of(ctx, t->slots[i] - 1), t->slots[i] - 1);
	free(t->slots);
	*t = grown;
	return 0;
}

static inline void id_table_release(struct id_table *t)
{
	free(t->slots);
	*t = (struct id_table){0};
}

#endif
