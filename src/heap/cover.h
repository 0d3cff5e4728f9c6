/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a library that is loaded before all others will see of a program, by its file: docs/HEAP.md, "What is not seen".
 */
#ifndef SONDE_HEAP_COVER_H
#define SONDE_HEAP_COVER_H

#include <stdbool.h>

enum heap_cover_kind {
	HEAP_COVERED,
	HEAP_NOT_PRELOADED, /* nothing can be loaded into it: it would run unseen */
	HEAP_OWN_ALLOCATOR, /* it has a malloc of its own, which stands before the library's */
};

struct heap_cover {
	enum heap_cover_kind kind;
	char words[400]; /* "" when it is covered; else what is so, and what can be done, without the name of the file */
};

/* Of the program that exec of this file runs: of the interpreter where the file is a script. A file that cannot be read
 * counts as covered. */
void heap_cover_file(const char *path, struct heap_cover *ret);

#endif
