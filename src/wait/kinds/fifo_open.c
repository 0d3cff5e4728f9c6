/* SPDX-License-Identifier: BSD-2-Clause */
/* open() of a FIFO waits until somebody opens its other end. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "wait/call.h"
#include "wait/holders.h"
#include "wait/kinds.h"

#ifndef RESOLVE_CACHED
#define RESOLVE_CACHED 0x20
#endif

struct opening {
	int directory; /* as given to openat() */
	uint64_t path;
	uint64_t flags;
};

static bool decode(const struct wait_look *l, struct opening *ret)
{
	if (!wait_has_call(l))
		return false;
	switch (l->call) {
#if defined(SYS_open)
	case SYS_open:
		*ret = (struct opening){AT_FDCWD, l->args[0], l->args[1]};
		return true;
#endif
	case SYS_openat:
		*ret = (struct opening){(int)l->args[0], l->args[1], l->args[2]};
		return true;
	case SYS_openat2:
		*ret = (struct opening){(int)l->args[0], l->args[1], 0};
		return snapshot_read(l->snapshot, l->process, l->args[2], &ret->flags,
			sizeof(ret->flags));
	default:
		return false;
	}
}

/* A string of the target, which may end before a page that cannot be read. */
static bool read_string(const struct wait_look *l, uint64_t address, char *buf, size_t size)
{
	size_t used = 0;

	while (used < size) {
		size_t n = 256 - (address + used) % 256;

		if (n > size - used)
			n = size - used;
		if (!snapshot_read(l->snapshot, l->process, address + used, buf + used, n))
			return false;
		if (memchr(buf + used, 0, n))
			return true;
		used += n;
	}
	return false;
}

/* By what the kernel has in its cache; -EAGAIN: it is not there, or names change just now. The way through
 * /proc is in no cache, so `directory` is open already. */
static int open_cached(int directory, const char *path)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC,
		.resolve = RESOLVE_CACHED | (*path == '/' ? RESOLVE_IN_ROOT : 0)};
	int fd = -1;

	for (int i = 0; i < 3 && fd < 0; i++) {
		fd = (int)syscall(SYS_openat2, directory, path, &how, sizeof(how));
		if (fd < 0 && errno != EAGAIN)
			break;
	}
	/* Kernels before 5.12 do not know RESOLVE_CACHED, those before 5.6 not the call. */
	if (fd < 0 && (errno == EINVAL || errno == ENOSYS))
		fd = openat(directory, *path == '/' ? path + strspn(path, "/") : path, O_PATH | O_CLOEXEC);
	return fd;
}

/*
 * The file, found as the target did but only by what the kernel has in its cache, where it is since the target waits
 * in it: no file system is asked, so none can keep us waiting, whatever the target's memory says by now. Absolute
 * links on a relative way may lead elsewhere; what is found has to be a FIFO all the same.
 */
static bool find(const struct wait_look *l, int directory, const char *path, struct open_identity *ret)
{
	char from[64];
	int pid = (int)l->process->reader;

	if (*path != '/' && directory != AT_FDCWD)
		snprintf(from, sizeof(from), "/proc/%d/fd/%d", pid, directory);
	else
		snprintf(from, sizeof(from), "/proc/%d/%s", pid, *path == '/' ? "root" : "cwd");

	autoclose int at = open(from, O_PATH | O_DIRECTORY | O_CLOEXEC);
	autoclose int fd = at < 0 ? -1 : open_cached(at, path);

	return fd >= 0 && open_file_identity(getpid(), fd, ret) && ret->mode == S_IFIFO;
}

static bool look(struct wait_look *l, struct wait *ret)
{
	struct open_identity identity;
	struct wait_holders h = {0};
	struct opening o;
	char path[4096];
	bool writes;

	if (!decode(l, &o) || (*l->look->wait.where && !wait_in(l, "wait_for_partner") &&
				      !wait_in(l, "fifo_open")))
		return false;
	if (!read_string(l, o.path, path, sizeof(path)) || !find(l, o.directory, path, &identity)) {
		if (!*l->look->wait.where)
			return false;
		ret->nature = WAIT_PEER;
		ret->trouble = WAIT_NOBODY;
		WAIT_SAY(ret->what, "for the other end of a FIFO to be opened");
		return true;
	}
	writes = (o.flags & O_ACCMODE) == O_WRONLY;
	WAIT_SAY(ret->object, "fifo %" PRIx64 ":%" PRIu64, identity.device, identity.inode);
	WAIT_SAY(ret->what, "for somebody to open FIFO %.90s for %s", path,
		writes ? "reading" : "writing");
	wait_holders_find_file(&h, l, path, &identity, writes, !writes);
	wait_blame_holders(l, &h, "it has the other end of the FIFO open", ret);
	wait_holders_release(&h);
	return true;
}

const struct wait_kind wait_kind_fifo_open = {.name = "fifo_open", .look = look};
