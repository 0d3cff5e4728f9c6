/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files, and what is in scope at an address.
 *
 * Scopes nest as in the source: function, blocks, inlined calls with blocks of their own. A DIE whose ranges
 * hold the address is gone into, all others are skipped, so an address costs what its own function has.
 */
#include "symbol/variables_priv.h"

#include <string.h>

#include "symbol/debuginfod.h"

#define MAX_DIES_A_FUNCTION (1u << 18)
#define MAX_VARIABLES 4096u
#define MAX_NESTING 256

int variables_new(struct elf_file *file, const struct variables_options *options,
	struct variables **ret, struct err *err)
{
	struct variables *v = calloc(1, sizeof(*v));

	if (!v)
		return err_nomem(err);
	v->file = file;
	v->use_debuginfod = options->debuginfod;
	v->symbols_only = options->symbols_only;
	v->root = strdup(options->root ? options->root : "");
	v->debug_dir = options->debug_dir ? strdup(options->debug_dir) : NULL;
	if (!v->root || (options->debug_dir && !v->debug_dir)) {
		variables_free(v);
		return err_nomem(err);
	}
	*ret = v;
	return 0;
}

void variables_free(struct variables *v)
{
	if (!v)
		return;
	vec_each(&v->scope_list, scope) {
		vec_release(&(*scope)->variables);
		vec_release(&(*scope)->extras);
		free(*scope);
	}
	vec_release(&v->scope_list);
	number_map_release(&v->scopes);
	variables_release_types(v);
	variables_release_globals(v);
	dwarf_units_release(&v->units);
	dwarf_image_release(&v->image);
	vec_release(&v->callees);
	elf_file_free(v->debug);
	intern_release(&v->strings);
	free(v->root);
	free(v->debug_dir);
	free(v);
}

static void open_files(struct variables *v)
{
	const bool own = elf_file_has_section(v->file, ".debug_info");
	struct elf_section info;

	v->prepared = true;
	if (!own && elf_file_open_debug_in(v->file, v->root, v->debug_dir, &v->debug, NULL))
		v->debug = NULL;
	if (!own && !v->debug && v->use_debuginfod)
		v->debug = debuginfod_open_debug(v->file);

	struct elf_file *with = own ? v->file : v->debug;

	v->units.no_lines = true;
	v->units.follow_split = dwarf_image_own_root(v->root);
	if (v->symbols_only || !with || !elf_file_section(with, ".debug_info", &info) ||
		!dwarf_image_open(&v->image, with, v->root, v->debug_dir))
		return;
	v->info_bytes = info.size;
	if (dwarf_units_read(&v->units, v->image.dwarf))
		dwarf_units_release(&v->units);
}

bool variables_ready(struct variables *v)
{
	if (!v->prepared)
		open_files(v);
	return v->units.units.len != 0;
}

const char *variables_keep(struct variables *v, const char *text)
{
	uint32_t id = intern_str(&v->strings, text);

	return id == INTERN_NONE ? "" : intern_get(&v->strings, id, NULL);
}

/* ---- scopes ---- */

struct collector {
	struct variables *v;
	struct variable_scope *scope;
	size_t left; /* DIEs that may still be looked at */
	bool failed;
};

static void add_variable(struct collector *c, Dwarf_Die *die, Dwarf_Die *owner, Dwarf_Die *block,
	uint32_t depth)
{
	bool parameter = dwarf_tag(die) == DW_TAG_formal_parameter;
	struct variable_extra extra = {.die = *die, .owner = *owner, .block = *block};
	struct variable var = {.scope = c->scope, .depth = depth, .parameter = parameter};

	if (dwarf_hasattr(die, DW_AT_declaration) || c->scope->variables.len == MAX_VARIABLES)
		return;
	var.type = variables_type_of(c->v, die);
	var.name = variables_die_name(die);
	if (!var.type)
		return;
	c->failed = vec_push(&c->scope->extras, extra) || vec_push(&c->scope->variables, var);
}

static void collect(struct collector *c, Dwarf_Die *around, Dwarf_Die *owner, uint32_t depth, int nesting)
{
	Dwarf_Die die;

	if (nesting > MAX_NESTING || dwarf_child(around, &die))
		return;
	do {
		if (c->failed || !c->left--) {
			c->failed = true;
			return;
		}
		switch (dwarf_tag(&die)) {
		case DW_TAG_formal_parameter:
		case DW_TAG_variable:
			add_variable(c, &die, owner, around, depth);
			break;
		case DW_TAG_lexical_block:
		case DW_TAG_try_block:
		case DW_TAG_catch_block:
		case DW_TAG_with_stmt:
			if (dwarf_haspc(&die, c->scope->address) > 0)
				collect(c, &die, owner, depth, nesting + 1);
			break;
		case DW_TAG_inlined_subroutine:
			if (dwarf_haspc(&die, c->scope->address) > 0)
				collect(c, &die, &die, depth + 1, nesting + 1);
			break;
		default:
			break;
		}
	} while (dwarf_next_sibling(&die));
}

static bool find_function(struct variables *v, uint64_t address, Dwarf_Die *ret)
{
	struct dwarf_unit *unit = variables_ready(v) ? dwarf_units_find(&v->units, address) : NULL;
	struct dwarf_function *fn = unit ? dwarf_unit_function(unit, address) : NULL;

	return fn && dwarf_offdie(unit->code_dwarf, fn->die, ret);
}

static struct variable_scope *read_scope(struct variables *v, uint64_t address)
{
	struct variable_scope *scope = calloc(1, sizeof(*scope));

	if (!scope)
		return NULL;
	scope->address = address;
	if (find_function(v, address, &scope->function)) {
		struct collector c = {v, scope, MAX_DIES_A_FUNCTION, false};

		collect(&c, &scope->function, &scope->function, 0, 0);
	}
	if (vec_push(&v->scope_list, scope)) {
		vec_release(&scope->variables);
		vec_release(&scope->extras);
		free(scope);
		return NULL;
	}
	(void)number_map_put(&v->scopes, address, v->scope_list.len);
	return scope;
}

size_t variables_at(struct variables *v, uint64_t address, const struct variable **ret)
{
	uint64_t known = number_map_get(&v->scopes, address);
	struct variable_scope *scope =
		known ? v->scope_list.data[known - 1] : read_scope(v, address);

	*ret = scope ? scope->variables.data : NULL;
	return scope ? scope->variables.len : 0;
}

static const struct variable_extra *extra_of(const struct variable *var)
{
	return &var->scope->extras.data[var - var->scope->variables.data];
}

uint32_t variable_line(struct variables *v, const struct variable *var, const char **ret_file)
{
	Dwarf_Die die = extra_of(var)->die;

	return variables_die_line(&die, ret_file);
}

const char *variable_function(struct variables *v, const struct variable *var)
{
	Dwarf_Die die = extra_of(var)->owner;
	bool in_function;

	return variables_full_name(v, die, variables_die_name(&die), &in_function);
}
