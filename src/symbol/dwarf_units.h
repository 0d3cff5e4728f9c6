/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which code belongs to which DWARF unit, function and inlined call.
 *
 * Three indexes, each built when it is first needed: ranges of all units (once), functions of a
 * unit (when an address falls into it), inlined calls of a function (likewise). libdw answers the
 * same questions by walking the tree for each address.
 */
#ifndef SONDE_SYMBOL_DWARF_UNITS_H
#define SONDE_SYMBOL_DWARF_UNITS_H

#include <elfutils/libdw.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"

/* Code of an inlined call; `depth` counts the calls around it. One entry a range, in the order of
 * the tree: what is around comes first. */
struct inline_range {
	uint64_t low, high;
	Dwarf_Off die;
	uint32_t depth;
};

struct dwarf_function {
	uint64_t low, high;
	Dwarf_Off die;
	uint32_t inlines; /* index into `inline_lists` plus one; 0 = not read yet */
};

VEC_TYPE(inline_list, struct inline_range);

struct dwarf_unit {
	Dwarf_Die die;  /* with the line table */
	Dwarf_Die code; /* with the functions: another one for split DWARF */
	Dwarf *code_dwarf;
	const char *directory; /* it was compiled in; may be NULL */
	bool loaded;
	bool qualified; /* a language with namespaces */
	VEC(struct dwarf_function) functions;
	VEC(struct inline_list) inline_lists;
	Dwarf_Lines *lines;
	size_t line_count;
	Dwarf_Files *files;
};

struct unit_range {
	uint64_t low, high;
	uint32_t unit;
};

struct dwarf_units {
	VEC(struct dwarf_unit) units;
	VEC(struct unit_range) ranges;
	uint64_t walked_bytes; /* of .debug_info, by what was loaded so far */
	bool follow_split; /* .dwo files may be opened by their path */
	bool has_split;    /* and one was */
	bool no_lines;     /* nobody will ask for lines */
};

/* Reads the ranges of all units; what is broken is left out. 0, -ENOMEM, or -E2BIG for more ranges
 * than a compiler writes. */
int dwarf_units_read(struct dwarf_units *u, Dwarf *dwarf);

/* The unit whose code covers the address, ready for use; NULL when there is none. */
struct dwarf_unit *dwarf_units_find(struct dwarf_units *u, uint64_t address);

struct dwarf_function *dwarf_unit_function(struct dwarf_unit *unit, uint64_t address);

/* The inlined calls of a function. NULL when out of memory. */
const struct inline_list *dwarf_unit_inlines(struct dwarf_unit *unit, struct dwarf_function *fn);

/* Makes all that a unit has ready, as dwarf_units_find() does; index < units.len. */
struct dwarf_unit *dwarf_units_load(struct dwarf_units *u, size_t index);

/* Whether the unit is of a language with namespaces. */
bool dwarf_has_namespaces(Dwarf_Die *unit);

/* The DIE after `die` in the file, false at the end. */
bool dwarf_next_sibling(Dwarf_Die *die);

void dwarf_units_release(struct dwarf_units *u);

#endif
