/* SPDX-License-Identifier: BSD-2-Clause */
#include "symbol/debuginfod.h"

#include "config.h"

#ifdef HAVE_DEBUGINFOD

#include <elfutils/debuginfod.h>

struct elf_file *debuginfod_open_debug(const struct elf_file *f)
{
	struct elf_file *found = NULL;
	const uint8_t *id;
	size_t len = elf_file_build_id(f, &id);
	debuginfod_client *client = len ? debuginfod_begin() : NULL;

	if (!client)
		return NULL;
	int fd = debuginfod_find_debuginfo(client, id, (int)len, NULL);

	debuginfod_end(client);
	if (fd >= 0)
		(void)elf_file_open_fd(fd, elf_file_name(f), &found, NULL);
	return found;
}

#else

struct elf_file *debuginfod_open_debug(const struct elf_file *f)
{
	return NULL;
}

#endif
