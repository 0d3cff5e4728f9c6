/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/in_root.h"
#include "symbol/dwarf_units.h"

#include <dwarf.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>


/* Far above what compilers write; DIEs that share one range list would fill memory without. */
#define MAX_RANGES_A_DIE (1u << 16)
#define MAX_FUNCTIONS_A_UNIT (1u << 22)
#define MAX_INLINES_A_FUNCTION (1u << 20)
#define MAX_UNIT_RANGES (1u << 24)
#define MAX_SCOPE_DEPTH 32
#define MAX_BLOCK_DEPTH 256
#define MAX_OVERLAP 64 /* entries looked at before the nearest one */

/* Calls `each` for every range of code of a DIE. Address 0 and inverted ranges are what linkers
 * leave of removed functions. */
static int each_range(
	Dwarf_Die *die, int (*each)(void *ctx, uint64_t low, uint64_t high), void *ctx)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t at = 0;
	int rc = 0;

	for (size_t i = 0; !rc && i < MAX_RANGES_A_DIE; i++) {
		at = dwarf_ranges(die, at, &base, &low, &high);
		if (at <= 0)
			break;
		if (low && low < high)
			rc = each(ctx, low, high);
	}
	return rc;
}

struct unit_adder {
	struct dwarf_units *u;
	uint32_t unit;
};

static int add_unit_range(void *ctx, uint64_t low, uint64_t high)
{
	struct unit_adder *a = ctx;
	struct unit_range r = {low, high, a->unit};

	return a->u->ranges.len < MAX_UNIT_RANGES ? vec_push(&a->u->ranges, r) : -E2BIG;
}

static int compare_ranges(const void *va, const void *vb)
{
	const struct unit_range *a = va, *b = vb;

	if (a->low != b->low)
		return (a->low > b->low) - (a->low < b->low);
	return (a->high < b->high) - (a->high > b->high);
}

int dwarf_units_read(struct dwarf_units *u, Dwarf *dwarf)
{
	Dwarf_CU *cu = NULL;
	Dwarf_Die die;

	while (!dwarf_get_units(dwarf, cu, &cu, NULL, NULL, &die, NULL)) {
		struct dwarf_unit unit = {.die = die};
		struct unit_adder adder = {u, (uint32_t)u->units.len};

		int tag = dwarf_tag(&die);

		if (tag != DW_TAG_compile_unit && tag != DW_TAG_skeleton_unit)
			continue;
		if (vec_push(&u->units, unit))
			return -ENOMEM;
		int rc = each_range(&die, add_unit_range, &adder);
		if (rc)
			return rc;
	}
	if (u->ranges.len)
		qsort(u->ranges.data, u->ranges.len, sizeof(struct unit_range), compare_ranges);
	return 0;
}

struct function_adder {
	struct dwarf_unit *unit;
	Dwarf_Off die;
};

static int add_function(void *ctx, uint64_t low, uint64_t high)
{
	struct function_adder *a = ctx;
	struct dwarf_function f = {.low = low, .high = high, .die = a->die};

	return a->unit->functions.len < MAX_FUNCTIONS_A_UNIT ? vec_push(&a->unit->functions, f)
							     : -E2BIG;
}

static bool holds_functions(int tag)
{
	switch (tag) {
	case DW_TAG_namespace:
	case DW_TAG_module:
	case DW_TAG_class_type:
	case DW_TAG_structure_type:
	case DW_TAG_union_type:
	case DW_TAG_enumeration_type:
	case DW_TAG_interface_type:
		return true;
	default:
		return false;
	}
}

/* The DIE after `die`, only ever forward: a sibling attribute may point anywhere. */
bool dwarf_next_sibling(Dwarf_Die *die)
{
	Dwarf_Off before = dwarf_dieoffset(die);
	Dwarf_Die next;

	if (dwarf_siblingof(die, &next) || dwarf_dieoffset(&next) <= before)
		return false;
	*die = next;
	return true;
}

static int collect_functions(struct dwarf_unit *unit, Dwarf_Die *scope, int depth)
{
	Dwarf_Die die;
	int rc = 0;

	if (depth > MAX_SCOPE_DEPTH || dwarf_child(scope, &die))
		return 0;
	do {
		int tag = dwarf_tag(&die);

		if (tag == DW_TAG_subprogram) {
			struct function_adder adder = {unit, dwarf_dieoffset(&die)};
			rc = each_range(&die, add_function, &adder);
		} else if (holds_functions(tag) && dwarf_haschildren(&die) > 0) {
			rc = collect_functions(unit, &die, depth + 1);
		}
	} while (!rc && dwarf_next_sibling(&die));
	return rc;
}

static int compare_functions(const void *va, const void *vb)
{
	const struct dwarf_function *a = va, *b = vb;

	if (a->low != b->low)
		return (a->low > b->low) - (a->low < b->low);
	return (a->high < b->high) - (a->high > b->high);
}

static const char *string_attribute(Dwarf_Die *die, unsigned name)
{
	Dwarf_Attribute attr;

	return dwarf_formstring(dwarf_attr(die, name, &attr));
}

/* libdw opens the .dwo by itself; it may only be shown paths that are regular files. */
static bool split_file_is_plain(Dwarf_Die *die)
{
	const char *dir = string_attribute(die, DW_AT_comp_dir);
	const char *name = string_attribute(die, DW_AT_dwo_name);
	char path[PATH_MAX];

	if (!name)
		name = string_attribute(die, DW_AT_GNU_dwo_name);
	if (!name || (*name != '/' && !dir))
		return false;
	if ((size_t)snprintf(path, sizeof(path), "%s/%s", *name == '/' ? "" : dir, name) >=
		sizeof(path))
		return false;
	int fd = in_root_open("", path, false);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

static void find_split_unit(struct dwarf_unit *unit)
{
	Dwarf_Die split = {0};
	uint8_t type;

	if (dwarf_cu_info(unit->die.cu, NULL, &type, NULL, NULL, NULL, NULL, NULL) ||
		type != DW_UT_skeleton || !split_file_is_plain(&unit->die))
		return;
	if (!dwarf_cu_info(unit->die.cu, NULL, NULL, NULL, &split, NULL, NULL, NULL) && split.addr)
		unit->code = split;
}

bool dwarf_has_namespaces(Dwarf_Die *die)
{
	switch (dwarf_srclang(die)) {
	case -1:
	case DW_LANG_C:
	case DW_LANG_C89:
	case DW_LANG_C99:
	case DW_LANG_C11:
	case DW_LANG_Go:
	case DW_LANG_Mips_Assembler:
		return false;
	default:
		return true;
	}
}

/* From this unit to the next one. */
static uint64_t unit_bytes(const struct dwarf_units *u, struct dwarf_unit *unit)
{
	struct dwarf_unit *next = unit + 1;

	return next < u->units.data + u->units.len
		? dwarf_dieoffset(&next->die) - dwarf_dieoffset(&unit->die)
		: 0;
}

static void load_unit(struct dwarf_units *u, struct dwarf_unit *unit)
{
	unit->loaded = true;
	u->walked_bytes += unit_bytes(u, unit);
	unit->code = unit->die;
	if (u->follow_split)
		find_split_unit(unit);
	u->has_split |= unit->code.cu != unit->die.cu;
	unit->code_dwarf = dwarf_cu_getdwarf(unit->code.cu);
	unit->qualified = dwarf_has_namespaces(&unit->code);
	unit->directory = string_attribute(&unit->die, DW_AT_comp_dir);
	(void)collect_functions(unit, &unit->code, 0); /* too many: fewer names */
	if (unit->functions.len)
		qsort(unit->functions.data, unit->functions.len, sizeof(struct dwarf_function),
			compare_functions);
	if (u->no_lines)
		return;
	if (dwarf_getsrclines(&unit->die, &unit->lines, &unit->line_count))
		unit->line_count = 0;
	size_t count;
	if (dwarf_getsrcfiles(&unit->code, &unit->files, &count))
		unit->files = NULL;
}

struct dwarf_unit *dwarf_units_load(struct dwarf_units *u, size_t index)
{
	struct dwarf_unit *unit = &u->units.data[index];

	if (!unit->loaded)
		load_unit(u, unit);
	return unit;
}

/* How many of `count` sorted elements start at or before the address. */
#define COUNT_STARTING_BY(v, address)                                                              \
	({                                                                                         \
		size_t low_ = 0, high_ = (v)->len;                                                 \
		while (low_ < high_) {                                                             \
			size_t mid_ = low_ + (high_ - low_) / 2;                                   \
			if ((v)->data[mid_].low <= (address))                                      \
				low_ = mid_ + 1;                                                   \
			else                                                                       \
				high_ = mid_;                                                      \
		}                                                                                  \
		low_;                                                                              \
	})

struct dwarf_unit *dwarf_units_find(struct dwarf_units *u, uint64_t address)
{
	size_t i = COUNT_STARTING_BY(&u->ranges, address);

	for (int tries = 0; i && tries < MAX_OVERLAP; tries++) {
		const struct unit_range *r = &u->ranges.data[--i];

		if (address >= r->high)
			continue;
		return dwarf_units_load(u, r->unit);
	}
	return NULL;
}

struct dwarf_function *dwarf_unit_function(struct dwarf_unit *unit, uint64_t address)
{
	size_t i = COUNT_STARTING_BY(&unit->functions, address);

	for (int tries = 0; i && tries < MAX_OVERLAP; tries++)
		if (address < unit->functions.data[--i].high)
			return &unit->functions.data[i];
	return NULL;
}

struct inline_adder {
	struct inline_list *list;
	Dwarf_Off die;
	uint32_t depth;
};

static int add_inline(void *ctx, uint64_t low, uint64_t high)
{
	struct inline_adder *a = ctx;
	struct inline_range r = {low, high, a->die, a->depth};

	return a->list->len < MAX_INLINES_A_FUNCTION ? vec_push(a->list, r) : -E2BIG;
}

/* Inlined calls stand in the function, in each other, and in lexical blocks. */
static int collect_inlines(struct inline_list *list, Dwarf_Die *scope, uint32_t depth, int nesting)
{
	Dwarf_Die die;
	int rc = 0;

	if (nesting > MAX_BLOCK_DEPTH || dwarf_child(scope, &die))
		return 0;
	do {
		switch (dwarf_tag(&die)) {
		case DW_TAG_inlined_subroutine: {
			struct inline_adder adder = {list, dwarf_dieoffset(&die), depth};
			rc = each_range(&die, add_inline, &adder);
			if (!rc)
				rc = collect_inlines(list, &die, depth + 1, nesting + 1);
			break;
		}
		case DW_TAG_lexical_block:
		case DW_TAG_try_block:
		case DW_TAG_catch_block:
		case DW_TAG_with_stmt:
			rc = collect_inlines(list, &die, depth, nesting + 1);
			break;
		default:
			break;
		}
	} while (!rc && dwarf_next_sibling(&die));
	return rc;
}

/* The functions of one DIE (hot and cold parts) each get their own copy of the list: rare. */
const struct inline_list *dwarf_unit_inlines(struct dwarf_unit *unit, struct dwarf_function *fn)
{
	struct inline_list list = {0};
	Dwarf_Die die;

	if (fn->inlines)
		return &unit->inline_lists.data[fn->inlines - 1];
	if (!dwarf_offdie(unit->code_dwarf, fn->die, &die))
		return NULL;
	if (collect_inlines(&list, &die, 0, 0))
		vec_release(&list); /* too many: none, and not tried again */
	if (vec_push(&unit->inline_lists, list)) {
		vec_release(&list);
		return NULL;
	}
	fn->inlines = (uint32_t)unit->inline_lists.len;
	return &unit->inline_lists.data[fn->inlines - 1];
}

void dwarf_units_release(struct dwarf_units *u)
{
	vec_each(&u->units, unit) {
		vec_each(&unit->inline_lists, list)
			vec_release(list);
		vec_release(&unit->inline_lists);
		vec_release(&unit->functions);
	}
	vec_release(&u->units);
	vec_release(&u->ranges);
	u->walked_bytes = 0;
}
