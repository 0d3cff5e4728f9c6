/* SPDX-License-Identifier: BSD-2-Clause */
/* The call frame sections of a file through libelf, for programs that measure or check src/unwind
 * and nothing else. */
#ifndef SONDE_BENCH_CFI_FILE_H
#define SONDE_BENCH_CFI_FILE_H

#include <fcntl.h>
#include <gelf.h>
#include <libelf.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "unwind/unwind.h"

struct cfi_file {
	int fd;
	Elf *elf;
	struct unwind_section text; /* only where, not what */
	struct unwind_module_input input;
};

static inline void cfi_file_close(struct cfi_file *f)
{
	if (f->elf)
		elf_end(f->elf);
	if (f->fd >= 0)
		close(f->fd);
}

static inline struct unwind_section cfi_file_section_(Elf_Scn *scn, const GElf_Shdr *shdr)
{
	struct unwind_section none = {0};

	if (shdr->sh_type == SHT_NOBITS)
		return none;
	if (shdr->sh_flags & SHF_COMPRESSED && elf_compress(scn, 0, 0) < 0)
		return none;

	Elf_Data *data = elf_rawdata(scn, NULL);

	if (!data || !data->d_buf)
		return none;
	return (struct unwind_section){
		.bytes = data->d_buf, .size = data->d_size, .vaddr = shdr->sh_addr};
}

static inline void cfi_file_take_sections_(struct cfi_file *f)
{
	size_t names;
	Elf_Scn *scn = NULL;

	if (elf_getshdrstrndx(f->elf, &names))
		return;
	while ((scn = elf_nextscn(f->elf, scn))) {
		GElf_Shdr shdr;
		const char *name =
			gelf_getshdr(scn, &shdr) ? elf_strptr(f->elf, names, shdr.sh_name) : NULL;

		if (!name)
			continue;
		if (!strcmp(name, ".eh_frame"))
			f->input.eh_frame = cfi_file_section_(scn, &shdr);
		else if (!strcmp(name, ".eh_frame_hdr"))
			f->input.eh_frame_hdr = cfi_file_section_(scn, &shdr);
		else if (!strcmp(name, ".debug_frame"))
			f->input.debug_frame = cfi_file_section_(scn, &shdr);
		else if (!strcmp(name, ".text"))
			f->text = (struct unwind_section){
				.size = shdr.sh_size, .vaddr = shdr.sh_addr};
		else if (!strcmp(name, ".got"))
			f->input.data_base = shdr.sh_addr;
	}
}

/* True when `path` is a linked 64-bit ELF file of a kind we unwind, with call frame information.
 * Close it either way. */
static inline bool cfi_file_open(struct cfi_file *f, const char *path)
{
	GElf_Ehdr ehdr;

	*f = (struct cfi_file){.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
	if (f->fd < 0)
		return false;
	f->elf = elf_begin(f->fd, ELF_C_READ_MMAP_PRIVATE, NULL);
	if (!f->elf || elf_kind(f->elf) != ELF_K_ELF || !gelf_getehdr(f->elf, &ehdr))
		return false;
	if (ehdr.e_ident[EI_CLASS] != ELFCLASS64 || ehdr.e_ident[EI_DATA] != ELFDATA2LSB ||
		(ehdr.e_type != ET_DYN && ehdr.e_type != ET_EXEC))
		return false;
	if (ehdr.e_machine != EM_X86_64 && ehdr.e_machine != EM_AARCH64)
		return false;
	f->input.arch = ehdr.e_machine == EM_X86_64 ? UNWIND_X86_64 : UNWIND_AARCH64;
	cfi_file_take_sections_(f);
	return f->input.eh_frame.size || f->input.debug_frame.size;
}

#endif
