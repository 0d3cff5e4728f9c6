/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Calls between a variable's declaration and where a frame is: those that were inlined stand in the DWARF of the
 * function, with the line of the call; the others are call instructions, whose targets have names.
 */
#include "symbol/variables_priv.h"

#include <elf.h>
#include <string.h>

#include "base/cursor.h"

#define MAX_CODE_BYTES (1u << 20)
#define MAX_RANGES 4096

/* ---- inlined ---- */

static bool is_named(Dwarf_Die *die, const struct variable_call *call)
{
	const char *name = variables_die_name(die);

	return !strncmp(name, call->name, strlen(call->name)) && strstr(name, call->argument);
}

static bool number_of_own(Dwarf_Die *die, unsigned attribute, uint64_t *ret)
{
	Dwarf_Attribute attr;
	Dwarf_Word value;

	if (dwarf_formudata(dwarf_attr(die, attribute, &attr), &value))
		return false;
	*ret = value;
	return true;
}

static bool is_inlined_between(struct variables *v, const struct variable *var,
	const struct variable_call *call, uint32_t until_line)
{
	const char *file;
	uint64_t line, from = variable_line(v, var, &file);
	struct dwarf_unit *unit = dwarf_units_find(&v->units, var->scope->address);
	struct dwarf_function *fn = unit ? dwarf_unit_function(unit, var->scope->address) : NULL;
	const struct inline_list *inlines = fn ? dwarf_unit_inlines(unit, fn) : NULL;
	Dwarf_Die die;

	if (!inlines)
		return false;
	vec_each(inlines, r)
		if (dwarf_offdie(unit->code_dwarf, r->die, &die) && is_named(&die, call) &&
			number_of_own(&die, DW_AT_call_line, &line) && line >= from && line <= until_line)
			return true;
	return false;
}

/* ---- called ---- */

static int add_callee(void *ctx, const struct elf_symbol *sym)
{
	struct variables *v = ctx;

	return strstr(sym->name, v->callee_symbol) ? vec_push(&v->callees, sym->start) : 0;
}

static void read_callees(struct variables *v, const char *symbol)
{
	if (v->callee_symbol && !strcmp(v->callee_symbol, symbol))
		return;
	v->callee_symbol = symbol;
	v->callees.len = 0;
	(void)elf_file_each_symbol(v->file, add_callee, v);
	if (v->debug)
		(void)elf_file_each_symbol(v->debug, add_callee, v);
}

static bool is_callee(struct variables *v, uint64_t target, const struct variable_call *call)
{
	struct dwarf_function *fn;
	struct dwarf_unit *unit;
	Dwarf_Die die;
	bool known = false;

	vec_each(&v->callees, at)
		known |= *at == target;
	unit = known ? dwarf_units_find(&v->units, target) : NULL;
	fn = unit ? dwarf_unit_function(unit, target) : NULL;
	return fn && dwarf_offdie(unit->code_dwarf, fn->die, &die) && is_named(&die, call);
}

/* The target of a direct call at `vaddr`, 0: there is none. On x86-64 any byte may seem to begin one; that it
 * leads to the start of the function looked for is proof enough. */
static uint64_t call_target(unsigned machine, const uint8_t *code, size_t len, uint64_t vaddr)
{
	struct cursor c = cursor_over(code, len);

	if (machine == EM_X86_64) {
		if (cursor_u8(&c) != 0xe8)
			return 0;
		int32_t delta = cursor_s32(&c);

		return c.bad ? 0 : vaddr + 5 + (uint64_t)(int64_t)delta;
	}
	uint32_t insn = cursor_u32(&c); /* bl: 100101, then the distance in words */

	if (c.bad || vaddr % 4 || insn >> 26 != 0x25)
		return 0;
	return vaddr + (uint64_t)((int64_t)((uint64_t)insn << 38) >> 36);
}

/* Where the code of a scope begins. */
static bool first_address(Dwarf_Die *die, uint64_t *ret)
{
	Dwarf_Addr base, low, high;
	ptrdiff_t at = 0;

	*ret = UINT64_MAX;
	for (int i = 0; i < MAX_RANGES && (at = dwarf_ranges(die, at, &base, &low, &high)) > 0; i++)
		if (low < high && low < *ret)
			*ret = low;
	return *ret != UINT64_MAX;
}

static bool is_called_between(
	struct variables *v, const struct variable *var, const struct variable_call *call)
{
	const struct variable_scope *scope = var->scope;
	Dwarf_Die block = scope->extras.data[var - scope->variables.data].block;
	unsigned machine = elf_file_machine(v->file);
	uint64_t end = scope->address;
	const uint8_t *code;
	uint64_t start;

	read_callees(v, call->symbol);
	if (!v->callees.len || !first_address(&block, &start) || start >= end || end - start > MAX_CODE_BYTES)
		return false;
	code = elf_file_bytes_at(v->file, start, end - start);
	for (uint64_t at = start; code && at < end; at++) {
		uint64_t target = call_target(machine, code + (at - start), end - at, at);

		if (target && is_callee(v, target, call))
			return true;
	}
	return false;
}

bool variable_called_since(struct variables *v, const struct variable *var, const struct variable_call *call,
	uint32_t until_line)
{
	return is_inlined_between(v, var, call, until_line) || is_called_between(v, var, call);
}
