/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The library is only loaded when it is asked for: it brings an HTTP client and thirty other libraries along, and
 * most machines that sonde is copied to do not have it. What is declared here is its interface since elfutils 0.178.
 */
#include "symbol/debuginfod.h"

#include <dlfcn.h>
#include <stdbool.h>

#define LIBRARY "libdebuginfod.so.1"

struct library {
	void *(*begin)(void);
	/* A descriptor, which is the caller's, or -errno. The id has `len` bytes. */
	int (*find_debuginfo)(void *client, const unsigned char *id, int len, char **ret_path);
	void (*end)(void *client);
};

/* The library, loaded once; NULL where there is none. */
static const struct library *library(void)
{
	static struct library lib;
	static bool tried;
	void *handle;

	if (tried)
		return lib.end ? &lib : NULL;
	tried = true;
	handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
	if (!handle)
		return NULL;
	/* Functions and objects have addresses of one kind here (POSIX, dlsym). */
	*(void **)&lib.begin = dlsym(handle, "debuginfod_begin");
	*(void **)&lib.find_debuginfo = dlsym(handle, "debuginfod_find_debuginfo");
	if (lib.begin && lib.find_debuginfo)
		*(void **)&lib.end = dlsym(handle, "debuginfod_end");
	return lib.end ? &lib : NULL;
}

bool debuginfod_is_there(void)
{
	return library();
}

struct elf_file *debuginfod_open_debug(const struct elf_file *f)
{
	const struct library *lib = library();
	struct elf_file *found = NULL;
	const uint8_t *id;
	size_t len = elf_file_build_id(f, &id);
	void *client = lib && len ? lib->begin() : NULL;

	if (!client)
		return NULL;
	int fd = lib->find_debuginfo(client, id, (int)len, NULL);

	lib->end(client);
	if (fd >= 0)
		(void)elf_file_open_fd(fd, elf_file_name(f), &found, NULL);
	return found;
}
