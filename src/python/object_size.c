/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How many bytes an object takes, as sys.getsizeof() counts them: itself, with what is before it and the tables
 * that are its alone. What it refers to is not part of it.
 *
 * Instances of 3.11 and 3.12 have their values elsewhere, which getsizeof() leaves out; here they count.
 */
#include "python/object_priv.h"

#define DEQUE_BLOCK_ITEMS 64u
#define DEQUE_BLOCK_BYTES (DEQUE_BLOCK_ITEMS * 8u + 16u)

/* The collector's head, dict pointers. */
static uint64_t before(const struct python *p, const struct python_type *t)
{
	uint64_t bytes = 0;

	if (t->collected && p->layout.gc_head.bytes != PYTHON_ABSENT)
		bytes += p->layout.gc_head.bytes;
	if ((t->flags & TYPE_MANAGED_DICT && p->minor >= 11) ||
		(t->flags & TYPE_MANAGED_WEAKREF && p->minor >= 12))
		bytes += 16;
	return bytes;
}

static uint64_t str_bytes(struct python *p, uint64_t str)
{
	const struct python_layout *l = &p->layout;
	uint64_t length;
	uint32_t state;
	unsigned kind;

	if (!python_read_u64(p, str + l->unicode.length, &length) || length > MOST_ITEMS ||
		!python_read_u32(p, str + l->unicode.state, &state))
		return 0;
	kind = state >> l->unicode.kind_shift & 7;
	if (state >> (l->unicode.kind_shift + 4) & 1)
		return l->unicode.ascii_data + length + 1;
	return l->unicode.data + (length + 1) * kind;
}

/* Items that are part of the object itself. */
static uint64_t items_bytes(struct python *p, uint64_t object, const struct python_type *t)
{
	uint64_t count, bytes;

	if (!t->item_bytes)
		return 0;
	if (t->kind == PYTHON_INT)
		count = python_int_digits(p, object);
	else if (!python_read_u64(p, object + p->layout.var_object.size, &count))
		return 0;
	if ((int64_t)count < 0)
		count = -count;
	return count > MOST_ITEMS || __builtin_mul_overflow(count, t->item_bytes, &bytes) ? 0 : bytes;
}

static uint64_t allocated(struct python *p, uint64_t at, unsigned each)
{
	uint64_t count;

	return python_read_u64(p, at, &count) && count <= MOST_ITEMS ? count * each : 0;
}

static uint64_t deque_bytes(struct python *p, uint64_t deque)
{
	uint64_t count;

	/* One block is always there; how full the first and last ones are does not matter much. */
	if (!python_read_u64(p, deque + p->layout.var_object.size, &count) || count > MOST_ITEMS)
		return 0;
	return (count / DEQUE_BLOCK_ITEMS + 1) * DEQUE_BLOCK_BYTES;
}

static bool is_heap_type(struct python *p, uint64_t type)
{
	uint64_t flags;

	return python_read_u64(p, type + p->layout.type.flags, &flags) && flags & TYPE_HEAP;
}

/* Tables that belong to the object. */
static uint64_t tables_bytes(struct python *p, uint64_t object, const struct python_type *t)
{
	switch (t->kind) {
	case PYTHON_LIST:
		return allocated(p, object + p->layout.list.allocated, 8);
	case PYTHON_DICT:
		return python_dict_table_bytes(p, object);
	case PYTHON_SET:
		return python_set_table_bytes(p, object);
	case PYTHON_TYPE:
		return is_heap_type(p, object) ? python_cached_keys_bytes(p, object) : 0;
	case PYTHON_DEQUE:
		return deque_bytes(p, object);
	default:
		return 0;
	}
}

uint64_t python_object_bytes(struct python *p, uint64_t object, const struct python_type *t)
{
	if (t->kind == PYTHON_STR)
		return str_bytes(p, object);
	return before(p, t) + t->basic_bytes + items_bytes(p, object, t) + tables_bytes(p, object, t) +
		python_values_bytes(p, object, t);
}
