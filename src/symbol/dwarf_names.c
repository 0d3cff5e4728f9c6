/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * libdw reads the DWARF (dwarf_image.h); which DIEs to ask is our index (dwarf_units.h). .dwo files
 * are let through only when they are regular files of our own file system.
 *
 * Terms: DWARF 5, 3.3.8 "Inlined Subroutines". The line of a level is where execution stands in
 * it: the line table's row for the innermost one, the call site of the next inner one above.
 */
#include "symbol/dwarf_names.h"

#include <dwarf.h>
#include <string.h>

#include "base/buf.h"
#include "symbol/dwarf_image.h"
#include "symbol/dwarf_units.h"

/* After walking this much of .debug_info memory is given back. */
#define KEEP_WALKED_BYTES (48u << 20)

struct dwarf_names {
	struct symbol_source *source;
	struct elf_file *file; /* borrowed */
	struct dwarf_image image;
	struct dwarf_units units;
	struct number_map names; /* DIE's address in memory -> name */
	struct number_map files; /* file name's pointer -> absolute and clean */
	uint64_t last_address;
	bool ascending; /* so were the addresses since memory was given back */
};

struct dwarf_names *dwarf_names_open(struct symbol_source *source, struct elf_file *file,
	const char *root, const char *debug_dir)
{
	struct dwarf_names *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->source = source;
	d->file = file;
	d->ascending = true;
	d->units.follow_split = dwarf_image_own_root(root);
	if (dwarf_image_open(&d->image, file, root, debug_dir) &&
		!dwarf_units_read(&d->units, d->image.dwarf) && d->units.ranges.len)
		return d;
	dwarf_names_free(d);
	return NULL;
}

void dwarf_names_free(struct dwarf_names *d)
{
	if (!d)
		return;
	dwarf_units_release(&d->units);
	number_map_release(&d->names);
	number_map_release(&d->files);
	dwarf_image_release(&d->image);
	free(d);
}

static const char *inherited_string(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attr;

	return dwarf_formstring(dwarf_attr_integrate(die, name, &attr));
}

/* *die becomes what its attribute refers to, when it has it. */
static bool follow(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attr;
	Dwarf_Die target;

	if (!dwarf_attr(die, name, &attr) || !dwarf_formref_die(&attr, &target))
		return false;
	*die = target;
	return true;
}

static bool is_named_scope(Dwarf_Die *die)
{
	switch (dwarf_tag(die)) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
		return true;
	default:
		return false;
	}
}

/* "a::b::name" by the scopes around the declaration. */
static const char *qualified_name(struct dwarf_names *d, Dwarf_Die die, const char *name)
{
	Dwarf_Die *scopes = NULL;
	struct buf text = {0};

	for (int i = 0; i < 16 && (follow(&die, DW_AT_abstract_origin) ||
					  follow(&die, DW_AT_specification)); i++)
		;
	int count = dwarf_getscopes_die(&die, &scopes);

	for (int i = count - 1; i > 0; i--) {
		if (!is_named_scope(&scopes[i]))
			continue;
		const char *scope = dwarf_diename(&scopes[i]);
		buf_str(&text, scope ? scope : "(anonymous)");
		buf_str(&text, "::");
	}
	free(scopes);
	buf_str(&text, name);
	const char *kept = text.failed ? NULL : symbol_keep(d->source, text.data);
	buf_release(&text);
	return kept ? kept : name;
}

static const char *read_name(struct dwarf_names *d, const struct dwarf_unit *unit, Dwarf_Die *die)
{
	const char *name = inherited_string(die, DW_AT_linkage_name);

	if (!name)
		name = inherited_string(die, DW_AT_MIPS_linkage_name);
	if (name)
		return symbol_shown_name(d->source, name);
	name = inherited_string(die, DW_AT_name);
	if (name && !strncmp(name, "__pyx_", 6)) /* C, so this is all there is */
		return symbol_shown_name(d->source, name);
	return name && unit->qualified ? qualified_name(d, *die, name) : name;
}

/* NULL when the DIE has no name. Inlined calls share the name of what they are an instance of. */
static const char *name_of(struct dwarf_names *d, const struct dwarf_unit *unit, Dwarf_Die die)
{
	(void)follow(&die, DW_AT_abstract_origin);

	uint64_t known = number_map_get(&d->names, (uintptr_t)die.addr);
	if (known)
		return (const char *)(uintptr_t)known;
	const char *name = read_name(d, unit, &die);
	if (name)
		(void)number_map_put(&d->names, (uintptr_t)die.addr, (uintptr_t)name);
	return name;
}

/* Takes "." and "x/.." out of a path, in place and by its text alone. */
static void clean_path(char *path)
{
	const size_t root = *path == '/';
	size_t len = root, names = 0; /* names: components written that ".." may take back */

	for (const char *at = path + root; *at;) {
		size_t n = strcspn(at, "/");
		const char *next = at + n + (at[n] == '/');
		bool up = n == 2 && at[0] == '.' && at[1] == '.';

		if (up && names) {
			while (len > root && path[--len] != '/')
				;
			names--;
		} else if (n && !(n == 1 && *at == '.') && !(up && root)) {
			if (len > root)
				path[len++] = '/';
			memmove(path + len, at, n);
			len += n;
			names += !up;
		}
		at = next;
	}
	path[len] = '\0';
}

/* `file` as the unit names it, made absolute by the directory it was compiled in. */
static const char *absolute_file(
	struct dwarf_names *d, const struct dwarf_unit *unit, const char *file)
{
	uint64_t known = file ? number_map_get(&d->files, (uintptr_t)file) : 0;
	struct buf path = {0};

	if (!file || known)
		return (const char *)(uintptr_t)known;
	if (*file != '/' && unit->directory && *unit->directory == '/') {
		buf_str(&path, unit->directory);
		buf_char(&path, '/');
	}
	buf_str(&path, file);
	if (!path.failed)
		clean_path(path.data);
	const char *kept = path.failed ? NULL : symbol_keep(d->source, path.data);
	buf_release(&path);
	if (!kept)
		return NULL;
	(void)number_map_put(&d->files, (uintptr_t)file, (uintptr_t)kept);
	return kept;
}

/* The row of the line table that covers the address. */
static void read_line(struct dwarf_names *d, const struct dwarf_unit *unit, uint64_t address,
	struct symbol_level *ret)
{
	size_t low = 0, high = unit->line_count;
	Dwarf_Addr at;
	bool end = true;
	int line;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (dwarf_lineaddr(dwarf_onesrcline(unit->lines, mid), &at))
			return;
		if (at <= address)
			low = mid + 1;
		else
			high = mid;
	}
	Dwarf_Line *row = low ? dwarf_onesrcline(unit->lines, low - 1) : NULL;
	if (!row || dwarf_lineendsequence(row, &end) || end)
		return;
	ret->file = absolute_file(d, unit, dwarf_linesrc(row, NULL, NULL));
	ret->line = !dwarf_lineno(row, &line) && line > 0 ? (uint32_t)line : 0;
}

static uint64_t number_attribute(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;

	return dwarf_formudata(dwarf_attr(die, name, &attr), &value) ? 0 : value;
}

static void read_call_site(struct dwarf_names *d, const struct dwarf_unit *unit,
	Dwarf_Die *inlined, struct symbol_level *ret)
{
	uint64_t file = number_attribute(inlined, DW_AT_call_file);
	uint64_t line = number_attribute(inlined, DW_AT_call_line);

	ret->line = line <= INT32_MAX ? (uint32_t)line : 0;
	ret->file = unit->files && dwarf_hasattr(inlined, DW_AT_call_file)
		? absolute_file(d, unit, dwarf_filesrc(unit->files, file, NULL, NULL))
		: NULL;
}

/* The inlined calls around the address, outermost first. */
static size_t find_chain(
	const struct inline_list *list, uint64_t address, Dwarf_Off *ret, size_t max)
{
	size_t count = 0;

	vec_each(list, r)
		if (r->depth == count && count < max && r->low <= address && address < r->high)
			ret[count++] = r->die;
	return count;
}

/*
 * libdw keeps the line table of every unit it was asked about, ten times its size in the file. Who
 * asks in ascending order is done with earlier units: then all of libdw's memory is dropped and
 * its part starts anew, at the price of reading a unit again that has code in several places.
 * Names stay valid, they lie in the file's image; those of .dwo files would not.
 */
static void bound_memory(struct dwarf_names *d, uint64_t address)
{
	const bool ascending = d->ascending && address >= d->last_address;

	d->ascending = ascending;
	d->last_address = address;
	if (d->units.walked_bytes <= KEEP_WALKED_BYTES)
		return;
	d->ascending = true;
	d->units.walked_bytes = 0;
	elf_file_rest(d->file);
	if (!ascending || d->units.has_split)
		return;
	dwarf_units_release(&d->units);
	number_map_release(&d->files);
	if (dwarf_image_reopen(&d->image))
		(void)dwarf_units_read(&d->units, d->image.dwarf);
}

size_t dwarf_names_resolve(struct dwarf_names *d, uint64_t address, struct symbol_level *levels)
{
	Dwarf_Off chain[SYMBOL_MAX_LEVELS - 1];
	struct symbol_level here = {0};
	size_t count = 0;
	Dwarf_Die die;

	bound_memory(d, address);
	struct dwarf_unit *unit = dwarf_units_find(&d->units, address);
	if (!unit)
		return 0;
	read_line(d, unit, address, &here);
	struct dwarf_function *fn = dwarf_unit_function(unit, address);
	const struct inline_list *inlines = fn ? dwarf_unit_inlines(unit, fn) : NULL;
	size_t depth = inlines ? find_chain(inlines, address, chain, SYMBOL_MAX_LEVELS - 1) : 0;

	while (depth--) {
		if (!dwarf_offdie(unit->code_dwarf, chain[depth], &die))
			continue;
		here.name = name_of(d, unit, die);
		if (!here.name)
			here.name = "(inlined)";
		levels[count++] = here;
		read_call_site(d, unit, &die, &here);
	}
	here.name = NULL;
	if (fn && dwarf_offdie(unit->code_dwarf, fn->die, &die))
		here.name = name_of(d, unit, die);
	levels[count++] = here;
	return count;
}
