/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The object file behind a mapping, put together from what a process has mapped of it: where the file
 * itself cannot be opened, because it was deleted or replaced, or never had a path (memfd), and we may
 * not ask the kernel for its inode.
 */
#ifndef SONDE_SAMPLE_LOADED_IMAGE_H
#define SONDE_SAMPLE_LOADED_IMAGE_H

#include "elf/elf_file.h"
#include "sample/source.h"

/* At most `limit` bytes, of which *ret_bytes were needed. -ENOEXEC: no ELF file; -ENOENT: it is not mapped
 * from its start, or nothing of `m` can be read; -EFBIG; -ESRCH, -EACCES as for /proc/PID/maps. */
int loaded_image_open(const struct source *s, pid_t pid, const struct proc_mapping *m, uint64_t limit,
	struct elf_file **ret, uint64_t *ret_bytes);

#endif
