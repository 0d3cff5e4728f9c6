/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Names from an object file and whatever belongs to it.
 *
 * Symbols: the file's own .symtab and .dynsym; without a .symtab that of the debug file, else of
 * .gnu_debugdata. Then stubs of the PLT. DWARF: the file's own, else the debug file's. A function
 * keeps its symbol's name also when DWARF knows another, so that profiles of machines with and
 * without debug files compare; DWARF adds what was inlined, and the lines.
 *
 * What no symbol covers stays nameless: a sized symbol never reaches past its end, an unsized one
 * not past the next start that symbols or .eh_frame know of, nor out of its section.
 */
#include <elf.h>
#include <string.h>

#include "symbol/debuginfod.h"
#include "symbol/dwarf_names.h"
#include "symbol/name_table.h"
#include "symbol/plt.h"
#include "symbol/symbol_priv.h"
#include "unwind/table.h"

struct elf_source {
	struct symbol_source base;
	struct elf_file *file; /* borrowed */
	struct elf_file *debug, *minidebug;
	char *root, *debug_dir;
	bool use_debuginfod, no_inlines;
	bool prepared;
	struct name_table names, stubs;
	struct unwind_module *frames; /* .eh_frame: where functions start; NULL: not known */
	struct dwarf_names *dwarf;
};

static int add_to_table(void *ctx, const struct elf_symbol *sym)
{
	return name_table_add(ctx, sym);
}

static void open_debug_file(struct elf_source *e)
{
	if (elf_file_open_debug_in(e->file, e->root, e->debug_dir, &e->debug, NULL))
		e->debug = NULL;
	if (!e->debug && e->use_debuginfod)
		e->debug = debuginfod_open_debug(e->file);
}

static struct unwind_section section_of(struct elf_file *f, const char *name)
{
	struct elf_section s;

	if (!elf_file_section(f, name, &s))
		return (struct unwind_section){0};
	return (struct unwind_section){s.bytes, s.size, s.vaddr};
}

static struct unwind_module *read_frames(struct elf_file *f)
{
	struct unwind_module_input input = {
		.arch = elf_file_machine(f) == EM_AARCH64 ? UNWIND_AARCH64 : UNWIND_X86_64,
		.eh_frame = section_of(f, ".eh_frame"),
		.eh_frame_hdr = section_of(f, ".eh_frame_hdr"),
	};
	struct unwind_module *frames;

	return unwind_module_new(&input, &frames, NULL) ? NULL : frames;
}

/* Out of memory on the way means fewer names, never a failure. */
static void prepare(struct elf_source *e)
{
	const bool own_symbols = elf_file_has_section(e->file, ".symtab");
	const bool own_dwarf = elf_file_has_section(e->file, ".debug_info");
	struct elf_file *with_dwarf = e->file;

	e->prepared = true;
	if (!own_symbols || (!own_dwarf && !e->no_inlines))
		open_debug_file(e);
	(void)elf_file_each_symbol(e->file, add_to_table, &e->names);
	if (!own_symbols && e->debug)
		(void)elf_file_each_symbol(e->debug, add_to_table, &e->names);
	if (!own_symbols && !(e->debug && elf_file_has_section(e->debug, ".symtab")) &&
		!elf_file_open_minidebug(e->file, &e->minidebug, NULL) && e->minidebug)
		(void)elf_file_each_symbol(e->minidebug, add_to_table, &e->names);
	name_table_finish(&e->names);
	(void)plt_each_stub(&e->base, e->file, &e->names, add_to_table, &e->stubs);
	name_table_finish(&e->stubs);

	e->frames = read_frames(e->file);

	if (!own_dwarf)
		with_dwarf = e->debug;
	if (!e->no_inlines && with_dwarf && elf_file_has_section(with_dwarf, ".debug_info"))
		e->dwarf = dwarf_names_open(&e->base, with_dwarf, e->root, e->debug_dir);
}

static const struct name_entry *find_symbol(struct elf_source *e, uint64_t address)
{
	const struct name_entry *sym = name_table_find(&e->names, address);
	const struct name_entry *stub = name_table_find(&e->stubs, address);
	uint64_t start;

	if (stub && (!sym || !sym->size))
		return stub;
	if (!sym || sym->size)
		return sym;
	if (e->frames && unwind_module_function(e->frames, address, &start) && start > sym->start)
		return NULL;
	return elf_file_same_section(e->file, sym->start, address) ? sym : NULL;
}

static size_t elf_resolve(struct symbol_source *base, uint64_t address, struct symbol_level *levels,
	enum symbol_reason *ret_reason)
{
	struct elf_source *e = (struct elf_source *)base;

	if (!e->prepared)
		prepare(e);

	const struct name_entry *sym = find_symbol(e, address);
	size_t count = e->dwarf ? dwarf_names_resolve(e->dwarf, address, levels) : 0;

	if (!count) {
		levels[0] = (struct symbol_level){0};
		count = 1;
	}
	struct symbol_level *function = &levels[count - 1];
	bool by_symbol = sym && (sym->size || !function->name);

	*ret_reason = by_symbol && !sym->size ? SYMBOL_NEAREST : SYMBOL_OK;
	if (by_symbol)
		function->name = symbol_shown_name(base, sym->name);
	if (function->name)
		return count;
	*ret_reason = SYMBOL_NO_SYMBOLS;
	return 0;
}

static void elf_free(struct symbol_source *base)
{
	struct elf_source *e = (struct elf_source *)base;

	dwarf_names_free(e->dwarf);
	unwind_module_free(e->frames);
	name_table_release(&e->names);
	name_table_release(&e->stubs);
	elf_file_free(e->debug);
	elf_file_free(e->minidebug);
	symbol_source_release(base);
	free(e->root);
	free(e->debug_dir);
	free(e);
}

int symbol_source_elf(struct elf_file *file, const struct symbol_elf_options *options,
	struct symbol_source **ret, struct err *err)
{
	static const struct symbol_ops ops = {elf_resolve, elf_free};
	struct elf_source *e = calloc(1, sizeof(*e));

	if (!e)
		return err_nomem(err);
	e->base.ops = &ops;
	e->file = file;
	e->use_debuginfod = options->debuginfod;
	e->no_inlines = options->no_inlines;
	e->root = strdup(options->root ? options->root : "");
	e->debug_dir = options->debug_dir ? strdup(options->debug_dir) : NULL;
	if (!e->root || (options->debug_dir && !e->debug_dir)) {
		elf_free(&e->base);
		return err_nomem(err);
	}
	*ret = &e->base;
	return 0;
}
