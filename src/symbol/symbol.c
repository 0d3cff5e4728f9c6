/* SPDX-License-Identifier: BSD-2-Clause */
/* What all sources share: the cache of answers, kept strings, words for reasons. */
#include "symbol/symbol.h"

#include <string.h>

#include "base/hash.h"
#include "symbol/symbol_priv.h"

#define LEVELS_A_CHUNK 1024

const char *symbol_reason_text(enum symbol_reason reason)
{
	switch (reason) {
	case SYMBOL_OK:
		return "named";
	case SYMBOL_NEAREST:
		return "nearest symbol";
	case SYMBOL_NO_SYMBOLS:
		return "stripped";
	case SYMBOL_NO_FILE:
		return "file not readable";
	case SYMBOL_ANONYMOUS:
		return "anonymous memory";
	case SYMBOL_NOT_MAPPED:
		return "not mapped";
	case SYMBOL_REFUSED:
		return "hidden by the system";
	}
	return "unknown";
}

static struct number_slot *number_slot(const struct number_map *m, uint64_t key)
{
	size_t i = hash_u64(key) & (m->slot_count - 1);

	while (m->slots[i].value && m->slots[i].key != key)
		i = (i + 1) & (m->slot_count - 1);
	return &m->slots[i];
}

uint64_t number_map_get(const struct number_map *m, uint64_t key)
{
	return m->slot_count ? number_slot(m, key)->value : 0;
}

static int number_map_grow(struct number_map *m)
{
	struct number_map bigger = {.slot_count = m->slot_count ? 2 * m->slot_count : 64};

	bigger.slots = calloc(bigger.slot_count, sizeof(*bigger.slots));
	if (!bigger.slots)
		return -ENOMEM;
	bigger.used = m->used;
	for (size_t i = 0; i < m->slot_count; i++)
		if (m->slots[i].value)
			*number_slot(&bigger, m->slots[i].key) = m->slots[i];
	free(m->slots);
	*m = bigger;
	return 0;
}

int number_map_put(struct number_map *m, uint64_t key, uint64_t value)
{
	if (4 * (m->used + 1) > 3 * m->slot_count && number_map_grow(m))
		return -ENOMEM;
	struct number_slot *slot = number_slot(m, key);

	m->used += !slot->value;
	*slot = (struct number_slot){key, value};
	return 0;
}

void number_map_release(struct number_map *m)
{
	free(m->slots);
	*m = (struct number_map){0};
}

const char *symbol_keep(struct symbol_source *s, const char *text)
{
	uint32_t id = intern_str(&s->strings, text);

	return id == INTERN_NONE ? NULL : intern_get(&s->strings, id, NULL);
}

/* "name@VERSION" and "name@@VERSION" are how .symtab spells versioned symbols; "name@plt" is
 * ours. */
static size_t length_without_version(const char *name)
{
	const char *at = strchr(name, '@');

	return at && at > name && strcmp(at, "@plt") ? (size_t)(at - name) : strlen(name);
}

static const char *make_shown_name(struct symbol_source *s, const char *name, size_t len)
{
	const char *kept = name;

	if (name[len]) {
		uint32_t id = intern_add(&s->strings, name, len);
		kept = id == INTERN_NONE ? name : intern_get(&s->strings, id, NULL);
	}
	char *plain = symbol_demangle(kept);

	if (plain && strcmp(plain, kept)) {
		const char *interned = symbol_keep(s, plain);
		kept = interned ? interned : kept;
	}
	free(plain);
	return kept;
}

static const char *shown_name(struct symbol_source *s, const char *name, size_t len)
{
	uint64_t known = number_map_get(&s->demangled, (uintptr_t)name);

	if (known)
		return (const char *)(uintptr_t)known;
	const char *shown = make_shown_name(s, name, len);

	(void)number_map_put(&s->demangled, (uintptr_t)name, (uintptr_t)shown);
	return shown;
}

const char *symbol_shown_name(struct symbol_source *s, const char *name)
{
	return shown_name(s, name, length_without_version(name));
}

const char *symbol_shown_name_whole(struct symbol_source *s, const char *name)
{
	return shown_name(s, name, strlen(name));
}

/* Room for `count` levels that never moves. */
static struct symbol_level *new_levels(struct symbol_source *s, size_t count)
{
	if (s->level_room < count) {
		struct symbol_level *chunk = calloc(LEVELS_A_CHUNK, sizeof(*chunk));

		if (!chunk || vec_push(&s->level_chunks, chunk)) {
			free(chunk);
			return NULL;
		}
		s->level_room = LEVELS_A_CHUNK;
	}
	struct symbol_level *last = s->level_chunks.data[s->level_chunks.len - 1];
	struct symbol_level *at = last + LEVELS_A_CHUNK - s->level_room;

	s->level_room -= count;
	return at;
}

static struct symbol_answer answer_of(const struct known_answer *k)
{
	return (struct symbol_answer){k->levels, k->count, (enum symbol_reason)k->reason};
}

struct symbol_answer symbol_resolve(struct symbol_source *s, uint64_t address)
{
	uint64_t known = number_map_get(&s->answers, address);

	if (known)
		return answer_of(&s->known.data[known - 1]);

	struct symbol_level levels[SYMBOL_MAX_LEVELS];
	enum symbol_reason reason = SYMBOL_NO_SYMBOLS;
	size_t count = s->ops->resolve(s, address, levels, &reason);
	struct symbol_level *kept = count ? new_levels(s, count) : NULL;
	struct known_answer k = {kept, kept ? (uint32_t)count : 0, reason};

	if (count && !kept) /* out of memory: a hole, not a failure */
		k.reason = SYMBOL_NO_SYMBOLS;
	if (kept)
		memcpy(kept, levels, count * sizeof(*levels));
	if (!vec_push(&s->known, k))
		(void)number_map_put(&s->answers, address, s->known.len);
	return answer_of(&k);
}

void symbol_source_release(struct symbol_source *s)
{
	vec_each(&s->level_chunks, chunk)
		free(*chunk);
	vec_release(&s->level_chunks);
	vec_release(&s->known);
	number_map_release(&s->answers);
	number_map_release(&s->demangled);
	intern_release(&s->strings);
}

void symbol_source_free(struct symbol_source *s)
{
	if (s)
		s->ops->free(s);
}
