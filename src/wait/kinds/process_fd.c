/* SPDX-License-Identifier: BSD-2-Clause */
/* pidfds: the end of a process. */
#include <inttypes.h>

#include "wait/fd.h"

void wait_fd_pidfd(struct wait_fd *f, struct wait *ret)
{
	const struct fdinfo *info = wait_world_fdinfo(f->l->world, f->file.pid, f->fd);

	ret->kind = "pidfd";
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->what, "for a process to end");
	if (!info || info->pidfd <= 0) {
		ret->grade = WAIT_INFERRED;
		WAIT_SAY(ret->detail, "which one cannot be told");
		return;
	}
	WAIT_SAY(ret->object, "pid %d", (int)info->pidfd);
	wait_blame_process(f->l, ret, info->pidfd, WAIT_PROVEN, "the descriptor stands for it");
}
