/* SPDX-License-Identifier: BSD-2-Clause */
#include "symbol/dwarf_image.h"

#include <stdlib.h>
#include <sys/stat.h>

static Dwarf *open_bytes(const uint8_t *image, size_t size, Elf **ret_elf)
{
	elf_version(EV_CURRENT);
	*ret_elf = elf_memory((char *)image, size); /* only read: it is mapped read-only */
	return *ret_elf ? dwarf_begin_elf(*ret_elf, DWARF_C_READ, NULL) : NULL;
}

/* Also when there is no such file libdw must know that, or it goes and looks. */
static void open_alt(
	struct dwarf_image *d, struct elf_file *file, const char *root, const char *debug_dir)
{
	const uint8_t *image;
	size_t size;

	if (elf_file_open_alt(file, root, debug_dir, &d->alt_file, NULL) || !d->alt_file)
		return;
	image = elf_file_image(d->alt_file, &size);
	d->alt = open_bytes(image, size, &d->alt_elf);
	if (d->alt)
		dwarf_setalt(d->dwarf, d->alt);
}

static bool open_all(
	struct dwarf_image *d, struct elf_file *file, const char *root, const char *debug_dir)
{
	size_t size;
	const uint8_t *image = elf_file_image(file, &size);

	if (elf_file_has_compressed_debug(file)) {
		if (elf_file_plain_debug_image(file, &d->plain, &size, NULL))
			return false;
		image = d->plain;
	}
	d->dwarf = open_bytes(image, size, &d->elf);
	if (!d->dwarf)
		return false;
	open_alt(d, file, root, debug_dir);
	return d->alt || !elf_file_has_section(file, ".gnu_debugaltlink");
}

bool dwarf_image_open(struct dwarf_image *d, struct elf_file *file, const char *root,
	const char *debug_dir)
{
	if (open_all(d, file, root, debug_dir))
		return true;
	dwarf_image_release(d);
	return false;
}

bool dwarf_image_reopen(struct dwarf_image *d)
{
	dwarf_end(d->dwarf);
	d->dwarf = dwarf_begin_elf(d->elf, DWARF_C_READ, NULL);
	if (d->dwarf && d->alt)
		dwarf_setalt(d->dwarf, d->alt);
	return d->dwarf != NULL;
}

void dwarf_image_release(struct dwarf_image *d)
{
	dwarf_end(d->dwarf);
	dwarf_end(d->alt);
	elf_end(d->elf);
	elf_end(d->alt_elf);
	elf_file_free(d->alt_file);
	free(d->plain);
	*d = (struct dwarf_image){0};
}

bool dwarf_image_own_root(const char *root)
{
	struct stat theirs, ours;

	return !*root || (!stat(root, &theirs) && !stat("/", &ours) &&
		theirs.st_dev == ours.st_dev && theirs.st_ino == ours.st_ino);
}
