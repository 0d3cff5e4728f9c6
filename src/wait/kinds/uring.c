/* SPDX-License-Identifier: BSD-2-Clause */
/* io_uring_enter(): requests are with the kernel, and which of them is late it does not tell. */
#include <sys/syscall.h>

#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

static void fill(struct wait_look *l, pid_t pid, int fd, struct wait *ret)
{
	const struct fdinfo *info = wait_world_fdinfo(l->world, pid, fd);

	ret->kind = "io_uring";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "for a request of an io_uring to be done");
	if (info && info->uring)
		WAIT_SAY(ret->detail, "%u submitted since it was made, %u not taken yet",
			info->uring_submitted, info->uring_submitted - info->uring_taken);
}

void wait_fd_uring(struct wait_fd *f, struct wait *ret)
{
	fill(f->l, f->file.pid, f->fd, ret);
}

static bool look(struct wait_look *l, struct wait *ret)
{
#if defined(SYS_io_uring_enter)
	if (wait_has_call(l) && l->call == SYS_io_uring_enter) {
		fill(l, l->process->reader, (int)l->args[0], ret);
		return true;
	}
#endif
	return false;
}

const struct wait_kind wait_kind_uring = {.name = "io_uring", .look = look};
