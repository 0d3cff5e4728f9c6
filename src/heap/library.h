/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library that is loaded into watched programs: it is part of sonde, and for a run it lies as a file in a directory
 * of its own, which others cannot list and cannot write to.
 */
#ifndef SONDE_HEAP_LIBRARY_H
#define SONDE_HEAP_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct heap_library;

int heap_library_new(struct heap_library **ret, struct err *err);

/* Its path, without spaces and colons, which would end it in LD_PRELOAD. */
const char *heap_library_path(const struct heap_library *l);

/* Whether a process that we may look at has that path in its environment: it, or what it starts, may still load it. */
bool heap_library_in_use(const char *path);

/* The same without a file: its bytes, which live for ever. */
void heap_library_bytes(const void **ret, size_t *ret_size);

/* Removes the file and its directory. */
void heap_library_free(struct heap_library *l);

/* Both stay: programs that live on may start others, which look for it. Whoever comes later removes them when nobody does any
 * more. */
void heap_library_leave(struct heap_library *l);

#endif
