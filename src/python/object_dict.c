/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Dicts, and the attributes of instances.
 *
 * A dict is a table of keys and, where several dicts share one ("split"), an array of values of its own:
 *
 *	PyDictObject           keys                                 values, split only
 *	+-----------+          +--------------------------+         +----------------+
 *	| ma_keys --+--------> | size, kind, count        |    +--> | (3.13: header) |
 *	| ma_values-+---+      | indices[size], 1 to 8 B  |    |    | value 0        |
 *	+-----------+   |      | entry 0 (hash) key value |    |    | value 1 ...    |
 *	                +-------------------------------------- +    +----------------+
 *
 * Up to 3.10 the size is stored itself and each entry has a hash; from 3.11 on it is its logarithm,
 * and tables that only have str as keys leave the hash out. An instance may have such values without a dict:
 * 3.11 and 3.12 point to them from in front of the object, 3.13 and later have them behind it.
 */
#include "python/object_priv.h"

#include <string.h>

#include "base/cursor.h"

#define MOST_ENTRIES (1ULL << 32)
#define ENTRIES_AT_ONCE 128u
/* Keys that instances share are at most 30. */
#define MOST_SHARED 64u

#define KIND_GENERAL 0u
#define KIND_SPLIT 2u

/* The table of keys: what it takes to walk it. */
struct keys {
	uint64_t entries; /* address of the first */
	uint64_t count;   /* of entries, used and deleted ones */
	unsigned entry_bytes;
	unsigned key_at, value_at; /* within an entry */
	uint64_t most;    /* entries there is room for */
	uint64_t bytes;   /* of all, as allocated */
};

/* What CPython allocates entries for: 2/3 of the slots. */
static uint64_t usable(uint64_t slots)
{
	return (slots << 1) / 3;
}

static bool keys_by_size(const struct python_layout *l, uint64_t address, struct cursor *c, struct keys *ret)
{
	uint64_t slots, index_bytes;

	cursor_skip(c, l->dict_keys.size);
	slots = cursor_u64(c);
	if (c->bad || !slots || slots & (slots - 1) || slots > MOST_ENTRIES)
		return false;
	index_bytes = slots <= 0xff ? 1 : slots <= 0xffff ? 2 : slots <= 0xffffffffULL ? 4 : 8;
	*ret = (struct keys){
		.entries = address + l->dict_keys.indices + slots * index_bytes,
		.entry_bytes = 24,
		.key_at = 8,
		.value_at = 16,
		.bytes = l->dict_keys.indices + slots * index_bytes + usable(slots) * 24,
	};
	return true;
}

static bool keys_by_logarithm(
	const struct python_layout *l, uint64_t address, struct cursor *c, struct keys *ret)
{
	unsigned size, index_bytes, kind, entry_bytes;

	cursor_skip(c, l->dict_keys.log2_size);
	size = cursor_u8(c);
	index_bytes = cursor_u8(c);
	kind = cursor_u8(c);
	if (c->bad || size > 32 || index_bytes > 35 || index_bytes < size || kind > KIND_SPLIT)
		return false;
	entry_bytes = kind == KIND_GENERAL ? 24 : 16;
	*ret = (struct keys){
		.entries = address + l->dict_keys.indices + (1ULL << index_bytes),
		.entry_bytes = entry_bytes,
		.key_at = entry_bytes - 16,
		.value_at = entry_bytes - 8,
		.bytes = l->dict_keys.indices + (1ULL << index_bytes) + usable(1ULL << size) * entry_bytes,
	};
	return true;
}

static bool read_keys(struct python *p, uint64_t address, struct keys *ret)
{
	const struct python_layout *l = &p->layout;
	uint8_t head[64] = {0};
	struct cursor c = cursor_over(head, l->dict_keys.indices);
	struct cursor again = c;

	if (l->dict_keys.indices > sizeof(head) || !python_read(p, address, head, l->dict_keys.indices))
		return false;
	if (!(l->dict_keys.size != PYTHON_ABSENT ? keys_by_size(l, address, &c, ret)
						 : keys_by_logarithm(l, address, &c, ret)))
		return false;
	cursor_skip(&again, l->dict_keys.count);
	ret->count = cursor_u64(&again);
	ret->most = (ret->bytes - (ret->entries - address)) / ret->entry_bytes;
	return !again.bad && ret->count <= ret->most;
}

/*
 * `values`: address of the first one of a split table, or 0. `limit`: how many of them there are. A table
 * that is changed while it is read gives pairs of before and after; none of another dict's.
 */
static bool each_pair(struct python *p, const struct keys *keys, uint64_t values, uint64_t limit,
	bool (*each)(void *ctx, uint64_t key, uint64_t value), void *ctx)
{
	uint8_t entries[ENTRIES_AT_ONCE * 24];
	uint64_t own[ENTRIES_AT_ONCE];
	uint64_t count = values && limit < keys->count ? limit : keys->count;

	for (uint64_t i = 0; i < count; i += ENTRIES_AT_ONCE) {
		size_t n = count - i < ENTRIES_AT_ONCE ? (size_t)(count - i) : ENTRIES_AT_ONCE;

		if (!python_read(p, keys->entries + i * keys->entry_bytes, entries, n * keys->entry_bytes) ||
			(values && !python_read(p, values + i * 8, own, n * 8)))
			return false;
		for (size_t k = 0; k < n; k++) {
			uint64_t key, value;

			memcpy(&key, entries + k * keys->entry_bytes + keys->key_at, 8);
			memcpy(&value, entries + k * keys->entry_bytes + keys->value_at, 8);
			if (values)
				value = own[k];
			if (key && value && each(ctx, key, value))
				return true;
		}
	}
	return false;
}

/* Values of a split table: where the first one is, and how many there are. */
static bool split_values(struct python *p, uint64_t values, uint64_t *ret_first, uint64_t *ret_limit)
{
	const struct python_layout *l = &p->layout;
	uint8_t head[8];

	*ret_first = values + l->dict_values.first;
	*ret_limit = UINT64_MAX;
	if (l->dict_values.capacity == PYTHON_ABSENT)
		return true;
	if (!python_read(p, values, head, sizeof(head)))
		return false;
	*ret_limit = head[l->dict_values.capacity & 7];
	return true;
}

static bool is_dict(struct python *p, uint64_t object)
{
	const struct python_type *t = python_type_of_object(p, object);

	return t && t->flags & TYPE_IS_DICT;
}

bool python_dict_each(struct python *p, uint64_t dict,
	bool (*each)(void *ctx, uint64_t key, uint64_t value), void *ctx)
{
	const struct python_layout *l = &p->layout;
	uint64_t address, values, first = 0, limit = 0;
	struct keys keys;

	if (!is_dict(p, dict) || !python_read_u64(p, dict + l->dict.keys, &address) ||
		!python_read_u64(p, dict + l->dict.values, &values) || !read_keys(p, address, &keys))
		return false;
	if (values && !split_values(p, values, &first, &limit))
		return false;
	return each_pair(p, &keys, first, limit, each, ctx);
}

uint64_t python_dict_count(struct python *p, uint64_t dict)
{
	uint64_t used = 0;

	return is_dict(p, dict) && python_read_u64(p, dict + p->layout.dict.used, &used) ? used : 0;
}

uint64_t python_dict_table_bytes(struct python *p, uint64_t dict)
{
	const struct python_layout *l = &p->layout;
	uint64_t address, values, users, bytes = 0;
	struct keys keys;

	if (!python_read_u64(p, dict + l->dict.keys, &address) || !python_read_u64(p, address, &users) ||
		!python_read_u64(p, dict + l->dict.values, &values) || !read_keys(p, address, &keys))
		return 0;
	/* What all empty dicts share has no entries to speak of, and a class shares its keys with instances. */
	if (values && l->dict_values.capacity == PYTHON_ABSENT)
		bytes += keys.most * 8;
	return users == 1 ? bytes + keys.bytes : bytes;
}

/* ---- attributes ---- */

/* Round up to words: what CPython puts between an object of variable size and its dict. */
static bool dict_behind(struct python *p, uint64_t object, const struct python_type *t, uint64_t *ret_at)
{
	const struct python_layout *l = &p->layout;
	int64_t offset = (int64_t)t->dict_offset;
	uint64_t size, bytes;

	if (!offset)
		return false;
	if (offset > 0) {
		*ret_at = object + t->dict_offset;
		return t->dict_offset < t->basic_bytes;
	}
	if (!python_read_u64(p, object + l->var_object.size, &size))
		return false;
	if (t->flags & TYPE_IS_INT && p->minor >= 12)
		size >>= LONG_SIZE_SHIFT;
	else if ((int64_t)size < 0)
		size = -size;
	if (size > MOST_ENTRIES || __builtin_mul_overflow(size, t->item_bytes, &bytes) ||
		__builtin_add_overflow(bytes, t->basic_bytes + 7, &bytes))
		return false;
	*ret_at = object + (bytes & ~7ULL) + t->dict_offset;
	return true;
}

/* Where 3.11 and later keep what an instance has: a dict, or values by the keys of its class. */
static void managed(
	struct python *p, uint64_t object, const struct python_type *t, uint64_t *ret_dict, uint64_t *ret_values)
{
	const struct python_layout *l = &p->layout;
	uint64_t word = 0;
	uint8_t head[8];

	*ret_dict = *ret_values = 0;
	if (!python_read_u64(p, object - l->managed.dict, &word))
		return;
	if (p->minor == 12) {
		/* One word for both; values are marked by being odd. */
		if (word & 1)
			*ret_values = word + 1;
		else
			*ret_dict = word;
		return;
	}
	*ret_dict = word;
	if (word)
		return;
	if (l->managed.values != PYTHON_ABSENT) {
		if (python_read_u64(p, object - l->managed.values, &word))
			*ret_values = word;
		return;
	}
	if (t->flags & TYPE_INLINE_VALUES && python_read(p, object + t->basic_bytes, head, sizeof(head)) &&
		head[l->dict_values.valid & 7])
		*ret_values = object + t->basic_bytes;
}

uint64_t python_instance_dict(struct python *p, uint64_t object, uint64_t *ret_values)
{
	const struct python_type *t = python_type_of_object(p, object);
	uint64_t dict = 0, at;

	*ret_values = 0;
	if (!t)
		return 0;
	if (t->flags & TYPE_MANAGED_DICT && p->minor >= 11)
		managed(p, object, t, &dict, ret_values);
	else if (!dict_behind(p, object, t, &at) || !python_read_u64(p, at, &dict))
		return 0;
	return dict;
}

bool python_attributes_each(struct python *p, uint64_t object,
	bool (*each)(void *ctx, uint64_t key, uint64_t value), void *ctx)
{
	uint64_t values, address, first, limit, dict = python_instance_dict(p, object, &values);
	struct keys keys;

	if (dict)
		return python_dict_each(p, dict, each, ctx);
	if (!values ||
		!python_read_u64(p, python_type_of(p, object) + p->layout.heap_type.cached_keys,
			&address) ||
		!read_keys(p, address, &keys) || !split_values(p, values, &first, &limit))
		return false;
	return each_pair(p, &keys, first, limit, each, ctx);
}

uint64_t python_cached_keys_bytes(struct python *p, uint64_t type)
{
	uint64_t address;
	struct keys keys;

	return python_read_u64(p, type + p->layout.heap_type.cached_keys, &address) && address &&
			read_keys(p, address, &keys)
		? keys.bytes
		: 0;
}

uint64_t python_values_bytes(struct python *p, uint64_t object, const struct python_type *t)
{
	const struct python_layout *l = &p->layout;
	uint64_t address, values, dict, used, left;

	if (!(t->flags & TYPE_MANAGED_DICT) || p->minor < 11)
		return 0;
	managed(p, object, t, &dict, &values);
	/* Behind the object they are a part of it, in use or not. */
	if (!values && !(t->flags & TYPE_INLINE_VALUES && p->minor >= 13))
		return 0;
	if (!python_read_u64(p, t->address + l->heap_type.cached_keys, &address) || !address ||
		!python_read_u64(p, address + l->dict_keys.count, &used) ||
		!python_read_u64(p, address + l->dict_keys.usable, &left) || used > MOST_SHARED ||
		left > MOST_SHARED)
		return 0;
	/* The values, a byte each for the order they were set in, and their number. */
	return (used + left) * 8 + ((used + left + 7) & ~7ULL) + 8;
}

struct wanted {
	struct python *p;
	const char *key;
	size_t len;
	uint64_t value;
};

static bool is_wanted(void *ctx, uint64_t key, uint64_t value)
{
	struct wanted *w = (struct wanted *)ctx;

	if (!python_text_equals(w->p, key, w->key, w->len))
		return false;
	w->value = value;
	return true;
}

uint64_t python_dict_get(struct python *p, uint64_t dict, const char *key)
{
	struct wanted w = {.p = p, .key = key, .len = strlen(key)};

	return python_dict_each(p, dict, is_wanted, &w) ? w.value : 0;
}

uint64_t python_attribute(struct python *p, uint64_t object, const char *name)
{
	struct wanted w = {.p = p, .key = name, .len = strlen(name)};

	return python_attributes_each(p, object, is_wanted, &w) ? w.value : 0;
}

uint64_t python_module(struct python *p, uint64_t interpreter, const char *name)
{
	uint64_t modules;

	if (!python_read_u64(p, interpreter + p->layout.interpreter.modules, &modules))
		return 0;
	return python_dict_get(p, modules, name);
}

uint64_t python_global(struct python *p, uint64_t module, const char *name)
{
	return python_attribute(p, module, name);
}
