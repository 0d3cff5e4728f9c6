/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Variables with a fixed address. Symbols name them at once. DWARF knows their types, but has no index by
 * address, so units are walked: all of them where there is little to walk, else those of the code that was
 * asked about before, which is the code that uses the variable.
 */
#include "symbol/variables_priv.h"

#include <stdlib.h>
#include <string.h>

/* About 50 ms. */
#define WALK_ALL_BYTES (8u << 20)
#define MAX_GLOBALS (1u << 20)
#define MAX_DIES_A_UNIT (1u << 20)
#define MAX_DEPTH 32

/* ---- symbols ---- */

static int add_object(void *ctx, const struct elf_symbol *sym)
{
	struct variables *v = ctx;
	struct object_symbol o = {sym->start, sym->end, sym->name};

	return sym->end > sym->start ? vec_push(&v->objects, o) : 0;
}

/* By start; of those at one address the longest first, then by name, so that the choice is always the same. */
static int compare_objects(const void *va, const void *vb)
{
	const struct object_symbol *a = va, *b = vb;

	if (a->start != b->start)
		return (a->start > b->start) - (a->start < b->start);
	if (a->end != b->end)
		return (a->end < b->end) - (a->end > b->end);
	return strcmp(b->name, a->name);
}

static void read_objects(struct variables *v)
{
	v->objects_read = true;
	(void)variables_ready(v);
	(void)elf_file_each_object(v->file, add_object, v);
	if (v->debug)
		(void)elf_file_each_object(v->debug, add_object, v);
	if (v->objects.len)
		qsort(v->objects.data, v->objects.len, sizeof(*v->objects.data), compare_objects);
}

static const struct object_symbol *find_object(struct variables *v, uint64_t address)
{
	size_t low = 0, high;

	if (!v->objects_read)
		read_objects(v);
	high = v->objects.len;
	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (v->objects.data[mid].start <= address)
			low = mid + 1;
		else
			high = mid;
	}
	for (int tries = 0; low && tries < 16; tries++)
		if (address < v->objects.data[--low].end)
			return &v->objects.data[low];
	return NULL;
}

static const char *shown_name(struct variables *v, const char *name)
{
	char *plain = symbol_demangle(name);
	const char *at, *kept = plain ? plain : name;

	/* "name@VERSION" of .symtab. */
	at = kept == name || !strcmp(kept, name) ? strchr(kept, '@') : NULL;
	if (plain && at && at != kept)
		plain[at - kept] = '\0';
	kept = variables_keep(v, kept);
	free(plain);
	return kept;
}

/* ---- DWARF ---- */

static bool fixed_address(Dwarf_Die *die, uint64_t *ret)
{
	Dwarf_Attribute attr, operand;
	Dwarf_Addr addr;
	Dwarf_Op *ops;
	size_t count;

	if (!dwarf_attr(die, DW_AT_location, &attr) || dwarf_getlocation(&attr, &ops, &count) ||
		count != 1)
		return false;
	switch (ops[0].atom) {
	case DW_OP_addr:
		*ret = ops[0].number;
		return true;
	case DW_OP_addrx:
	case DW_OP_GNU_addr_index:
		if (dwarf_getlocation_attr(&attr, &ops[0], &operand) || dwarf_formaddr(&operand, &addr))
			return false;
		*ret = addr;
		return true;
	default:
		return false;
	}
}

static void add_global(struct variables *v, Dwarf_Die *die)
{
	struct global_node g = {.die = *die};
	const struct variable_type *t;

	if (v->globals.len >= MAX_GLOBALS || !fixed_address(die, &g.start) || !g.start)
		return;
	t = variables_type_of(v, die);
	g.size = t ? t->size : 0;
	if (g.size)
		(void)vec_push(&v->globals, g);
}

static bool may_hold_globals(int tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_subprogram:
	case DW_TAG_lexical_block:
		return true;
	default:
		return false;
	}
}

static void collect_globals(struct variables *v, Dwarf_Die *scope, int depth, size_t *left)
{
	Dwarf_Die die;

	if (depth > MAX_DEPTH || dwarf_child(scope, &die))
		return;
	do {
		int tag = dwarf_tag(&die);

		if (!*left)
			return;
		--*left;
		if (tag == DW_TAG_variable)
			add_global(v, &die);
		else if (may_hold_globals(tag))
			collect_globals(v, &die, depth + 1, left);
	} while (dwarf_next_sibling(&die));
}

static void read_unit_globals(struct variables *v, size_t index)
{
	size_t left = MAX_DIES_A_UNIT;

	if (v->globals_read.data[index])
		return;
	v->globals_read.data[index] = true;
	collect_globals(v, &dwarf_units_load(&v->units, index)->code, 0, &left);
}

static void read_globals(struct variables *v, bool all)
{
	if (vec_reserve(&v->globals_read, v->units.units.len))
		return;
	while (v->globals_read.len < v->units.units.len)
		v->globals_read.data[v->globals_read.len++] = false;
	for (size_t i = 0; i < v->units.units.len; i++)
		if (all || v->units.units.data[i].loaded)
			read_unit_globals(v, i);
	v->all_globals_read |= all;
}

static const struct global_node *covering(struct variables *v, uint64_t address)
{
	vec_each(&v->globals, g)
		if (address - g->start < g->size)
			return g;
	return NULL;
}

static const struct global_node *find_global(struct variables *v, uint64_t address)
{
	const struct global_node *g = NULL;

	if (!variables_ready(v))
		return NULL;
	if (!v->all_globals_read)
		read_globals(v, false);
	g = covering(v, address);
	if (g || v->all_globals_read || v->info_bytes > WALK_ALL_BYTES)
		return g;
	read_globals(v, true);
	return covering(v, address);
}

static void describe(struct variables *v, const struct global_node *g, const struct object_symbol *o,
	struct variable_global *ret)
{
	Dwarf_Die die = g->die;
	bool in_function;
	const char *name = variables_full_name(v, die, variables_die_name(&die), &in_function);

	ret->type = variables_type_of(v, &die);
	ret->line = variables_die_line(&die, &ret->file);
	/* Statics of functions: only C++ and Rust say in the symbol whose they are. */
	if (!*name || (in_function && o && !strchr(o->name, '.')))
		name = o ? shown_name(v, o->name) : name;
	ret->name = name;
}

bool variables_global_at(struct variables *v, uint64_t address, struct variable_global *ret)
{
	const struct object_symbol *o = find_object(v, address);
	const struct global_node *g = find_global(v, address);

	*ret = (struct variable_global){0};
	if (g) {
		ret->offset = address - g->start;
		describe(v, g, o, ret);
	} else if (o) {
		ret->offset = address - o->start;
		ret->name = shown_name(v, o->name);
	}
	return ret->name && *ret->name;
}

void variables_release_globals(struct variables *v)
{
	vec_release(&v->objects);
	vec_release(&v->globals);
	vec_release(&v->globals_read);
}
