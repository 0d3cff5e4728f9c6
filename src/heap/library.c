/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/library.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "heap/preload_library.h" /* made by embed.py */

#define FILE_NAME "libsonde-heap.so"

struct heap_library {
	char dir[PATH_MAX], path[PATH_MAX + sizeof("/" FILE_NAME)];
};

/* Whether code may be mapped from there, and the name can stand in LD_PRELOAD. */
static bool is_place(const char *dir)
{
	struct statvfs fs;

	return dir && dir[0] == '/' && !strpbrk(dir, " :\t\n") && !access(dir, W_OK | X_OK) && !statvfs(dir, &fs) &&
		!(fs.f_flag & ST_NOEXEC);
}

static int make_dir(struct heap_library *l, struct err *err)
{
	const char *places[] = {getenv("TMPDIR"), "/tmp", "/var/tmp", "/dev/shm", getenv("XDG_RUNTIME_DIR"), getenv("HOME")};

	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		if (!is_place(places[i]) || strlen(places[i]) > PATH_MAX / 2)
			continue;
		snprintf(l->dir, sizeof(l->dir), "%s/sonde-heap-XXXXXX", places[i]);
		/* The program may run as another user: it may look its file up, and not list the directory. */
		if (mkdtemp(l->dir) && !chmod(l->dir, 0711))
			return 0;
		l->dir[0] = '\0';
	}
	return err_set(err, EACCES,
		"there is no place for the library that is loaded into the program: a directory that can be written to "
		"and is not mounted noexec; TMPDIR may name one");
}

static int write_file(const struct heap_library *l, struct err *err)
{
	autoclose int fd = open(l->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	size_t done = 0;

	while (fd >= 0 && done < sizeof(heap_preload_library)) {
		ssize_t n = write(fd, heap_preload_library + done, sizeof(heap_preload_library) - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return err_errno(err, n < 0 ? errno : ENOSPC, "%s", l->path);
		done += (size_t)n;
	}
	return fd < 0 || fchmod(fd, 0444) ? err_errno(err, errno, "%s", l->path) : 0;
}

int heap_library_new(struct heap_library **ret, struct err *err)
{
	struct heap_library *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return err_nomem(err);
	rc = make_dir(l, err);
	if (!rc) {
		snprintf(l->path, sizeof(l->path), "%s/" FILE_NAME, l->dir);
		rc = write_file(l, err);
	}
	if (rc) {
		heap_library_free(l);
		return rc;
	}
	*ret = l;
	return 0;
}

const char *heap_library_path(const struct heap_library *l)
{
	return l->path;
}

void heap_library_free(struct heap_library *l)
{
	if (l && l->path[0])
		unlink(l->path);
	if (l && l->dir[0])
		rmdir(l->dir);
	free(l);
}

void heap_library_leave(struct heap_library *l)
{
	free(l);
}
