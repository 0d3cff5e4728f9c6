/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/runtime_library.h"

#include <string.h>

/* Behind the directory that belongs to one version of Python; programs and their packages have others. */
static bool is_version(const char *c)
{
	while (*c == '.' || (*c >= '0' && *c <= '9'))
		c++;
	return *c == '/' || (*c == 't' && c[1] == '/');
}

bool python_library(const char *path)
{
	const char *slash = strrchr(path, '/'), *at = path;
	const char *base = slash ? slash + 1 : path;

	if (!strncmp(path, "<frozen ", 8) || !strncmp(base, "libffi.so", 9) || strstr(path, "/lib-dynload/"))
		return true;
	if (strstr(path, "/site-packages/") || strstr(path, "/dist-packages/"))
		return false;
	while ((at = strstr(at, "/python3."))) {
		bool in_lib = (at - path >= 4 && !strncmp(at - 4, "/lib", 4)) ||
			(at - path >= 6 && !strncmp(at - 6, "/lib64", 6));

		at += 9;
		if (in_lib && is_version(at))
			return true;
	}
	return false;
}

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
