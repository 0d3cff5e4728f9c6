/* SPDX-License-Identifier: BSD-2-Clause */
/* eventfds: all share one inode, so they are told apart by the id in fdinfo. */
#include <inttypes.h>

#include "wait/fd.h"

/* More eventfds than this are not compared. */
#define MOST 20000u

static void find(struct wait_fd *f, int64_t id, struct wait_holders *h)
{
	const struct open_file *all;
	size_t n = open_files_find(wait_world_files(f->l->world), OPEN_EVENTFD, 0, &all);

	for (size_t i = 0; i < n && i < MOST; i++) {
		const struct fdinfo *info = wait_world_fdinfo(f->l->world, all[i].pid, all[i].fd);

		if (info && info->eventfd_id == id)
			wait_holders_add(h, f->l, all[i].pid);
	}
}

void wait_fd_eventfd(struct wait_fd *f, struct wait *ret)
{
	const struct fdinfo *info = wait_world_fdinfo(f->l->world, f->file.pid, f->fd);
	struct wait_holders h = {0};

	ret->kind = "eventfd";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, f->out ? "to add to an eventfd that is full" : "for an eventfd");
	if (!info || info->eventfd_id < 0) {
		ret->grade = WAIT_INFERRED;
		WAIT_SAY(ret->detail, "this kernel does not tell who else has it");
		return;
	}
	WAIT_SAY(ret->object, "eventfd %" PRId64, info->eventfd_id);
	find(f, info->eventfd_id, &h);
	/* Itself: another of its threads, or a signal handler. */
	if (!h.others.len) {
		ret->own = true;
		WAIT_SAY(ret->detail, "only this process itself has it");
	} else {
		h.self = false;
		wait_blame_holders(f->l, &h, "it has the same eventfd", ret);
	}
	wait_holders_release(&h);
}
