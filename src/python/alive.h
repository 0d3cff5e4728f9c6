/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What keeps the objects of a type alive: chains of references that lead to them from where the interpreter holds
 * on by itself: modules, frames of threads, and what its own structs point to.
 *
 * References are followed from there, nearest first, so that the chain to each object is as short as can be. Chains that
 * look alike are one way. What no chain leads to is either held by something that cannot be followed (native code, a
 * value in an expression that is being computed), which shows by references that nothing seen accounts for;
 * or it is only held by itself, in circles, until the collector comes. docs/heuristics/why-alive.md
 */
#ifndef SONDE_PYTHON_ALIVE_H
#define SONDE_PYTHON_ALIVE_H

#include "python/census.h"
#include "python/object_refs.h"

struct python_alive_options {
	const char *type;      /* its name with the module, or without */
	size_t most_ways;      /* 0: all */
	const uint32_t *tids;  /* as python_threads() wants them */
	size_t tid_count;
};

enum python_root {
	PYTHON_ROOT_MODULE,
	PYTHON_ROOT_FRAME,
	PYTHON_ROOT_THREAD,      /* what the interpreter keeps for a thread, beside its frames */
	PYTHON_ROOT_INTERPRETER, /* what it keeps for itself: an object whose references are not all found, in its struct */
	PYTHON_ROOT_UNSEEN,      /* nobody knows: more references than were found */
};

/* One reference, and the object that it leads to. */
struct python_alive_step {
	char *reference; /* ".CACHE", "['key']", "[3]"; of a closure ".__closure__", "'name'" */
	uint64_t object;
	const char *type; /* of the object; valid until python_free() */
	uint64_t count;   /* of items, pairs or members, when it is a container */
};

struct python_alive_way {
	enum python_root root;
	char *root_name;      /* of a module; of a frame: its function and line */
	uint32_t native_id;   /* of the thread; 0: not known */
	bool main_thread;
	uint64_t first;       /* the first object, where no step has it: the module, what is held unseen */
	const char *first_type;
	uint64_t unseen;      /* references to `first` that are not accounted for */
	VEC(struct python_alive_step) steps;
	uint64_t instances;   /* that are kept in this way */
};

struct python_alive {
	uint64_t instances;   /* of the type, in all */
	uint64_t bytes;
	uint64_t behind;      /* kept by others of the type, to which a way leads */
	uint64_t nobody;      /* only kept by circles that nothing leads to */
	uint64_t unseen;      /* kept by what cannot be followed */
	uint64_t ways_left_out; /* more ways than were asked for, and the instances kept by those */
	uint64_t instances_left_out;
	uint64_t nobody_example; /* one of `nobody`; 0: none */
	uint64_t seen;        /* objects that were gone through */
	uint64_t gaps, again; /* as in struct python_census */
	bool cut;
	const char *type;     /* its full name; valid until python_free() */
	VEC(struct python_alive_way) ways; /* most instances first */
};

/*
 * -ENOENT with words: no object has that type. -EINVAL: several types are meant. Others as python_census(), and
 * *ret is zero before and to be released after success.
 */
int python_alive(struct python *p, const struct python_alive_options *options, struct python_alive *ret,
	struct err *err);
void python_alive_release(struct python_alive *a);

#endif
