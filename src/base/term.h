/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What stands at the other end of an output stream, asked once and then passed around as facts:
 * views take a `struct term` and never look at the environment themselves, so tests can draw for
 * any terminal.
 */
#ifndef SONDE_BASE_TERM_H
#define SONDE_BASE_TERM_H

#include <stdbool.h>
#include <stddef.h>

struct term {
	bool interactive; /* a terminal, not a file or a pipe */
	bool colour;      /* may be coloured: a terminal, not TERM=dumb, NO_COLOR unset or empty */
	bool unicode;     /* the locale's encoding is UTF-8: box characters are fine */
	size_t columns;   /* 80 where nobody knows */
	size_t rows;      /* 24 where nobody knows */
};

/* Looks at `fd`, and at TERM, NO_COLOR (no-color.org), COLUMNS, LINES and the locale variables. */
struct term term_describe(int fd);

/* Display cells of UTF-8 text: combining characters 0, East Asian wide 2; a byte that is not UTF-8
 * counts 1. */
size_t term_width(const char *s);

/* Bytes of the longest start of `s` that fits `columns` cells. */
size_t term_fit(const char *s, size_t columns);

#endif
