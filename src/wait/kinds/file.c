/* SPDX-License-Identifier: BSD-2-Clause */
/* Files and devices: a read of a file waits for a disk, a network, or a program that plays file system. */
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "wait/call.h"
#include "wait/fd.h"

#define FUSE_DEVICE makedev(10, 229) /* Documentation/admin-guide/devices.txt */

/* Which daemon serves which file system is not told; where there is only one, it is that. */
static void blame_fuse(struct wait_look *l, struct wait *ret)
{
	const struct open_file *f;
	struct wait_holders h = {0};
	size_t n = open_files_find(wait_world_files(l->world), OPEN_PATH, open_path_key("/dev/fuse"), &f);

	for (size_t i = 0; i < n; i++) {
		struct open_identity id;

		if (open_file_identity(f[i].pid, f[i].fd, &id) && id.rdevice == FUSE_DEVICE)
			wait_holders_add(&h, l, f[i].pid);
	}
	wait_blame_holders(l, &h, "it serves a file system of FUSE", ret);
	if (ret->grade < WAIT_INFERRED)
		ret->grade = WAIT_INFERRED;
	for (size_t i = 0; i < ret->blocker_count; i++)
		if (ret->blockers[i].grade < WAIT_INFERRED)
			ret->blockers[i].grade = WAIT_INFERRED;
	wait_holders_release(&h);
}

void wait_fd_file(struct wait_fd *f, struct wait *ret)
{
	bool device = f->identity.mode == S_IFCHR;

	ret->kind = device ? "device" : "file";
	ret->nature = device ? WAIT_EVENT : WAIT_DEVICE;
	WAIT_SAY(ret->what, "to %s %s %.120s", f->out ? "write to" : "read from",
		device ? "device" : "file", f->link);
	if (wait_in(f->l, "request_wait_answer") || wait_in(f->l, "fuse_") || wait_in(f->l, "__fuse_"))
		blame_fuse(f->l, ret);
}
