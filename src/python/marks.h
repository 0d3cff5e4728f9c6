/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A set of addresses: a bit for each aligned word, for those parts of the address space that have any.
 * It takes 1/64 of the memory whose objects are in it. All-zero is empty. Not for two threads at once.
 */
#ifndef SONDE_PYTHON_MARKS_H
#define SONDE_PYTHON_MARKS_H

#include <stdbool.h>

#include "base/table.h"

#define MARKS_WORDS 128u /* of 64 bits: a block is of 64 KiB of addresses */

struct marks_block {
	struct table_node node; /* address / 64 KiB */
	uint64_t bits[MARKS_WORDS];
};

struct marks {
	struct table table;
	struct marks_block *last;
	uint64_t count;
};

void marks_release(struct marks *m);

/* 1: added, 0: it was there, -ENOMEM. `address` is a multiple of 8. */
int marks_add(struct marks *m, uint64_t address);
bool marks_have(struct marks *m, uint64_t address);

/* All of them, ascending as far as there is memory to sort them, until `each` returns true, which is returned. None may be added meanwhile. */
bool marks_each(struct marks *m, bool (*each)(void *ctx, uint64_t address), void *ctx);

#endif
