/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/intern.h"

#include <string.h>

#include "base/hash.h"

#define CHUNK_BYTES ((size_t)64 * 1024)

/* The slot that holds these bytes, or the empty one where they belong. */
static uint32_t *find_slot(const struct intern *t, const void *bytes, size_t len, uint64_t hash)
{
	size_t mask = t->slot_count - 1;

	for (size_t i = hash & mask;; i = (i + 1) & mask) {
		uint32_t *slot = &t->slots[i];

		if (!*slot)
			return slot;
		const struct intern_entry *e = &t->entries.data[*slot - 1];
		if (e->hash == hash && e->len == len && !memcmp(e->bytes, bytes, len))
			return slot;
	}
}

static int grow_slots(struct intern *t)
{
	size_t count = t->slot_count ? t->slot_count * 2 : 64;
	uint32_t *slots = calloc(count, sizeof(*slots));

	if (!slots)
		return -ENOMEM;
	for (size_t id = 0; id < t->entries.len; id++) {
		size_t i = t->entries.data[id].hash & (count - 1);
		while (slots[i])
			i = (i + 1) & (count - 1);
		slots[i] = (uint32_t)id + 1;
	}
	free(t->slots);
	t->slots = slots;
	t->slot_count = count;
	return 0;
}

static char *store(struct intern *t, const void *bytes, size_t len)
{
	if (len + 1 > t->chunk_cap - t->chunk_used) {
		size_t cap = len + 1 > CHUNK_BYTES ? len + 1 : CHUNK_BYTES;
		char *chunk = malloc(cap);

		if (!chunk)
			return NULL;
		if (vec_push(&t->chunks, chunk)) {
			free(chunk);
			return NULL;
		}
		t->chunk_cap = cap;
		t->chunk_used = 0;
	}
	char *at = t->chunks.data[t->chunks.len - 1] + t->chunk_used;

	if (len)
		memcpy(at, bytes, len);
	at[len] = '\0';
	t->chunk_used += len + 1;
	return at;
}

uint32_t intern_add(struct intern *t, const void *bytes, size_t len)
{
	if (len == SIZE_MAX || t->entries.len >= INTERN_NONE - 1)
		return INTERN_NONE;
	if (t->entries.len * 4 >= t->slot_count * 3 && grow_slots(t))
		return INTERN_NONE;

	uint64_t hash = hash_bytes(bytes, len);
	uint32_t *slot = find_slot(t, bytes, len, hash);

	if (*slot)
		return *slot - 1;
	if (vec_reserve(&t->entries, t->entries.len + 1))
		return INTERN_NONE;

	const char *stored = store(t, bytes, len);

	if (!stored)
		return INTERN_NONE;
	t->entries.data[t->entries.len++] = (struct intern_entry){stored, len, hash};
	*slot = (uint32_t)t->entries.len;
	return *slot - 1;
}

uint32_t intern_str(struct intern *t, const char *s)
{
	return intern_add(t, s, strlen(s));
}

uint32_t intern_find(const struct intern *t, const void *bytes, size_t len)
{
	if (!t->slot_count)
		return INTERN_NONE;

	uint32_t *slot = find_slot(t, bytes, len, hash_bytes(bytes, len));

	return *slot ? *slot - 1 : INTERN_NONE;
}

const char *intern_get(const struct intern *t, uint32_t id, size_t *ret_len)
{
	if (ret_len)
		*ret_len = t->entries.data[id].len;
	return t->entries.data[id].bytes;
}

void intern_release(struct intern *t)
{
	vec_each(&t->chunks, chunk)
		free(*chunk);
	vec_release(&t->chunks);
	vec_release(&t->entries);
	free(t->slots);
	*t = (struct intern){0};
}
