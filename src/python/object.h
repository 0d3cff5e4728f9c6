/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Objects in a CPython process: types, strings, containers.
 *
 * All calls look at memory through python.h's pages. Nothing is followed further than asked; a
 * pointer that leads nowhere, or to something that is not what it should be, gives false or "".
 */
#ifndef SONDE_PYTHON_OBJECT_H
#define SONDE_PYTHON_OBJECT_H

#include "base/buf.h"
#include "python/python.h"

/* Memory of the target through the pages of this look; all of it or false. */
bool python_read(struct python *p, uint64_t addr, void *buf, size_t len);
bool python_read_u64(struct python *p, uint64_t addr, uint64_t *ret);
bool python_read_u32(struct python *p, uint64_t addr, uint32_t *ret);

/* ob_type; 0: it cannot be read, or is no pointer. */
uint64_t python_type_of(struct python *p, uint64_t object);

/* What an object is laid out as; what derives from it is the same kind. */
enum python_kind {
	PYTHON_OTHER,
	PYTHON_STR,
	PYTHON_BYTES,
	PYTHON_INT,
	PYTHON_TUPLE,
	PYTHON_LIST,
	PYTHON_DICT,
	PYTHON_SET,       /* frozenset, too */
	PYTHON_TYPE,
	PYTHON_MODULE,
	PYTHON_FUNCTION,
	PYTHON_METHOD,    /* a bound one */
	PYTHON_BUILTIN,   /* a function or method in C */
	PYTHON_CELL,
	PYTHON_GENERATOR, /* and coroutine, asynchronous generator */
	PYTHON_FRAME,
	PYTHON_WEAKREF,   /* proxies, too */
	PYTHON_DEQUE,
};

/* What is known of a type. Valid until python_free(); checked again after python_refresh(). NULL: no type
 * stands there. */
struct python_type {
	uint64_t address;
	const char *name;     /* tp_name: "dict", "_thread.lock"; of classes without module: "Leaky" */
	const char *module;   /* of classes: "app.models"; "" */
	const char *full_name; /* for people: "app.models.User", "User.<locals>.Row", "dict" */
	uint64_t basic_bytes; /* tp_basicsize */
	uint64_t item_bytes;  /* tp_itemsize */
	uint64_t flags;       /* tp_flags */
	uint64_t dict_offset; /* tp_dictoffset; (uint64_t)-1 and the like as stored */
	enum python_kind kind;
	bool collected;       /* Py_TPFLAGS_HAVE_GC */
	bool heap;            /* a class statement made it, or the like */
};
const struct python_type *python_type(struct python *p, uint64_t type);
const struct python_type *python_type_of_object(struct python *p, uint64_t object);

/* Whether the object's type is called so ("lock" of "_thread" is "_thread.lock"). */
bool python_is(struct python *p, uint64_t object, const char *type_name);

/* A str as UTF-8; at most `most` characters, *ret_cut where there are more. False: it is none. */
bool python_text(struct python *p, uint64_t object, size_t most, struct buf *ret, bool *ret_cut);

/* A tuple or list: how many items, and the address of the first pointer. False: it is neither. */
bool python_items(struct python *p, uint64_t object, uint64_t *ret_count, uint64_t *ret_first);

/* A small int; false: it is none, or does not fit. */
bool python_int(struct python *p, uint64_t object, int64_t *ret);

/* Each pair of a dict, in the order of insertion, whatever it is stored as. Stops and returns true when
 * `each` returns true. Values that are not set are left out. */
bool python_dict_each(struct python *p, uint64_t dict,
	bool (*each)(void *ctx, uint64_t key, uint64_t value), void *ctx);

/* The value under a key of type str; 0: none. */
uint64_t python_dict_get(struct python *p, uint64_t dict, const char *key);

/* An attribute that the instance itself has (its __dict__, also where 3.11 and later keep the values
 * in front of the object, or behind it); 0: none. */
uint64_t python_attribute(struct python *p, uint64_t object, const char *name);

/* Each attribute of the instance, as above. */
bool python_attributes_each(struct python *p, uint64_t object,
	bool (*each)(void *ctx, uint64_t key, uint64_t value), void *ctx);

/* A module that was imported, by name (sys.modules); 0: none. */
uint64_t python_module(struct python *p, uint64_t interpreter, const char *name);

/* The value of a global of a module object; 0: none. */
uint64_t python_global(struct python *p, uint64_t module, const char *name);

/* How many pairs a dict has; 0 also when it is none. */
uint64_t python_dict_count(struct python *p, uint64_t dict);

/* An object for a person, without running anything of it: "42", "'text…'", "[1, 2, …7 more]", "{'a': 1}", "<Leaky at 0x…>".
 * At most about `most` bytes are appended, and containers are opened `depth` deep. */
void python_show(struct python *p, uint64_t object, size_t most, unsigned depth, struct buf *ret);

#endif
