/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A profiler often runs as root and often writes into /tmp. So nothing that another user may have
 * put at the path is ever followed or written into: an old file is unlinked and a new one made in
 * its place, which also leaves the other names of a hard-linked file alone.
 */
#include "capture/output.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"

int output_create(const char *path, struct err *err)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);

	if (fd < 0)
		return err_errno(err, errno, "%s: cannot create the recording", path);
	/* A umask may have taken away what we need ourselves; filesystems without modes refuse. */
	(void)fchmod(fd, 0600);
	return fd;
}

static const char *kind_name(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFLNK:
		return "a symbolic link";
	case S_IFDIR:
		return "a directory";
	case S_IFBLK:
		return "a block device";
	case S_IFSOCK:
		return "a socket";
	default:
		return "not a regular file";
	}
}

static int check_owner(const char *path, const struct stat *st, struct err *err)
{
	if (st->st_uid == geteuid() || st->st_uid == 0)
		return 0;
	return err_set(err, EPERM,
		"%s: exists and belongs to user %u, so it is not replaced; remove it or name "
		"another file",
		path, (unsigned)st->st_uid);
}

static int open_stream(const char *path, const struct stat *before, struct err *err)
{
	struct stat st;
	autoclose int fd = -1;

	/* A FIFO waits here for its reader, as a shell's redirection does. */
	do {
		fd = open(path, O_WRONLY | O_NOFOLLOW | O_NOCTTY | O_CLOEXEC);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0)
		return err_errno(err, errno, "%s: cannot open", path);
	if (fstat(fd, &st))
		return err_errno(err, errno, "%s: cannot examine", path);
	if (st.st_dev != before->st_dev || st.st_ino != before->st_ino)
		return err_set(err, EAGAIN, "%s: was exchanged while it was being opened", path);
	return take_fd(fd);
}

/* The descriptor that /dev/stdout or /dev/fd/N names, -1 for other paths. These are symbolic links
 * which would be refused below, but they name nothing but what our caller already gave us. */
static int named_descriptor(const char *path)
{
	static const char prefix[] = "/dev/fd/";
	char *end;

	if (!strcmp(path, "/dev/stdout"))
		return STDOUT_FILENO;
	if (strncmp(path, prefix, sizeof(prefix) - 1))
		return -1;

	const char *digits = path + sizeof(prefix) - 1;
	unsigned long fd = strtoul(digits, &end, 10);

	return digits[0] >= '0' && digits[0] <= '9' && !*end && fd < 1u << 20 ? (int)fd : -1;
}

int output_open(const char *path, struct err *err)
{
	struct stat st;
	int named = named_descriptor(path);

	if (named >= 0) {
		int fd = fcntl(named, F_DUPFD_CLOEXEC, 3);

		return fd < 0 ? err_errno(err, errno, "%s: cannot use", path) : fd;
	}
	if (lstat(path, &st)) {
		if (errno == ENOENT)
			return output_create(path, err);
		return err_errno(err, errno, "%s: cannot create the recording", path);
	}
	if (!S_ISREG(st.st_mode) && !S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode))
		return err_set(err, S_ISDIR(st.st_mode) ? EISDIR : EINVAL,
			"%s: is %s; a recording goes to a new file, a file of yours, a FIFO or "
			"/dev/stdout",
			path, kind_name(st.st_mode));

	int rc = check_owner(path, &st, err);

	if (rc)
		return rc;
	if (!S_ISREG(st.st_mode))
		return open_stream(path, &st, err);
	if (unlink(path) && errno != ENOENT)
		return err_errno(err, errno, "%s: cannot replace the older file", path);
	return output_create(path, err);
}

static const char *write_hint(int code)
{
	switch (code) {
	case ENOSPC:
		return " (the disk is full; what was written until now can be read)";
	case EDQUOT:
		return " (your disk quota is used up; what was written until now can be read)";
	case EFBIG:
		return " (a limit on file sizes was hit, see ulimit -f)";
	case EPIPE:
		return " (nobody reads the pipe any more)";
	default:
		return "";
	}
}

int output_write(int fd, const char *name, const void *bytes, size_t len, struct err *err)
{
	const char *at = bytes;

	while (len) {
		ssize_t n = write(fd, at, len);

		if (n >= 0) {
			at += n;
			len -= (size_t)n;
		} else if (errno == EAGAIN) {
			struct pollfd p = {.fd = fd, .events = POLLOUT};
			(void)poll(&p, 1, -1);
		} else if (errno != EINTR) {
			int code = errno;
			return err_set(err, code, "%s: cannot write: %s%s", name,
				strerrordesc_np(code), write_hint(code));
		}
	}
	return 0;
}
