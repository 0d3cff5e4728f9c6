/* SPDX-License-Identifier: BSD-2-Clause */
/* The objects that everything is made of: str, int, tuple, list. Types and dicts have files of their own. */
#include "python/object_priv.h"

#include <string.h>

#include "base/cursor.h"
#include "python/text.h"

uint64_t python_type_of(struct python *p, uint64_t object)
{
	uint64_t type;

	if (!python_pointer_ok(object) || !python_read_u64(p, object + p->layout.object.type, &type))
		return 0;
	return python_pointer_ok(type) ? type : 0;
}

bool python_text(struct python *p, uint64_t object, size_t most, struct buf *ret, bool *ret_cut)
{
	bool cut = false;

	if (!python_str(p, object, most, ret, &cut))
		return false;
	if (ret_cut)
		*ret_cut = cut;
	return true;
}

bool python_text_equals(struct python *p, uint64_t str, const char *text, size_t len)
{
	struct buf got = {0};
	uint64_t length;
	bool same, cut;

	/* Characters are at most as many as the bytes: most keys of a dict end here. */
	if (!python_pointer_ok(str) || !python_read_u64(p, str + p->layout.unicode.length, &length) ||
		length > len)
		return false;
	same = python_str(p, str, len, &got, &cut) && got.len == len && !got.failed &&
		(!len || !memcmp(got.data, text, len));
	buf_release(&got);
	return same;
}

bool python_items(struct python *p, uint64_t object, uint64_t *ret_count, uint64_t *ret_first)
{
	const struct python_type *t = python_type_of_object(p, object);
	uint64_t count, first;

	if (!t || !(t->flags & (TYPE_IS_TUPLE | TYPE_IS_LIST)) ||
		!python_read_u64(p, object + p->layout.var_object.size, &count))
		return false;
	first = object + p->layout.tuple.items;
	if (t->flags & TYPE_IS_LIST && !python_read_u64(p, object + p->layout.list.items, &first))
		return false;
	/* An empty list has no items at all. */
	if (count > MOST_ITEMS || (count && !python_pointer_ok(first)))
		return false;
	*ret_count = count;
	*ret_first = first;
	return true;
}

/* Sign and number of digits: one number up to 3.11, bits of a tag since. */
static bool read_long(struct python *p, uint64_t object, bool *ret_negative, uint64_t *ret_digits)
{
	const struct python_type *t = python_type_of_object(p, object);
	uint64_t size;

	if (!t || !(t->flags & TYPE_IS_INT) || !python_read_u64(p, object + p->layout.var_object.size, &size))
		return false;
	if (p->minor >= 12) {
		*ret_negative = (size & 3) == 2;
		*ret_digits = (size & 3) == 1 ? 0 : size >> LONG_SIZE_SHIFT;
	} else {
		*ret_negative = (int64_t)size < 0;
		*ret_digits = *ret_negative ? -size : size;
	}
	return true;
}

bool python_int(struct python *p, uint64_t object, int64_t *ret)
{
	uint8_t digits[3 * sizeof(uint32_t)];
	uint64_t count;
	unsigned __int128 value = 0;
	struct cursor c;
	bool negative;

	if (!read_long(p, object, &negative, &count) || count > 3 ||
		!python_read(p, object + p->layout.integer.digits, digits, count * sizeof(uint32_t)))
		return false;
	c = cursor_over(digits, count * sizeof(uint32_t));
	for (unsigned i = 0; i < count; i++) {
		uint32_t digit = cursor_u32(&c);

		if (digit >> LONG_DIGIT_BITS)
			return false;
		value |= (unsigned __int128)digit << i * LONG_DIGIT_BITS;
	}
	if (value > (unsigned __int128)INT64_MAX + negative)
		return false;
	*ret = negative ? (int64_t)-(uint64_t)value : (int64_t)value;
	return true;
}

uint64_t python_int_digits(struct python *p, uint64_t object)
{
	uint64_t count;
	bool negative;

	return read_long(p, object, &negative, &count) ? count : 0;
}

/* ---- sets ---- */

#define SET_ENTRY_BYTES 16u /* key, hash */
/* Hash of a slot whose key was removed; real hashes are never -1. */
#define SET_DUMMY_HASH UINT64_MAX

bool python_set_begin(struct python *p, uint64_t set, struct python_set_walk *ret)
{
	const struct python_layout *l = &p->layout;
	uint64_t mask;

	*ret = (struct python_set_walk){0};
	if (!python_read_u64(p, set + l->set.mask, &mask) || mask >= MOST_ITEMS || mask & (mask + 1) ||
		!python_read_u64(p, set + l->set.table, &ret->table) || !python_pointer_ok(ret->table) ||
		!python_read_u64(p, set + l->set.used, &ret->used) || ret->used > mask + 1)
		return false;
	ret->slots = mask + 1;
	return true;
}

bool python_set_next(struct python *p, struct python_set_walk *walk, uint64_t *ret_key)
{
	while (walk->at < walk->slots) {
		uint64_t entry[2];

		if (!python_read(p, walk->table + walk->at * SET_ENTRY_BYTES, entry, sizeof(entry)))
			return false;
		walk->at++;
		if (entry[0] && entry[1] != SET_DUMMY_HASH) {
			*ret_key = entry[0];
			return true;
		}
	}
	return false;
}

uint64_t python_set_table_bytes(struct python *p, uint64_t set)
{
	struct python_set_walk walk;

	/* Small tables are in the object. */
	if (!python_set_begin(p, set, &walk) || walk.table == set + p->layout.set.small)
		return 0;
	return walk.slots * SET_ENTRY_BYTES;
}
