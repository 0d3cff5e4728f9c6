/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rules of one object file as a block of bytes that can be copied anywhere (tables_layout.h).
 *
 * Made in steps, because of a compiler with a million rows it takes a tenth of a second. Nothing of it stays in the
 * module: its own rows are not expanded for this.
 */
#ifndef SONDE_HEAP_TABLE_BLOB_H
#define SONDE_HEAP_TABLE_BLOB_H

#include <stddef.h>
#include <stdint.h>

#include "unwind/unwind.h"

struct blob_builder;

/* The module is borrowed. 0 or -ENOMEM. */
int blob_builder_new(const struct unwind_module *module, struct blob_builder **ret, struct err *err);
void blob_builder_free(struct blob_builder *b);

/* Works for about so long; UINT64_MAX: until it is done. 1: done, 0: there is more, or -ENOMEM. */
int blob_builder_work(struct blob_builder *b, uint64_t ns);

/* Once it is done: the bytes, the caller's (free()), a multiple of 8. 0 or -ENOMEM. */
int blob_builder_take(struct blob_builder *b, void **ret, size_t *ret_bytes);

#endif
