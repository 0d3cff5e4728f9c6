/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Section contents: by name, decompressed, or found through the program headers.
 *
 * Two ways of compressing exist: SHF_COMPRESSED with an Elf64_Chdr in front (gABI, "Section
 * Compression"; zlib or zstd) and the older GNU one, where .debug_x is renamed .zdebug_x and starts
 * with "ZLIB" and the size as a big-endian 64-bit number. The size claimed is believed only within
 * MAX_RATIO of what is there, so that a small file cannot ask for gigabytes.
 */
#include <zlib.h>
#include <zstd.h>

#include "base/cursor.h"
#include "elf/elf_priv.h"

#define MAX_RATIO 1100 /* deflate cannot do better than 1032:1 */
#define MAX_PLAIN_BYTES (4ULL << 30)
#define GNU_MAGIC_BYTES 12

#ifndef ELFCOMPRESS_ZSTD
#define ELFCOMPRESS_ZSTD 2
#endif

/* What stands in a compressed section, after its header. */
struct packed {
	const uint8_t *bytes;
	size_t size;
	uint64_t plain_size;
	uint32_t kind; /* ELFCOMPRESS_ */
};

static bool is_gnu_packed(const struct section_entry *s)
{
	return !strncmp(s->name, ".zdebug_", 8) && s->bytes && s->hdr.sh_size >= GNU_MAGIC_BYTES &&
		!memcmp(s->bytes, "ZLIB", 4);
}

static bool read_packed(const struct section_entry *s, struct packed *ret)
{
	struct cursor c = cursor_over(s->bytes, s->hdr.sh_size);
	uint64_t size;

	if (is_gnu_packed(s)) {
		cursor_skip(&c, 4);
		size = __builtin_bswap64(cursor_u64(&c));
		ret->kind = ELFCOMPRESS_ZLIB;
	} else {
		ret->kind = cursor_u32(&c);
		cursor_skip(&c, 4);
		size = cursor_u64(&c);
		cursor_skip(&c, 8);
	}
	if (c.bad || size > MAX_PLAIN_BYTES || size / MAX_RATIO > cursor_left(&c))
		return false;
	ret->bytes = c.at;
	ret->size = cursor_left(&c);
	ret->plain_size = size;
	return true;
}

static bool is_packed(const struct section_entry *s)
{
	return (s->hdr.sh_flags & SHF_COMPRESSED) || is_gnu_packed(s);
}

uint64_t elf_section_plain_size(const struct section_entry *s)
{
	struct packed p;

	if (!s->bytes)
		return 0;
	if (!is_packed(s))
		return s->hdr.sh_size;
	return read_packed(s, &p) ? p.plain_size : 0;
}

/* uncompress() takes no more than 4 GB at a time and MAX_PLAIN_BYTES asks for no more. */
static bool unpack(const struct packed *p, uint8_t *out)
{
	if (p->kind == ELFCOMPRESS_ZLIB) {
		uLongf got = p->plain_size;

		return uncompress(out, &got, p->bytes, p->size) == Z_OK && got == p->plain_size;
	}
	if (p->kind == ELFCOMPRESS_ZSTD)
		return ZSTD_decompress(out, p->plain_size, p->bytes, p->size) == p->plain_size;
	return false;
}

bool elf_section_inflate(const struct section_entry *s, uint8_t *out, size_t out_size)
{
	struct packed p;

	if (!is_packed(s)) {
		memcpy(out, s->bytes, out_size);
		return true;
	}
	return read_packed(s, &p) && p.plain_size == out_size && unpack(&p, out);
}

static void inflate_once(struct section_entry *s)
{
	uint64_t size = elf_section_plain_size(s);

	s->broken = true;
	s->inflated = size ? malloc(size) : NULL;
	if (!s->inflated)
		return;
	if (elf_section_inflate(s, s->inflated, size)) {
		s->inflated_size = size;
		s->broken = false;
		return;
	}
	free(s->inflated);
	s->inflated = NULL;
}

bool elf_section_contents(struct section_entry *s, struct elf_section *ret)
{
	if (!s->bytes)
		return false;
	if (!is_packed(s)) {
		*ret = (struct elf_section){s->bytes, s->hdr.sh_size, s->hdr.sh_addr};
		return true;
	}
	if (!s->inflated && !s->broken)
		inflate_once(s);
	if (s->broken)
		return false;
	*ret = (struct elf_section){s->inflated, s->inflated_size, s->hdr.sh_addr};
	return true;
}

struct section_entry *elf_find_section(const struct elf_file *f, const char *name)
{
	vec_each(&f->sections, s)
		if (!strcmp(s->name, name))
			return s;
	if (strncmp(name, ".debug_", 7))
		return NULL;
	vec_each(&f->sections, s)
		if (!strncmp(s->name, ".zdebug_", 8) && !strcmp(s->name + 8, name + 7))
			return s;
	return NULL;
}

bool elf_file_has_section(const struct elf_file *f, const char *name)
{
	const struct section_entry *s = elf_find_section(f, name);

	return s && s->bytes;
}

/* From `vaddr` to the end of the file's bytes in its segment. */
static bool rest_of_segment(const struct elf_file *f, uint64_t vaddr, struct elf_section *ret)
{
	vec_each(&f->segments, s) {
		if (vaddr < s->vaddr || vaddr - s->vaddr >= s->file_size)
			continue;
		ret->vaddr = vaddr;
		ret->size = s->file_size - (vaddr - s->vaddr);
		ret->bytes = elf_file_bytes_at(f, vaddr, ret->size);
		return ret->bytes;
	}
	return false;
}

/* .eh_frame_hdr starts with version, three encodings and the address of .eh_frame (LSB Core,
 * "The .eh_frame_hdr section"). Only the encodings that linkers write are read. */
static bool eh_frame_by_segment(const struct elf_file *f, const char *name, struct elf_section *ret)
{
	const uint64_t vaddr = f->eh_frame_hdr_vaddr;
	const uint8_t *hdr = f->eh_frame_hdr_size
		? elf_file_bytes_at(f, vaddr, f->eh_frame_hdr_size)
		: NULL;

	if (!hdr)
		return false;
	if (!strcmp(name, ".eh_frame_hdr")) {
		*ret = (struct elf_section){hdr, f->eh_frame_hdr_size, vaddr};
		return true;
	}
	struct cursor c = cursor_over(hdr, f->eh_frame_hdr_size);
	uint8_t version = cursor_u8(&c), encoding = cursor_u8(&c);
	int64_t delta = 0;

	cursor_skip(&c, 2);
	if (encoding == 0x1b || encoding == 0x3b) /* sdata4, relative to here or to the header */
		delta = cursor_s32(&c);
	else if (encoding == 0x1c || encoding == 0x3c) /* sdata8 */
		delta = cursor_s64(&c);
	else
		return false;
	uint64_t base = encoding < 0x30 ? vaddr + 4 : vaddr;
	return !c.bad && version == 1 && rest_of_segment(f, base + (uint64_t)delta, ret);
}

bool elf_file_section(struct elf_file *f, const char *name, struct elf_section *ret)
{
	struct section_entry *s = elf_find_section(f, name);

	if (s)
		return elf_section_contents(s, ret);
	if (!strcmp(name, ".eh_frame_hdr") || !strcmp(name, ".eh_frame"))
		return eh_frame_by_segment(f, name, ret);
	return false;
}

bool elf_file_same_section(const struct elf_file *f, uint64_t a, uint64_t b)
{
	vec_each(&f->sections, s)
		if ((s->hdr.sh_flags & SHF_ALLOC) && a - s->hdr.sh_addr < s->hdr.sh_size)
			return b - s->hdr.sh_addr < s->hdr.sh_size;
	vec_each(&f->segments, s)
		if (a - s->vaddr < s->mem_size)
			return b - s->vaddr < s->mem_size;
	return false;
}
