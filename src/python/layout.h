/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where each field of CPython's structs is, for one process.
 *
 * python_layout(p)->thread.next is the offset of PyThreadState.next there, in bytes; members called
 * `bytes` are sizes. A field that the version does not have is PYTHON_ABSENT. To add a field, add a line to layout.list.
 *
 * layout_tables.c has the numbers of each version, out of its headers. From 3.13 on _PyRuntime begins with a
 * table of many of them (_Py_DebugOffsets); what that says is taken instead, when it can be true.
 */
#ifndef SONDE_PYTHON_LAYOUT_H
#define SONDE_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "python/layout_fields.h"

#define PYTHON_ABSENT UINT32_MAX

/* What a column of the tables is of. */
struct python_layout_column {
	uint8_t minor;
	bool free_threaded;
	uint32_t from_version; /* the first PY_VERSION_HEX it is of */
	uint32_t own_bytes;    /* sizeof(_Py_DebugOffsets); 0: it has none */
};
extern const struct python_layout_column python_layout_columns[PYTHON_LAYOUT_COLUMNS];

extern const uint32_t python_layout_x86_64[PYTHON_LAYOUT_FIELDS][PYTHON_LAYOUT_COLUMNS];
extern const uint32_t python_layout_aarch64[PYTHON_LAYOUT_FIELDS][PYTHON_LAYOUT_COLUMNS];
extern const uint32_t python_layout_own[PYTHON_LAYOUT_FIELDS][PYTHON_LAYOUT_COLUMNS];

/* The column of a version; -1: there is none, and it is refused. */
int python_layout_column_of(uint32_t version, bool free_threaded);

/*
 * The layout of a version by the tables. False: there is none. `aarch64` is its C library's layout of
 * mutexes: that of glibc there; musl there has the one of x86-64.
 */
bool python_layout_of(uint32_t version, bool free_threaded, bool aarch64, struct python_layout *ret);

/* No _Py_DebugOffsets of any version is larger. */
#define PYTHON_OWN_MOST 1024u

/*
 * Puts in *layout what the process says itself; `table` is the start of its _PyRuntime, of which `bytes`
 * could be read. -EOPNOTSUPP with words: what it says cannot be.
 */
int python_layout_from_own(uint32_t version, bool free_threaded, const uint8_t *table, size_t bytes,
	struct python_layout *layout, struct err *err);

/* How many bytes its _Py_DebugOffsets has; 0: it has none, or it is not known. */
size_t python_layout_own_bytes(uint32_t version, bool free_threaded);

#endif
