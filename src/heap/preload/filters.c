/* SPDX-License-Identifier: BSD-2-Clause */
/* Whether the program was put into a sandbox before it began (heap/share.h, SHARE_OPTION_FILTERS_AT). */
#include <fcntl.h>

#include "heap/preload/preload.h"
#include "heap/preload/sys.h"

/* The number behind `key`, which stands at the beginning of a line. -1: there is none. */
static long number_of(const char *text, long bytes, const char *key)
{
	long number = -1;

	for (long at = 0; at < bytes; at++) {
		long i = 0;

		while (key[i] && at + i < bytes && text[at + i] == key[i])
			i++;
		if (!key[i]) {
			for (at += i, number = 0; at < bytes && (text[at] == ' ' || text[at] == '\t'); at++)
				;
			for (; at < bytes && text[at] >= '0' && text[at] <= '9' && number < 1000; at++)
				number = number * 10 + (text[at] - '0');
			return number;
		}
		while (at < bytes && text[at] != '\n')
			at++;
	}
	return number;
}

/* The loader has just done the same three system calls, with our library. */
bool preload_in_sandbox(uint64_t options)
{
	char text[4096];
	long fd = sys3(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC), bytes, filters;

	if (fd < 0)
		return false;
	bytes = sys3(SYS_read, fd, text, sizeof(text));
	sys3(SYS_close, fd, 0, 0);
	filters = number_of(text, bytes, "Seccomp_filters:");
	if (filters < 0)
		filters = number_of(text, bytes, "Seccomp:");
	return filters > (long)(options >> SHARE_OPTION_FILTERS_AT & SHARE_OPTION_FILTERS_MOST);
}
