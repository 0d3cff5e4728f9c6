/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as a core file: its notes, its memory, its mappings in order, its threads. Files are looked for where
 * there are none. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "sample/snapshot/core.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int read_mapping(void *ctx, const struct proc_mapping *m)
{
	const struct source *s = ctx;
	uint8_t got[256];
	int fd;

	if (m->start >= m->end)
		abort();
	source_read_some(s, 1, m->start, got, sizeof(got));
	source_read_some(s, 1, m->end - 1, got, sizeof(got));
	fd = s->ops->open_file(s, 1, m, NULL);
	if (fd >= 0)
		close(fd);
	return 0;
}

static void look_at(struct core *c)
{
	const struct source *s = core_source(c);
	struct thread_looks looks = {0};
	struct look *l = core_look(c);
	pid_t pid = core_info(c)->pid;
	struct proc_status status;

	s->ops->each_mapping(s, pid, read_mapping, (void *)(uintptr_t)s, NULL);
	if (!l->ops->read(l, pid, 0, &looks, NULL))
		vec_each(&looks, t)
			s->ops->status(s, t->tid, &status, NULL);
	vec_release(&looks);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	int fd = memfd_create("core", MFD_CLOEXEC);
	struct core_file *f;
	struct core *c;
	uint8_t got[64];
	char path[64];

	if (!core_file_open_memory(data, size, "fuzz", &f, NULL)) {
		vec_each(&core_file_info(f)->segments, s)
			core_file_read(f, s->start + s->kept / 2, got, sizeof(got));
		core_file_free(f);
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	if (size && write(fd, data, size) == (ssize_t)size && !core_open(path, "/proc/self/fdinfo", &c, NULL)) {
		look_at(c);
		core_free(c);
	}
	close(fd);
	return 0;
}
