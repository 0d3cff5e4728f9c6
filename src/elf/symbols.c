/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Function symbols of .symtab and .dynsym (System V ABI, "Symbol Table"), and those of variables.
 *
 * What is left out: undefined and nameless symbols, thread-local storage, the mapping
 * symbols of aarch64 ($x, $d: "ELF for the Arm 64-bit Architecture", "Mapping symbols"), and
 * assembler-local labels. A NOTYPE symbol counts when its section is executable.
 */
#include "base/cursor.h"
#include "elf/elf_priv.h"

struct table {
	const struct elf_file *f;
	struct elf_section symbols, strings;
	bool dynamic;
	bool data; /* variables are looked for, not functions */
};

static bool find_table(struct elf_file *f, uint32_t type, bool data, struct table *ret)
{
	ret->f = f;
	ret->data = data;
	ret->dynamic = type == SHT_DYNSYM;
	vec_each(&f->sections, s) {
		if (s->hdr.sh_type != type || s->hdr.sh_link >= f->sections.len)
			continue;
		if (!elf_section_contents(s, &ret->symbols) ||
			!elf_section_contents(&f->sections.data[s->hdr.sh_link], &ret->strings))
			return false;
		ret->strings.size = elf_string_table_size(ret->strings.bytes, ret->strings.size);
		return true;
	}
	if (!ret->dynamic || !elf_dynamic_symbols(f, &ret->symbols, &ret->strings))
		return false;
	ret->strings.size = elf_string_table_size(ret->strings.bytes, ret->strings.size);
	return true;
}

static bool in_text(const struct elf_file *f, const Elf64_Sym *sym)
{
	if (sym->st_shndx >= SHN_LORESERVE || sym->st_shndx >= f->sections.len)
		return false;
	return f->sections.data[sym->st_shndx].hdr.sh_flags & SHF_EXECINSTR;
}

static bool is_mapping_symbol(const struct elf_file *f, const char *name)
{
	return f->ehdr.e_machine == EM_AARCH64 && name[0] == '$' &&
		(name[1] == 'x' || name[1] == 'd') && (!name[2] || name[2] == '.');
}

static bool is_function(const struct table *t, const Elf64_Sym *sym, const char *name)
{
	switch (ELF64_ST_TYPE(sym->st_info)) {
	case STT_FUNC:
	case STT_GNU_IFUNC:
		return true;
	case STT_NOTYPE:
		return in_text(t->f, sym) && name[0] != '.' && !is_mapping_symbol(t->f, name);
	default:
		return false;
	}
}

static bool is_wanted(const struct table *t, const Elf64_Sym *sym, const char *name)
{
	return t->data ? ELF64_ST_TYPE(sym->st_info) == STT_OBJECT : is_function(t, sym, name);
}

static int each_in_table(const struct table *t,
	int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	struct cursor c = cursor_over(t->symbols.bytes, t->symbols.size);

	while (cursor_left(&c) >= sizeof(Elf64_Sym)) {
		Elf64_Sym sym;

		memcpy(&sym, cursor_bytes(&c, sizeof(sym)), sizeof(sym));
		if (sym.st_shndx == SHN_UNDEF || sym.st_name >= t->strings.size)
			continue;
		const char *name = (const char *)t->strings.bytes + sym.st_name;
		if (!*name || !is_wanted(t, &sym, name))
			continue;
		struct elf_symbol out = {
			.start = sym.st_value,
			.name = name,
			.type = ELF64_ST_TYPE(sym.st_info),
			.binding = ELF64_ST_BIND(sym.st_info),
			.visibility = ELF64_ST_VISIBILITY(sym.st_other),
			.dynamic = t->dynamic,
		};
		if (__builtin_add_overflow(sym.st_value, sym.st_size, &out.end))
			continue;
		int rc = each(ctx, &out);
		if (rc)
			return rc;
	}
	return 0;
}

static int each_kind(struct elf_file *f, bool data,
	int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	static const uint32_t types[] = {SHT_SYMTAB, SHT_DYNSYM};

	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
		struct table t;

		if (!find_table(f, types[i], data, &t))
			continue;
		int rc = each_in_table(&t, each, ctx);
		if (rc)
			return rc;
	}
	return 0;
}

int elf_file_each_symbol(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	return each_kind(f, false, each, ctx);
}

int elf_file_each_exported_object(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	struct table t;

	return find_table(f, SHT_DYNSYM, true, &t) ? each_in_table(&t, each, ctx) : 0;
}

int elf_file_each_object(
	struct elf_file *f, int (*each)(void *ctx, const struct elf_symbol *sym), void *ctx)
{
	return each_kind(f, true, each, ctx);
}
