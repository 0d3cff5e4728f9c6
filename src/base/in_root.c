/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/in_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

/* To open a device is to do something to it, and whoever is profiled may have made one where a file
 * is looked for. So paths are found without opening anything, and opened when they are files. */
#define FIND_FLAGS (O_PATH | O_CLOEXEC)

/* One component after the other, none of them a symlink and none "..". */
static int walk_find(int root_fd, const char *path)
{
	autoclose int dir = fcntl(root_fd, F_DUPFD_CLOEXEC, 0);

	if (dir < 0)
		return -errno;
	for (;;) {
		char name[256];

		path += strspn(path, "/");
		size_t len = strcspn(path, "/");
		if (len >= sizeof(name))
			return -ENAMETOOLONG;
		memcpy(name, path, len);
		name[len] = '\0';
		path += len;
		if (!strcmp(name, ".."))
			return -ELOOP;
		bool last = !path[strspn(path, "/")];
		int fd = openat(dir, name, O_NOFOLLOW | FIND_FLAGS);
		if (fd < 0)
			return -errno;
		if (last)
			return fd;
		close(dir);
		dir = fd;
	}
}

static int find_beneath(int root_fd, const char *path, bool nofollow)
{
	struct open_how how = {
		.flags = FIND_FLAGS | (nofollow ? O_NOFOLLOW : 0),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	if (fd >= 0)
		return fd;
	/* EPERM: a seccomp filter older than the system call */
	return errno == ENOSYS || errno == EPERM ? walk_find(root_fd, path) : -errno;
}

int in_root_find(const char *root, const char *path, bool nofollow, bool *ret_no_root)
{
	autoclose int root_fd = open(*root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);

	if (ret_no_root)
		*ret_no_root = root_fd < 0;
	return root_fd < 0 ? -errno : find_beneath(root_fd, path, nofollow);
}

int in_root_reopen(int found)
{
	char link[32];

	snprintf(link, sizeof(link), "/proc/self/fd/%d", found);
	int fd = open(link, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	return fd < 0 ? -errno : fd;
}

int in_root_open(const char *root, const char *path, bool nofollow)
{
	autoclose int found = in_root_find(root, path, nofollow, NULL);
	struct stat st;

	if (found < 0)
		return found;
	if (fstat(found, &st))
		return -errno;
	if (S_ISLNK(st.st_mode)) /* O_PATH stops at a link that must not be followed */
		return -ELOOP;
	return S_ISREG(st.st_mode) ? in_root_reopen(found) : -EINVAL;
}
