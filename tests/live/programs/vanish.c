/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * vanish HOW LIBRARY MS: loads a copy of the library whose file is not there any more, and spends the
 * time in its plugin_work(). The copy is made in the working directory.
 *
 *	memfd      never had a path
 *	deleted    the path is gone
 *	replaced   the path is another file's, as after an upgrade
 *
 * Says "ready" before it begins.
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "spin.h"

static const char copy_name[] = "./vanishing.so";

static int copy_of(const char *path, int memory)
{
	int in = open(path, O_RDONLY), out = memory ? memfd_create("vanishing", 0)
						    : open(copy_name, O_RDWR | O_CREAT | O_TRUNC, 0755);
	struct stat st;

	if (in < 0 || out < 0 || fstat(in, &st) ||
		sendfile(out, in, NULL, (size_t)st.st_size) != st.st_size)
		exit(2);
	close(in);
	return out;
}

int main(int argc, char **argv)
{
	int memory = argc == 4 && !strcmp(argv[1], "memfd");
	void (*work)(uint64_t) = NULL;
	char path[64];

	if (argc != 4)
		return 1;
	int fd = copy_of(argv[2], memory);

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	void *library = dlopen(memory ? path : copy_name, RTLD_NOW);

	close(fd);
	if (library)
		*(void **)&work = dlsym(library, "plugin_work");
	if (!work)
		return 3;
	if (!memory)
		unlink(copy_name);
	if (!strcmp(argv[1], "replaced"))
		close(copy_of("/proc/self/exe", 0));
	puts("ready");
	fflush(stdout);
	work((uint64_t)atoi(argv[3]));
	return 0;
}
