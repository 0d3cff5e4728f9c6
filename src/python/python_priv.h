/* SPDX-License-Identifier: BSD-2-Clause */
/* What the files of this folder share. */
#ifndef SONDE_PYTHON_PYTHON_PRIV_H
#define SONDE_PYTHON_PYTHON_PRIV_H

#include "base/table.h"
#include "python/layout.h"
#include "python/memory.h"
#include "python/object.h"
#include "python/python.h"

struct python_codes; /* code.c */

struct python {
	struct python_pages pages;
	struct python_place place;
	struct python_layout layout;
	struct python_chain_layout chain;
	uint32_t version; /* PY_VERSION_HEX */
	unsigned minor;
	bool free_threaded;
	char version_text[40];
	uint64_t look;      /* counts up with each python_refresh() */
	uint64_t code_type; /* PyCode_Type; 0: not seen yet */
	uint64_t str_type;  /* PyUnicode_Type, as far as it was seen */
	uint64_t tid_offset; /* of the thread id behind pthread_t, up to 3.10; 0: not found yet */
	struct python_codes *codes;
	/* What object.c keeps; it sets both when it first has something. */
	void *objects;
	void (*objects_free)(void *objects);
};

/* An aligned pointer that can be one of user space. */
static inline bool python_pointer_ok(uint64_t pointer)
{
	return pointer >= 4096 && pointer < 1ULL << 56 && !(pointer & 7);
}

/* version.c: which version stands at p->place, told by itself or found out by trying. */
int python_find_version(struct python *p, struct err *err);

/* threads.c: whether what the layout says makes sense there: links between interpreters and threads, a code object.
 * -EAGAIN: there is no interpreter. -EOPNOTSUPP: it does not. */
int python_check(struct python *p, struct err *err);

/* threads.c: all interpreters, the main one first. -EFAULT: the list cannot be read; what was found until then is
 * there. -ENOMEM. */
VEC_TYPE(python_addresses, uint64_t);
int python_interpreters(struct python *p, struct python_addresses *ret);

/* chain.c */
void python_chain_layout_set(struct python *p);

/* 0 is one, too. */
static inline bool python_read_pointer(struct python *p, uint64_t addr, uint64_t *ret)
{
	return python_read_u64(p, addr, ret) && (!*ret || python_pointer_ok(*ret));
}

#endif
