/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Function symbols sorted by address, for looking up which one covers an address.
 *
 * Several symbols at one address are aliases of which one is kept: sized before unsized, FUNC
 * before NOTYPE, global before weak before local, fewer leading underscores, shorter, then by
 * alphabet, so that the choice does not depend on the order in the file.
 *
 * 24 bytes a symbol; names stay where they are (the mapped file).
 */
#ifndef SONDE_SYMBOL_NAME_TABLE_H
#define SONDE_SYMBOL_NAME_TABLE_H

#include "base/vec.h"
#include "elf/elf_file.h"

struct name_entry {
	uint64_t start;
	const char *name;
	uint32_t size; /* 0 = unknown; longer ones are cut to 4 GB */
	uint32_t up;   /* while filling: the rank; then: index of the entry around this one */
};

#define NAME_NONE UINT32_MAX

struct name_table {
	VEC(struct name_entry) entries;
};

/* 0 or -ENOMEM. */
int name_table_add(struct name_table *t, const struct elf_symbol *sym);

/* After the last add: sorts, drops aliases, links nested symbols. */
void name_table_finish(struct name_table *t);

/* The innermost sized entry that covers the address, else the unsized one nearest before it with
 * no other start between; NULL when there is neither. */
const struct name_entry *name_table_find(const struct name_table *t, uint64_t address);

void name_table_release(struct name_table *t);

#endif
