/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an object refers to, and how one would write that.
 *
 * Containers, attributes, slots, functions, cells and frames are known exactly. Of other objects in C each word is
 * looked at, and taken for a reference where it is the address of an object that is known to be one
 * (`known`): that finds what the fields of such objects hold, and nothing that they keep in memory of their own.
 * Weak references are left out.
 */
#ifndef SONDE_PYTHON_OBJECT_REFS_H
#define SONDE_PYTHON_OBJECT_REFS_H

#include "python/marks.h"
#include "python/object.h"

/* As `known`: whatever has a type where an object has it. */
extern struct marks python_any_object;

enum python_ref_kind {
	PYTHON_REF_ITEM,      /* [index] */
	PYTHON_REF_KEY,       /* the key of a dict, or a member of a set */
	PYTHON_REF_VALUE,     /* [key] */
	PYTHON_REF_ATTRIBUTE, /* .key */
	PYTHON_REF_FIELD,     /* .name, as C calls it */
	PYTHON_REF_WORD,      /* at an offset of `index` bytes */
	PYTHON_REF_LOCAL,     /* the variable `key` of a frame */
	PYTHON_REF_STACK,     /* what a frame is computing with */
};

struct python_ref {
	uint64_t to;
	enum python_ref_kind kind;
	uint64_t key;     /* an object */
	uint64_t index;
	const char *name; /* of a field; valid until python_free() */
};

typedef bool python_ref_fn(void *ctx, const struct python_ref *ref);

/*
 * Each reference of the object, until `each` returns true, which is returned. The nearest way to write it comes
 * first: an attribute is told as one, and then once more by the __dict__ that holds it.
 */
bool python_refs_each(
	struct python *p, uint64_t object, struct marks *known, python_ref_fn *each, void *ctx);

/* The same for counting: what the object itself holds, each reference once. */
bool python_refs_count_each(
	struct python *p, uint64_t object, struct marks *known, python_ref_fn *each, void *ctx);

/* Each local variable, and what is on the value stack as far as that is told, of a frame as links of a chain
 * have it (python.h). */
bool python_frame_refs_each(struct python *p, uint64_t frame, python_ref_fn *each, void *ctx);

/* Each word of [from, to) that is an object's address. */
bool python_words_each(struct python *p, uint64_t from, uint64_t to, struct marks *known,
	python_ref_fn *each, void *ctx);

/* ".key", "[3]", "['name']", " local variable x"; appended. */
void python_ref_show(struct python *p, const struct python_ref *ref, struct buf *ret);

#endif
