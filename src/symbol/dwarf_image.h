/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The DWARF of one object file, opened for libdw with whatever belongs to it.
 *
 * libdw never opens a file by itself: it works on our mapping, decompressed where it cannot do that,
 * and the dwz file is opened here.
 */
#ifndef SONDE_SYMBOL_DWARF_IMAGE_H
#define SONDE_SYMBOL_DWARF_IMAGE_H

#include <elfutils/libdw.h>
#include <stdbool.h>

#include "elf/elf_file.h"

/* All-zero: not open. */
struct dwarf_image {
	uint8_t *plain; /* decompressed, or NULL */
	Elf *elf, *alt_elf;
	struct elf_file *alt_file;
	Dwarf *dwarf, *alt;
};

/* `file` outlives the image. False, with nothing open, when there is nothing libdw can read, or half of
 * it would be in a file that is not there. */
bool dwarf_image_open(struct dwarf_image *d, struct elf_file *file, const char *root,
	const char *debug_dir);

/* Drops all memory that libdw has taken for it, and with it every DIE. */
bool dwarf_image_reopen(struct dwarf_image *d);

void dwarf_image_release(struct dwarf_image *d);

/* Whether `root` is our own file system, the only one libdw can open .dwo files of. */
bool dwarf_image_own_root(const char *root);

#endif
