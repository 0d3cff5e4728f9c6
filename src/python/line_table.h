/* SPDX-License-Identifier: BSD-2-Clause */
/* The three forms in which code objects say which line an instruction is of. */
#ifndef SONDE_PYTHON_LINE_TABLE_H
#define SONDE_PYTHON_LINE_TABLE_H

#include "python/python.h"

enum python_line_form {
	PYTHON_LNOTAB,    /* to 3.9: co_lnotab; CPython's Objects/lnotab_notes.txt */
	PYTHON_LINETABLE, /* 3.10: co_linetable; PEP 626 */
	PYTHON_LOCATIONS, /* from 3.11 on: with columns; CPython's Objects/locations.md */
};

/* Positions of the instructions from `start` (a byte in the bytecode) up to the next one's. */
struct python_range {
	uint32_t start;
	struct python_position position;
};
VEC_TYPE(python_ranges, struct python_range);

/* Appends the ranges of a table, ascending. A table that makes no sense ends where it stops to. -ENOMEM. */
int python_ranges_decode(enum python_line_form form, const uint8_t *table, size_t len,
	uint32_t first_line, struct python_ranges *ret);

/* The position at a byte of the bytecode; all 0: none. */
struct python_position python_ranges_find(const struct python_ranges *ranges, uint32_t offset);

#endif
