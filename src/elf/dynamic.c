/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Symbols by the dynamic section, as the loader finds them: for files whose section headers are gone,
 * and for images put together from memory, which never had them.
 *
 * How many there are stands nowhere; the hash tables know the last one (System V ABI, "Hash Table";
 * for DT_GNU_HASH the layout that binutils and glibc share). glibc replaces addresses in the section
 * by those in memory.
 */
#include "base/cursor.h"
#include "elf/elf_priv.h"

struct dynamic {
	uint64_t symbols, strings, string_bytes, hash, gnu_hash; /* addresses; 0: absent */
};

/* Bytes from `vaddr` to the end of what the file has there. */
static struct cursor bytes_from(const struct elf_file *f, uint64_t vaddr)
{
	vec_each(&f->segments, s)
		if (vaddr >= s->vaddr && vaddr - s->vaddr < s->file_size) {
			uint64_t len = s->file_size - (vaddr - s->vaddr);
			const uint8_t *bytes = elf_file_bytes_at(f, vaddr, len);

			return cursor_over(bytes, bytes ? len : 0);
		}
	return (struct cursor){.bad = true};
}

static uint64_t in_file(const struct elf_file *f, uint64_t address)
{
	struct cursor c = bytes_from(f, address);

	return cursor_left(&c) || address < f->load_bias ? address : address - f->load_bias;
}

static void read_dynamic(const struct elf_file *f, struct dynamic *ret)
{
	struct cursor c = bytes_from(f, f->dynamic_vaddr);

	*ret = (struct dynamic){0};
	while (cursor_left(&c) >= sizeof(Elf64_Dyn)) {
		int64_t tag = cursor_s64(&c);
		uint64_t value = cursor_u64(&c);

		if (tag == DT_NULL)
			break;
		if (tag == DT_SYMTAB)
			ret->symbols = in_file(f, value);
		else if (tag == DT_STRTAB)
			ret->strings = in_file(f, value);
		else if (tag == DT_STRSZ)
			ret->string_bytes = value;
		else if (tag == DT_HASH)
			ret->hash = in_file(f, value);
		else if (tag == DT_GNU_HASH)
			ret->gnu_hash = in_file(f, value);
	}
}

/* Buckets name the first symbol of their chains; the last chain ends with the last symbol, at the first
 * hash value that is odd. */
static uint64_t count_by_gnu_hash(const struct elf_file *f, uint64_t table)
{
	struct cursor c = bytes_from(f, table);
	uint32_t buckets = cursor_u32(&c), first = cursor_u32(&c), filter = cursor_u32(&c), last = 0;

	cursor_skip(&c, 4 + 8ull * filter);
	if (buckets > cursor_left(&c) / 4)
		return 0;
	for (uint32_t i = 0; i < buckets; i++) {
		uint32_t start = cursor_u32(&c);

		last = start > last ? start : last;
	}
	if (last < first)
		return first;
	cursor_skip(&c, 4ull * (last - first));
	while (cursor_left(&c) >= 4 && !(cursor_u32(&c) & 1))
		last++;
	return (uint64_t)last + 1;
}

static uint64_t count_symbols(const struct elf_file *f, const struct dynamic *d)
{
	struct cursor hash = d->hash ? bytes_from(f, d->hash) : (struct cursor){.bad = true};

	cursor_skip(&hash, 4);
	uint32_t chain = cursor_u32(&hash);
	if (!hash.bad)
		return chain;
	return d->gnu_hash ? count_by_gnu_hash(f, d->gnu_hash) : 0;
}

bool elf_dynamic_symbols(
	const struct elf_file *f, struct elf_section *symbols, struct elf_section *strings)
{
	struct dynamic d;

	if (!f->dynamic_vaddr)
		return false;
	read_dynamic(f, &d);

	struct cursor sym = bytes_from(f, d.symbols), str = bytes_from(f, d.strings);
	uint64_t count = d.symbols ? count_symbols(f, &d) : 0;

	if (!d.strings || !count || !cursor_left(&sym) || d.string_bytes > cursor_left(&str))
		return false;
	if (count > cursor_left(&sym) / sizeof(Elf64_Sym))
		count = cursor_left(&sym) / sizeof(Elf64_Sym);
	*symbols = (struct elf_section){sym.at, count * sizeof(Elf64_Sym), d.symbols};
	*strings = (struct elf_section){str.at, d.string_bytes, d.strings};
	return true;
}
