/* SPDX-License-Identifier: BSD-2-Clause */
#include "elf/in_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"

#define OPEN_FLAGS (O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)

/* One component after the other, none of them a symlink and none "..". */
static int walk_open(int root_fd, const char *path)
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
		int fd = openat(dir, name, O_NOFOLLOW | (last ? OPEN_FLAGS : O_PATH | O_CLOEXEC));
		if (fd < 0)
			return -errno;
		if (last)
			return fd;
		close(dir);
		dir = fd;
	}
}

static int open_beneath(int root_fd, const char *path, bool nofollow)
{
	struct open_how how = {
		.flags = OPEN_FLAGS | (nofollow ? O_NOFOLLOW : 0),
		.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
	};
	int fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));

	if (fd >= 0)
		return fd;
	/* EPERM: a seccomp filter older than the system call */
	return errno == ENOSYS || errno == EPERM ? walk_open(root_fd, path) : -errno;
}

int in_root_open(const char *root, const char *path, bool nofollow)
{
	autoclose int root_fd = open(*root ? root : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct stat st;

	if (root_fd < 0)
		return -errno;
	autoclose int fd = open_beneath(root_fd, path, nofollow);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st))
		return -errno;
	if (!S_ISREG(st.st_mode))
		return -EINVAL;
	return take_fd(fd);
}
