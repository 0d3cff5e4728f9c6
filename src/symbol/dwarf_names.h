/* SPDX-License-Identifier: BSD-2-Clause */
/* Inline chains with file and line from the DWARF of one object file. */
#ifndef SONDE_SYMBOL_DWARF_NAMES_H
#define SONDE_SYMBOL_DWARF_NAMES_H

#include "elf/elf_file.h"
#include "symbol/symbol_priv.h"

struct dwarf_names;

/* `file` holds .debug_info and outlives the result. Names are kept in `source`. NULL when there is
 * nothing libdw can read. */
struct dwarf_names *dwarf_names_open(struct symbol_source *source, struct elf_file *file,
	const char *root, const char *debug_dir);

/* Fills levels as symbol_resolve() gives them and returns their number, 0 when the address is in no
 * unit. The last one's name is NULL when only its line is known. */
size_t dwarf_names_resolve(struct dwarf_names *d, uint64_t address, struct symbol_level *levels);

void dwarf_names_free(struct dwarf_names *d);

#endif
