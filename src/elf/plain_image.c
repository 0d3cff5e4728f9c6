/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The debug sections of a file as an ELF image of their own, all decompressed.
 *
 * libdw reads zlib but (before 0.189) not zstd, and decompresses by writing into section headers
 * that here are a read-only mapping. Handing it a file without compressed sections avoids both.
 *
 *	Elf64_Ehdr | section headers (null, debug sections, .shstrtab) | contents...
 */
#include "base/buf.h"
#include "elf/elf_priv.h"

#define CONTENTS_ALIGN 8

static bool is_debug(const struct section_entry *s)
{
	return !strncmp(s->name, ".debug_", 7) || !strncmp(s->name, ".zdebug_", 8) ||
		!strcmp(s->name, ".gnu_debugaltlink");
}

static bool is_compressed(const struct section_entry *s)
{
	return s->bytes && is_debug(s) &&
		((s->hdr.sh_flags & SHF_COMPRESSED) || !strncmp(s->name, ".zdebug_", 8));
}

bool elf_file_has_compressed_debug(const struct elf_file *f)
{
	vec_each(&f->sections, s)
		if (is_compressed(s))
			return true;
	return false;
}

/* What the new file looks like before its contents are written. */
struct layout {
	VEC(Elf64_Shdr) headers;
	VEC(const struct section_entry *) sources; /* of headers[1 + i] */
	struct buf names;
	uint64_t total_bytes;
};

static void layout_release(struct layout *l)
{
	vec_release(&l->headers);
	vec_release(&l->sources);
	buf_release(&l->names);
}

static int add_header(struct layout *l, const char *name, uint32_t type, uint64_t size)
{
	Elf64_Shdr h = {.sh_name = (uint32_t)l->names.len, .sh_type = type, .sh_addralign = 1};

	h.sh_size = size;
	buf_str(&l->names, name);
	buf_char(&l->names, '\0');
	return vec_push(&l->headers, h);
}

static int plan(const struct elf_file *f, struct layout *l)
{
	if (add_header(l, "", SHT_NULL, 0))
		return -ENOMEM;
	vec_each(&f->sections, s) {
		uint64_t size = is_debug(s) ? elf_section_plain_size(s) : 0;
		char name[64];

		if (!size || l->headers.len > 100)
			continue;
		bool z = s->name[1] == 'z';
		snprintf(name, sizeof(name), ".%s", s->name + (z ? 2 : 1));
		const struct section_entry *source = s;
		if (add_header(l, name, SHT_PROGBITS, size) || vec_push(&l->sources, source))
			return -ENOMEM;
	}
	if (add_header(l, ".shstrtab", SHT_STRTAB, 0) || l->names.failed)
		return -ENOMEM;
	l->headers.data[l->headers.len - 1].sh_size = l->names.len;

	uint64_t at = sizeof(Elf64_Ehdr) + l->headers.len * sizeof(Elf64_Shdr);
	for (size_t i = 1; i < l->headers.len; i++) {
		at = (at + CONTENTS_ALIGN - 1) & ~(uint64_t)(CONTENTS_ALIGN - 1);
		l->headers.data[i].sh_offset = at;
		at += l->headers.data[i].sh_size;
	}
	l->total_bytes = at;
	return 0;
}

/* A section that does not decompress becomes an empty one. */
static void fill(const struct elf_file *f, struct layout *l, uint8_t *out)
{
	const size_t last = l->headers.len - 1;
	Elf64_Ehdr e = f->ehdr;

	for (size_t i = 0; i < l->sources.len; i++) {
		Elf64_Shdr *h = &l->headers.data[1 + i];
		if (!elf_section_inflate(l->sources.data[i], out + h->sh_offset, h->sh_size))
			h->sh_size = 0;
	}
	memcpy(out + l->headers.data[last].sh_offset, l->names.data, l->names.len);

	e.e_phoff = 0;
	e.e_phnum = 0;
	e.e_shoff = sizeof(e);
	e.e_shnum = (uint16_t)l->headers.len;
	e.e_shstrndx = (uint16_t)last;
	memcpy(out, &e, sizeof(e));
	memcpy(out + sizeof(e), l->headers.data, l->headers.len * sizeof(Elf64_Shdr));
}

int elf_file_plain_debug_image(
	const struct elf_file *f, uint8_t **ret, size_t *ret_size, struct err *err)
{
	struct layout l = {0};
	int rc = plan(f, &l);
	uint8_t *out = rc ? NULL : calloc(1, l.total_bytes);

	if (out) {
		fill(f, &l, out);
		*ret = out;
		*ret_size = l.total_bytes;
	}
	layout_release(&l);
	return out ? 0 : err_nomem(err);
}
