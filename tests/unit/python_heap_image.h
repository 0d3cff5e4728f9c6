/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects in a CPython process that was never alive: types, containers, instances and the collector's lists, laid
 * out as any version does it.
 */
#ifndef SONDE_TESTS_UNIT_PYTHON_HEAP_IMAGE_H
#define SONDE_TESTS_UNIT_PYTHON_HEAP_IMAGE_H

#include "python/object_priv.h"
#include "python_image.h"

struct heap_image {
	struct image *im;
	uint64_t type, dict, list, tuple, integer, set, module, none;
	uint64_t heads[4]; /* of the lists; the last is for frozen ones */
	uint64_t gc;
};

static inline uint64_t image_get(const struct image *im, uint64_t addr)
{
	uint64_t v;

	memcpy(&v, im->bytes + (addr - IMAGE_BASE), 8);
	return v;
}

static inline void image_set(struct image *im, uint64_t addr, uint64_t v)
{
	image_put(im, addr, &v, 8);
}

/* Makes a type of what image_type() has put there. */
static inline void heap_ready(struct heap_image *h, uint64_t type)
{
	const struct python_layout *l = &h->im->layout;

	image_u64(h->im, type, l->object.type, h->type);
	image_set(h->im, type + l->type.flags, image_get(h->im, type + l->type.flags) | TYPE_READY);
}

static inline uint64_t heap_type(struct heap_image *h, const char *name, uint64_t bytes, uint64_t flags)
{
	uint64_t at = image_type(h->im, name, bytes, flags);

	heap_ready(h, at);
	return at;
}

static inline void heap_link(struct heap_image *h, unsigned list, uint64_t object)
{
	uint64_t node = object - h->im->layout.gc_head.bytes, head = h->heads[list];
	uint64_t last = image_get(h->im, head + 8);

	image_set(h->im, node, head);
	image_set(h->im, node + 8, last);
	image_set(h->im, last, node);
	image_set(h->im, head + 8, node);
}

/* An object with room in front of it, in the list of the oldest ones where there are lists. */
static inline uint64_t heap_object(struct heap_image *h, uint64_t type, uint64_t bytes)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = image_take(h->im, bytes + 32) + 32;

	image_set(h->im, at + (h->im->free_threaded ? 16 : 0), 1);
	image_u64(h->im, at, l->object.type, type);
	if (l->gc_head.bytes != PYTHON_ABSENT && image_get(h->im, type + l->type.flags) & TYPE_COLLECTED)
		heap_link(h, 2, at);
	return at;
}

static inline void heap_lists(struct heap_image *h, uint32_t earlier)
{
	const struct python_layout *l = &h->im->layout;

	h->gc = l->runtime.gc != PYTHON_ABSENT ? h->im->runtime + l->runtime.gc
					       : h->im->interpreter + l->interpreter.gc;
	for (unsigned i = 0; i < 4; i++) {
		h->heads[i] = i < 3 ? h->gc + l->gc.generations - earlier + i * l->gc.generation_bytes
				    : h->gc + l->gc.permanent;
		image_set(h->im, h->heads[i], h->heads[i]);
		image_set(h->im, h->heads[i] + 8, h->heads[i]);
	}
}

static inline void heap_init(struct heap_image *h, struct image *im, uint32_t earlier)
{
	const struct python_layout *l = &im->layout;

	*h = (struct heap_image){.im = im};
	h->type = image_type(im, "type", l->heap_type.bytes, TYPE_IS_TYPE | TYPE_COLLECTED);
	heap_ready(h, h->type);
	heap_ready(h, im->str_type);
	heap_ready(h, im->code_type);
	heap_ready(h, im->bytes_type);
	heap_ready(h, im->frame_type);
	if (l->gc_head.bytes != PYTHON_ABSENT)
		heap_lists(h, earlier);
	h->dict = heap_type(h, "dict", l->dict.values + 8, TYPE_IS_DICT | TYPE_COLLECTED);
	h->list = heap_type(h, "list", l->list.allocated + 8, TYPE_IS_LIST | TYPE_COLLECTED);
	h->tuple = heap_type(h, "tuple", l->tuple.items, TYPE_IS_TUPLE | TYPE_COLLECTED);
	h->integer = heap_type(h, "int", l->integer.digits, TYPE_IS_INT);
	h->set = heap_type(h, "set", l->set.small + 136, TYPE_COLLECTED);
	h->module = heap_type(h, "module", l->object.bytes + 40, TYPE_COLLECTED);
	image_u64(im, h->module, l->type.dict_offset, l->object.bytes);
	image_u64(im, h->tuple, l->type.item_bytes, 8);
	image_u64(im, h->integer, l->type.item_bytes, 4);
}

/* An int of up to three digits of 30 bits. */
static inline uint64_t heap_int(struct heap_image *h, bool negative, const uint32_t *digits, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->integer, l->integer.digits + 16), size = negative ? -count : count;

	if (h->im->minor >= 12)
		size = count << 3 | (negative ? 2 : count ? 0 : 1);
	image_u64(h->im, at, l->var_object.size, size);
	image_put(h->im, at + l->integer.digits, digits, count * 4);
	return at;
}

static inline uint64_t heap_tuple(struct heap_image *h, const uint64_t *items, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->tuple, l->tuple.items + count * 8);

	image_u64(h->im, at, l->var_object.size, count);
	image_put(h->im, at + l->tuple.items, items, count * 8);
	return at;
}

static inline uint64_t heap_list(struct heap_image *h, const uint64_t *items, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->list, l->list.allocated + 8), store = image_take(h->im, count * 8 + 64);

	image_u64(h->im, at, l->var_object.size, count);
	image_u64(h->im, at, l->list.items, store);
	image_u64(h->im, at, l->list.allocated, count + 8);
	image_put(h->im, store, items, count * 8);
	return at;
}

enum heap_keys { HEAP_GENERAL, HEAP_UNICODE, HEAP_SPLIT };

/* A table of 8 slots, so of up to 5 entries; a key of 0 is one that was removed. */
static inline uint64_t heap_keys(struct heap_image *h, enum heap_keys kind, const uint64_t *keys,
	const uint64_t *values, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	bool hashes = h->im->minor <= 10 || kind == HEAP_GENERAL;
	unsigned entry_bytes = hashes ? 24 : 16;
	uint64_t at = image_take(h->im, l->dict_keys.indices + 8 + 5 * 24);

	image_set(h->im, at, 1);
	image_u64(h->im, at, l->dict_keys.size, 8);
	image_u8(h->im, at, l->dict_keys.log2_size, 3);
	if (l->dict_keys.log2_size != PYTHON_ABSENT) {
		image_u8(h->im, at, l->dict_keys.log2_size + 1, 3);
		image_u8(h->im, at, l->dict_keys.log2_size + 2, (uint8_t)kind);
	}
	image_u64(h->im, at, l->dict_keys.usable, 5 - count);
	image_u64(h->im, at, l->dict_keys.count, count);
	for (uint64_t i = 0; i < count; i++) {
		uint64_t entry = at + l->dict_keys.indices + 8 + i * entry_bytes + (hashes ? 8 : 0);

		image_set(h->im, entry, keys[i]);
		image_set(h->im, entry + 8, kind == HEAP_SPLIT ? 0 : values[i]);
	}
	return at;
}

/* Values of a split table: 3.13 and later have their number in front. */
static inline uint64_t heap_values(struct heap_image *h, uint64_t at, const uint64_t *values, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;

	image_u8(h->im, at, l->dict_values.capacity, 5);
	image_u8(h->im, at, l->dict_values.valid, 1);
	image_put(h->im, at + l->dict_values.first, values, count * 8);
	return at;
}

static inline uint64_t heap_dict(struct heap_image *h, enum heap_keys kind, const uint64_t *keys,
	const uint64_t *values, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->dict, l->dict.values + 8);

	image_u64(h->im, at, l->dict.used, count);
	image_u64(h->im, at, l->dict.keys, heap_keys(h, kind, keys, values, count));
	if (kind == HEAP_SPLIT)
		image_u64(h->im, at, l->dict.values,
			heap_values(h, image_take(h->im, 64), values, count));
	return at;
}

static inline uint64_t heap_set(struct heap_image *h, const uint64_t *keys, unsigned count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->set, l->set.small + 136);

	image_u64(h->im, at, l->set.used, count);
	image_u64(h->im, at, l->set.mask, 7);
	image_u64(h->im, at, l->set.table, at + l->set.small);
	/* One that was removed stands before the others. */
	image_set(h->im, at + l->set.small, h->type);
	image_set(h->im, at + l->set.small + 8, UINT64_MAX);
	for (unsigned i = 0; i < count; i++)
		image_set(h->im, at + l->set.small + (i + 1) * 16, keys[i]);
	return at;
}

/* A class; instances are of 16 bytes beside the header. Its __dict__ has __module__ only. */
static inline uint64_t heap_class(struct heap_image *h, const char *module, const char *name, const char *qualname)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t flags = TYPE_HEAP | TYPE_COLLECTED, at, key = image_str(h->im, "__module__"), value;

	if (h->im->minor >= 11)
		flags |= TYPE_MANAGED_DICT;
	if (h->im->minor >= 13)
		flags |= TYPE_INLINE_VALUES;
	at = image_type(h->im, name, l->object.bytes + 16, flags);
	/* A class statement's type is longer than others. */
	image_take(h->im, l->heap_type.bytes - l->type.bytes + 64);
	heap_ready(h, at);
	value = image_str(h->im, module);
	image_u64(h->im, at, l->type.dict, heap_dict(h, HEAP_UNICODE, &key, &value, 1));
	image_u64(h->im, at, l->heap_type.qualname, image_str(h->im, qualname));
	if (h->im->minor <= 10)
		image_u64(h->im, at, l->type.dict_offset, l->object.bytes);
	return at;
}

/* An instance with attributes, kept as its version does without a dict that was asked for. */
static inline uint64_t heap_instance(struct heap_image *h, uint64_t class, const uint64_t *keys,
	const uint64_t *values, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t bytes = image_get(h->im, class + l->type.basic_bytes);
	uint64_t at = heap_object(h, class, bytes + 64), stored;

	if (h->im->minor <= 10) {
		image_set(h->im, at + l->object.bytes, heap_dict(h, HEAP_SPLIT, keys, values, count));
		return at;
	}
	image_u64(h->im, class, l->heap_type.cached_keys, heap_keys(h, HEAP_SPLIT, keys, values, count));
	if (h->im->minor >= 13) {
		heap_values(h, at + bytes, values, count);
		return at;
	}
	stored = heap_values(h, image_take(h->im, 64), values, count);
	if (h->im->minor == 12)
		image_set(h->im, at - l->managed.dict, stored - 1);
	else
		image_set(h->im, at - l->managed.values, stored);
	return at;
}

/* A module in sys.modules, with the names and values that it has. */
static inline uint64_t heap_module(struct heap_image *h, const char *name, const uint64_t *keys,
	const uint64_t *values, uint64_t count)
{
	const struct python_layout *l = &h->im->layout;
	uint64_t at = heap_object(h, h->module, l->object.bytes + 40), key = image_str(h->im, name);

	image_set(h->im, at + l->object.bytes, heap_dict(h, HEAP_UNICODE, keys, values, count));
	image_u64(h->im, h->im->interpreter, l->interpreter.modules, heap_dict(h, HEAP_UNICODE, &key, &at, 1));
	return at;
}

/* Three instances in two lists, of which one is frozen; the first is kept by a module, the last by nobody. */
static inline void heap_populate(struct heap_image *h, uint64_t *ret_instances)
{
	uint64_t class = heap_class(h, "app", "Leaky", "Leaky"), key, list, value;
	uint64_t node, next, prev;

	for (unsigned i = 0; i < 3; i++) {
		key = image_str(h->im, "n");
		value = heap_int(h, false, &(uint32_t){i}, 1);
		ret_instances[i] = heap_instance(h, class, &key, &value, 1);
	}
	/* CACHE = [None, Leaky] */
	list = heap_list(h, (const uint64_t[]){value, ret_instances[0]}, 2);
	key = image_str(h->im, "CACHE");
	heap_module(h, "app", &key, &list, 1);
	if (h->im->free_threaded)
		return;
	/* The second one is moved to the frozen ones. */
	node = ret_instances[1] - h->im->layout.gc_head.bytes;
	next = image_get(h->im, node);
	prev = image_get(h->im, node + 8);
	image_set(h->im, prev, next);
	image_set(h->im, next + 8, prev);
	heap_link(h, 3, ret_instances[1]);
}

#endif
