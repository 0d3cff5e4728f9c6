/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as an object file: every section we ask for, every symbol, and names for addresses. */
#include <stdlib.h>
#include <string.h>

#include "elf/elf_file.h"
#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int note_address(void *ctx, const struct elf_symbol *sym)
{
	*(uint64_t *)ctx = sym->start + (sym->end - sym->start) / 2;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const char *const sections[] = {".debug_info", ".eh_frame", ".eh_frame_hdr"};
	struct symbol_elf_options options = {.root = "/nonexistent", .no_inlines = size & 1};
	struct elf_file *f, *other;
	struct symbol_source *source;
	struct elf_section section;
	uint64_t address = 0;

	if (elf_file_open_memory(data, size, "fuzz", &f, NULL))
		return 0;
	for (size_t i = 0; i < sizeof(sections) / sizeof(sections[0]); i++)
		elf_file_section(f, sections[i], &section);
	elf_file_each_symbol(f, note_address, &address);
	if (!elf_file_open_minidebug(f, &other, NULL))
		elf_file_free(other);
	if (!symbol_source_elf(f, &options, &source, NULL)) {
		for (uint64_t step = 0; step < 64; step++)
			symbol_resolve(source, address + step * step);
		symbol_source_free(source);
	}
	elf_file_free(f);
	uint8_t *copy = malloc(size);
	memcpy(copy, data, size);
	if (!elf_file_open_loaded(copy, size, 0x7f0000001000, "fuzz", &f, NULL)) {
		elf_file_each_symbol(f, note_address, &address);
		elf_file_free(f);
	}
	return 0;
}
