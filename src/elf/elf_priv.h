/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files of src/elf/. */
#ifndef SONDE_ELF_ELF_PRIV_H
#define SONDE_ELF_ELF_PRIV_H

#include <elf.h>

#include "base/vec.h"
#include "elf/elf_file.h"

/* A section header that passed the bounds checks, with the bytes it names. */
struct section_entry {
	const char *name;
	Elf64_Shdr hdr;
	const uint8_t *bytes; /* in the image; NULL for NOBITS */
	uint8_t *inflated;    /* malloc'ed, once it was asked for */
	size_t inflated_size;
	bool broken; /* does not decompress */
};

struct elf_file {
	char *name;
	int fd;               /* -1 for memory */
	const uint8_t *image; /* the whole file */
	size_t image_size;
	bool mapped; /* munmap, not free */
	Elf64_Ehdr ehdr;
	bool executable, interpreted;
	VEC(struct elf_segment) segments;
	VEC(struct section_entry) sections;
	uint64_t eh_frame_hdr_vaddr, eh_frame_hdr_size; /* PT_GNU_EH_FRAME; size 0 without */
	uint64_t dynamic_vaddr; /* PT_DYNAMIC, 0 without */
	uint64_t load_bias;     /* of an image that was put together from memory, else 0 */
	const uint8_t *build_id;
	size_t build_id_len;
};

/* Takes ownership of malloc'ed bytes, on failure too. */
int elf_file_open_owned(
	uint8_t *bytes, size_t size, const char *name, struct elf_file **ret, struct err *err);

/* How much of a string table can be used. */
uint64_t elf_string_table_size(const uint8_t *table, uint64_t size);

/* The symbols by PT_DYNAMIC, and their names. False when there are none. */
bool elf_dynamic_symbols(
	const struct elf_file *f, struct elf_section *symbols, struct elf_section *strings);

struct section_entry *elf_find_section(const struct elf_file *f, const char *name);

/* The bytes of a section, decompressed when needed and then kept. False when there are none. */
bool elf_section_contents(struct section_entry *s, struct elf_section *ret);

/* Size of the section's contents once decompressed; 0 when it has none we would read. */
uint64_t elf_section_plain_size(const struct section_entry *s);

/* Writes exactly elf_section_plain_size() bytes. */
bool elf_section_inflate(const struct section_entry *s, uint8_t *out, size_t out_size);

#endif
