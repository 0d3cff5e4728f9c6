/* SPDX-License-Identifier: BSD-2-Clause */
/* str and bytes of the target. */
#ifndef SONDE_PYTHON_TEXT_H
#define SONDE_PYTHON_TEXT_H

#include "base/buf.h"
#include "python/python.h"

/*
 * Appends a str (or an instance of a subclass) as UTF-8: at most `most` characters of it, and *ret_cut says
 * whether there are more. Lone surrogates, which are no UTF-8, become U+FFFD. False: it is no str,
 * or cannot be read; nothing is appended then. `ret_cut` may be NULL.
 */
bool python_str(struct python *p, uint64_t object, size_t most, struct buf *ret, bool *ret_cut);

/* The bytes of a bytes object, at most `most`. False: it is none, is longer, or cannot be read. */
bool python_bytes(struct python *p, uint64_t object, size_t most, struct buf *ret);

/* Whether the object's type has the bit in tp_flags. */
#define PYTHON_FLAG_BYTES (1ULL << 27)
#define PYTHON_FLAG_STR (1ULL << 28)
bool python_has_flag(struct python *p, uint64_t object, uint64_t flag);

#endif
