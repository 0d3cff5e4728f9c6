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

/*
 * The file, found as the target did but only by what the kernel has in its cache: no file system is
 * asked, so none can keep us waiting. Absolute links inside another root are not followed rightly; what is
 * found has to be a FIFO all the same.
 */
static bool find(const struct wait_look *l, int directory, const char *path, struct open_identity *ret)
{
	struct open_how how = {.flags = O_PATH | O_CLOEXEC, .resolve = RESOLVE_CACHED};
	char full[4096 + 64];
	const char *from = *path == '/' ? "root" : "cwd";
	int pid = (int)l->process->reader, n;

	if (*path != '/' && directory != AT_FDCWD)
		n = snprintf(full, sizeof(full), "/proc/%d/fd/%d/%s", pid, directory, path);
	else
		n = snprintf(full, sizeof(full), "/proc/%d/%s/%s", pid, from, path);
	if (n >= (int)sizeof(full))
		return false;

	autoclose int fd = (int)syscall(SYS_openat2, AT_FDCWD, full, &how, sizeof(how));

	/* Kernels before 5.12 do not know RESOLVE_CACHED, those before 5.6 not the call. */
	if (fd < 0 && (errno == EINVAL || errno == ENOSYS || errno == EAGAIN))
		fd = open(full, O_PATH | O_CLOEXEC);
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
