/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/runtime_library.h"

#include <string.h>

bool runtime_library(const char *path)
{
	static const char *const names[] = {"libc.so", "libc-", "libpthread", "libstdc++", "libc++",
		"libgcc_s", "ld-linux", "ld-musl", "[vdso]"};
	const char *slash = strrchr(path, '/');
	const char *base = slash ? slash + 1 : path;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(base, names[i], strlen(names[i])))
			return true;
	return false;
}
