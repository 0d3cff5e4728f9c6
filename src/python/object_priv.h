/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files about objects share. */
#ifndef SONDE_PYTHON_OBJECT_PRIV_H
#define SONDE_PYTHON_OBJECT_PRIV_H

#include "python/python_priv.h"

/* Bits of tp_flags (Include/object.h); the same from 3.8 on. */
#define TYPE_INLINE_VALUES (1ULL << 2) /* 3.13 and later */
#define TYPE_MANAGED_WEAKREF (1ULL << 3) /* 3.12 and later */
#define TYPE_MANAGED_DICT (1ULL << 4) /* 3.11 and later */
#define TYPE_HEAP (1ULL << 9)
#define TYPE_READY (1ULL << 12)
#define TYPE_COLLECTED (1ULL << 14)
#define TYPE_IS_INT (1ULL << 24)
#define TYPE_IS_LIST (1ULL << 25)
#define TYPE_IS_TUPLE (1ULL << 26)
#define TYPE_IS_BYTES (1ULL << 27)
#define TYPE_IS_STR (1ULL << 28)
#define TYPE_IS_DICT (1ULL << 29)
#define TYPE_IS_TYPE (1ULL << 31)

/* Of lv_tag, 3.12 and later: below are two bits of sign and one that is reserved. */
#define LONG_SIZE_SHIFT 3
#define LONG_DIGIT_BITS 30

/* More items than this are nonsense. */
#define MOST_ITEMS (1ULL << 36)

/* Digits of an int; 0 also when it is none. */
uint64_t python_int_digits(struct python *p, uint64_t object);

/* Whether a str is these bytes, which are ASCII or UTF-8. */
bool python_text_equals(struct python *p, uint64_t str, const char *text, size_t len);

/* The fields of a type's instances that are references and have a name: __slots__, and what C shows. The type's own,
 * not those of its bases. `t` came from python_type(); valid as long as that. */
struct python_member {
	const char *name;
	uint64_t offset;
};
const struct python_member *python_type_members(
	struct python *p, const struct python_type *t, size_t *ret_count);

/* A walk through a set or frozenset. Between begin and end nothing else may be asked of it. */
struct python_set_walk {
	uint64_t table, slots, used;
	uint64_t at; /* the next slot */
};
bool python_set_begin(struct python *p, uint64_t set, struct python_set_walk *ret);
bool python_set_next(struct python *p, struct python_set_walk *walk, uint64_t *ret_key);
/* What its table takes beside the object itself. */
uint64_t python_set_table_bytes(struct python *p, uint64_t set);

/* What the tables of a dict take that are its own; a class has those of its instances. */
uint64_t python_dict_table_bytes(struct python *p, uint64_t dict);
/* What the values of an instance take that it has without a dict. */
uint64_t python_values_bytes(struct python *p, uint64_t object, const struct python_type *t);

/* What the keys take that a class has for its instances. */
uint64_t python_cached_keys_bytes(struct python *p, uint64_t type);

/* Bytes of an object (object_size.c); `t` is its type. */
uint64_t python_object_bytes(struct python *p, uint64_t object, const struct python_type *t);

/* The dict of an instance, or 0; with 0, *ret_values is where its values are, or 0. */
uint64_t python_instance_dict(struct python *p, uint64_t object, uint64_t *ret_values);

#endif
