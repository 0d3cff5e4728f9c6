/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as a jitdump that is read while it is written: its first half, then all of it. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "symbol/jitdump.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void look_up(struct jitdump *d, struct symbol_source *names)
{
	struct jitdump_code code;

	for (uint64_t address = 0; address < 0x2000; address += 0xfd)
		for (uint64_t time_ns = 0; time_ns < 3; time_ns++)
			if (jitdump_find(d, address, time_ns, &code))
				symbol_resolve(names, code.offset + (address - code.start));
	for (uint64_t offset = 0; offset < 0x400; offset += 7)
		symbol_resolve(names, offset);
	symbol_resolve(names, UINT64_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct jitdump *d = NULL;
	struct symbol_source *names = NULL;
	int fd = memfd_create("fuzz", MFD_CLOEXEC);
	size_t half = size / 2 < 40 ? size : size / 2;

	if (write(fd, data, half) != (ssize_t)half || jitdump_open(dup(fd), &d, NULL)) {
		close(fd);
		return 0;
	}
	if (!symbol_source_jitdump(d, &names, NULL)) {
		jitdump_follow(d);
		look_up(d, names);
		if (write(fd, data + half, size - half) == (ssize_t)(size - half))
			jitdump_follow(d);
		look_up(d, names);
	}
	symbol_source_free(names);
	jitdump_free(d);
	close(fd);
	return 0;
}
