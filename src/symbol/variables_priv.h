/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of variables.h: variables.c (files, scopes), variable_types.c, variable_place.c,
 * variable_globals.c. */
#ifndef SONDE_SYMBOL_VARIABLES_PRIV_H
#define SONDE_SYMBOL_VARIABLES_PRIV_H

#include <dwarf.h>

#include "base/intern.h"
#include "symbol/dwarf_image.h"
#include "symbol/dwarf_units.h"
#include "symbol/symbol_priv.h"
#include "symbol/variables.h"

/* Public part first: a pointer to it is one to the whole. */
struct type_node {
	struct variable_type shown;
	Dwarf_Die die; /* typedefs and qualifiers seen through */
	const char *full_name;
	const struct variable_type *target;
	bool target_read, members_read;
	VEC(struct variable_member) members;
	VEC(Dwarf_Die) member_dies; /* one for each */
};

struct variable_extra {
	Dwarf_Die die;
	Dwarf_Die owner; /* the function, or the inlined call */
	Dwarf_Die block; /* the innermost scope around it, owner or block */
};

/* What is in scope at one address. */
struct variable_scope {
	uint64_t address;
	Dwarf_Die function;
	VEC(struct variable) variables;
	VEC(struct variable_extra) extras; /* one for each */
};

struct global_node {
	uint64_t start, size;
	Dwarf_Die die;
};

struct object_symbol {
	uint64_t start, end;
	const char *name; /* as in the file */
};

struct variables {
	struct elf_file *file;  /* borrowed */
	struct elf_file *debug; /* where the rest is; NULL */
	char *root, *debug_dir;
	bool use_debuginfod, symbols_only, prepared;
	struct dwarf_image image;
	struct dwarf_units units;
	struct intern strings;
	struct number_map types;  /* DIE's address in our memory -> struct type_node */
	struct number_map scopes; /* address -> index into scope_list, plus one */
	VEC(struct type_node *) type_list;
	VEC(struct variable_scope *) scope_list;
	VEC(struct object_symbol) objects;
	VEC(struct global_node) globals;
	VEC(bool) globals_read; /* a unit each */
	uint64_t info_bytes;    /* of .debug_info */
	bool objects_read, all_globals_read;
	VEC(uint64_t) callees;     /* functions whose symbol has callee_symbol in it */
	const char *callee_symbol; /* NULL: not read yet */
	unsigned nested_arrays; /* being read */
};

/* Opens the debug files, once. False: there is no DWARF. */
bool variables_ready(struct variables *v);

const char *variables_keep(struct variables *v, const char *text); /* never NULL */

/* The type that DW_AT_type of the DIE names; NULL: none. */
const struct variable_type *variables_type_of(struct variables *v, Dwarf_Die *die);

/* "a::b::name" by the scopes around the DIE's declaration; `in_function` says whether one is a function. */
const char *variables_full_name(struct variables *v, Dwarf_Die die, const char *name, bool *in_function);

/* *die becomes what its attribute refers to, when it has it. */
bool variables_follow(Dwarf_Die *die, unsigned attribute);

const char *variables_die_name(Dwarf_Die *die); /* never NULL */
uint32_t variables_die_line(Dwarf_Die *die, const char **ret_file);
bool variables_number(Dwarf_Die *die, unsigned attribute, uint64_t *ret);

void variables_release_types(struct variables *v);
void variables_release_globals(struct variables *v);

#endif
