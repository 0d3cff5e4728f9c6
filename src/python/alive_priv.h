/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of python_alive() share. */
#ifndef SONDE_PYTHON_ALIVE_PRIV_H
#define SONDE_PYTHON_ALIVE_PRIV_H

#include "python/alive.h"

/* Where following begins: an object (a module), a frame, or a piece of memory. */
struct root {
	enum python_root kind;
	uint64_t object, frame;
	uint64_t from, to;
	char *name;
	uint32_t native_id;
	bool main_thread;
};

#define ENTRY_IS_ONE 1u    /* it is of the type */
#define ENTRY_BEHIND_ONE 2u /* an object before it is */

/* An object that was found, in the order of distance. */
struct entry {
	uint64_t object : 56;
	uint64_t flags : 8;
	uint32_t parent; /* below root count: a root; else another entry */
	uint32_t shape;  /* what its chain looks like */
};

/* Chains of one shape that end at an instance. */
struct shape {
	uint32_t hash;
	uint32_t entry; /* the first */
	uint64_t instances;
};

struct alive {
	struct python *p;
	const struct python_alive_options *options;
	struct python_alive *ret;
	struct python_census census;
	const char *type; /* full name, as interned */
	bool loose;       /* instances are not in the collector's lists */
	bool thorough;    /* objects that are not in them are gone through as well */
	struct marks seen;
	VEC(struct root) roots;
	uint64_t interpreter_id; /* whose modules are looked at */
	size_t clear_roots; /* so many of them are modules and frames; the rest, of threads, comes after all that these
			     * lead to */
	VEC(struct entry) entries;
	size_t followed;    /* entries whose references were looked at */
	VEC(struct shape) shapes;
	uint32_t *shape_slots; /* open addressing by hash: index + 1 */
	size_t shape_slot_count;
	uint32_t from;    /* whose references are being looked at: a parent */
	bool failed, cut; /* no memory; more objects than an entry can count */
};

/* alive_roots.c: -ENOMEM, or 0. */
int alive_find_roots(struct alive *a);

/* Which of the objects `among` stand in a struct of an interpreter. Not each of them is held by that: lists of free
 * objects keep what has been taken from them. -ENOMEM. */
int alive_interpreter_words(struct alive *a, struct marks *among, struct marks *ret);

/* Adds an object, unless it was found before, as referred to by a->from. False: no memory. */
bool alive_add(struct alive *a, uint64_t object);
/* Goes through all that was added, and what that refers to. */
void alive_follow(struct alive *a, struct marks *only);

bool alive_is_one(struct alive *a, uint64_t object);

/* References of a parent: of a root or of an object. */
bool alive_refs_each(struct alive *a, uint32_t parent, python_ref_fn *each, void *ctx);

/* alive_ways.c: the most frequent shapes become ways of a->ret; what was found so far is forgotten. -ENOMEM. */
int alive_tell_ways(struct alive *a);
void alive_way_release(struct python_alive_way *way);

/* alive_unseen.c: what no root leads to. */
int alive_find_unseen(struct alive *a);

#endif
