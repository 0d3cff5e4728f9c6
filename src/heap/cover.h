/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What a library that is loaded before all others will see of a program, by its file: docs/HEAP.md, "What is not seen".
 */
#ifndef SONDE_HEAP_COVER_H
#define SONDE_HEAP_COVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum heap_cover_kind {
	HEAP_COVERED,
	HEAP_STATIC,        /* it takes no library; probes may see it (heap/probes.h) */
	HEAP_NOT_PRELOADED, /* nothing can be loaded into it: it would run unseen */
	HEAP_OWN_ALLOCATOR, /* it has a malloc of its own, which stands before the library's */
};

struct heap_cover {
	enum heap_cover_kind kind;
	bool own_malloc; /* HEAP_OWN_ALLOCATOR: it is called "malloc", and so is the only one in the process */
	char words[400]; /* "" when it is covered; else what is so, and what can be done, without the name of the file */
};

/* Of the program that exec of this file runs: of the interpreter where the file is a script. A file that cannot be read
 * counts as covered. */
void heap_cover_file(const char *path, struct heap_cover *ret);

/* The file of that program: `path`, or the interpreter of a script. */
void heap_cover_program(const char *path, char *ret, size_t size);

/* The library whose malloc a process calls, as it knows it: a shared allocator, else the C library. -ENOENT: there is none
 * that is known, *ret is "". */
int heap_cover_allocator(pid_t pid, char *ret, size_t size);

#endif
