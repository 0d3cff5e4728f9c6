/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where functions start according to .eh_frame: known even in stripped files, and what keeps an
 * unsized symbol from covering its neighbours.
 */
#ifndef SONDE_SYMBOL_FUNCTION_STARTS_H
#define SONDE_SYMBOL_FUNCTION_STARTS_H

#include "base/vec.h"
#include "elf/elf_file.h"

struct function_starts {
	/* The search table of .eh_frame_hdr, used where it lies... */
	const uint8_t *table;
	size_t table_count;
	uint64_t table_base;
	/* ... or, without one, what a scan of .eh_frame found. */
	VEC(uint64_t) sorted;
};

/* Leaves it empty when the file has neither. 0 or -ENOMEM. */
int function_starts_read(struct elf_file *f, struct function_starts *ret);

/* The last start at or before the address. False when there is none. */
bool function_starts_find(const struct function_starts *s, uint64_t address, uint64_t *ret);

void function_starts_release(struct function_starts *s);

#endif
