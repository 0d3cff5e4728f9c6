/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/library.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/vec.h"
#include "heap/preload_library.h" /* made by embed.py */
#include "os/proc.h"

#define FILE_NAME "libsonde-heap.so"

#define DIR_PREFIX "sonde-heap-"
#define DIR_NAME DIR_PREFIX "XXXXXX"
/* Environments of processes are looked at so far. */
#define MOST_ENVIRONMENT (1u << 20)
/* A younger file may just have been made, and have nobody's lock yet. */
#define LEFTOVER_S 60
#define MOST_LEFTOVERS 64u /* of one look */

struct heap_library {
	char dir[PATH_MAX], path[PATH_MAX + sizeof("/" FILE_NAME)];
	int lock_fd; /* of the file, as long as we live */
};

/* ---- who may still look for it ---- */

static bool environment_has(pid_t pid, const char *path)
{
	char name[40];
	autofree char *bytes = malloc(MOST_ENVIRONMENT);
	size_t len = 0;
	ssize_t n;

	snprintf(name, sizeof(name), "/proc/%d/environ", (int)pid);
	autoclose int fd = open(name, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || !bytes)
		return false;
	while (len < MOST_ENVIRONMENT && (n = read(fd, bytes + len, MOST_ENVIRONMENT - len)) > 0)
		len += (size_t)n;
	return memmem(bytes, len, path, strlen(path));
}

bool heap_library_in_use(const char *path)
{
	struct pid_vec pids = {0};
	bool found = false;

	if (proc_all(&pids, NULL))
		return true;
	vec_each(&pids, pid)
		if (*pid != getpid() && !found)
			found = environment_has(*pid, path);
	vec_release(&pids);
	return found;
}

static bool is_leftover(const char *path)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	struct stat st;

	return fd >= 0 && !fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
		time(NULL) - st.st_mtime > LEFTOVER_S && !flock(fd, LOCK_EX | LOCK_NB) && !heap_library_in_use(path);
}

/* What was left by a sonde that was killed, or by programs that lived on. */
static void remove_leftovers(const char *place)
{
	DIR *dir = opendir(place);
	unsigned seen = 0;

	for (struct dirent *e; dir && seen < MOST_LEFTOVERS && (e = readdir(dir));) {
		char path[PATH_MAX];

		if (strncmp(e->d_name, DIR_PREFIX, strlen(DIR_PREFIX)) || strlen(e->d_name) != strlen(DIR_NAME))
			continue;
		seen++;
		snprintf(path, sizeof(path), "%s/%s/" FILE_NAME, place, e->d_name);
		if (!is_leftover(path))
			continue;
		unlink(path);
		*strrchr(path, '/') = '\0';
		rmdir(path);
	}
	if (dir)
		closedir(dir);
}

/* ---- the file ---- */

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
		snprintf(l->dir, sizeof(l->dir), "%s/" DIR_NAME, places[i]);
		/* The program may run as another user: it may look its file up, and not list the directory. */
		if (mkdtemp(l->dir) && !chmod(l->dir, 0711)) {
			remove_leftovers(places[i]);
			return 0;
		}
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

/* Others see by the lock that we live. */
static int lock_file(struct heap_library *l, struct err *err)
{
	l->lock_fd = open(l->path, O_RDONLY | O_CLOEXEC);
	return l->lock_fd < 0 || flock(l->lock_fd, LOCK_SH) ? err_errno(err, errno, "%s", l->path) : 0;
}

int heap_library_new(struct heap_library **ret, struct err *err)
{
	struct heap_library *l = calloc(1, sizeof(*l));
	int rc;

	if (!l)
		return err_nomem(err);
	l->lock_fd = -1;
	rc = make_dir(l, err);
	if (!rc) {
		snprintf(l->path, sizeof(l->path), "%s/" FILE_NAME, l->dir);
		rc = write_file(l, err);
	}
	if (!rc)
		rc = lock_file(l, err);
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

static void forget(struct heap_library *l)
{
	if (l && l->lock_fd >= 0)
		close(l->lock_fd);
	free(l);
}

void heap_library_bytes(const void **ret, size_t *ret_size)
{
	*ret = heap_preload_library;
	*ret_size = sizeof(heap_preload_library);
}

void heap_library_free(struct heap_library *l)
{
	if (l && l->path[0])
		unlink(l->path);
	if (l && l->dir[0])
		rmdir(l->dir);
	forget(l);
}

void heap_library_leave(struct heap_library *l)
{
	forget(l);
}
