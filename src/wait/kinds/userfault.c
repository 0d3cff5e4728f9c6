/* SPDX-License-Identifier: BSD-2-Clause */
/* userfaultfd: a page that another thread, maybe of another process, is to supply. */
#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

#define MOST 1000u

void wait_fd_uffd(struct wait_fd *f, struct wait *ret)
{
	(void)f;
	ret->kind = "userfaultfd";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "for somebody to touch a page it is to supply");
}

/* Those who have one with a fault that is not resolved: this one is among them. */
static bool look(struct wait_look *l, struct wait *ret)
{
	const struct open_file *all;
	struct wait_holders h = {0};
	size_t n;

	if (!wait_in(l, "handle_userfault"))
		return false;
	n = open_files_find(wait_world_files(l->world), OPEN_USERFAULTFD, 0, &all);
	WAIT_SAY(ret->what, "for a page that a holder of its userfaultfd is to supply");
	for (size_t i = 0; i < n && i < MOST; i++) {
		const struct fdinfo *info = wait_world_fdinfo(l->world, all[i].pid, all[i].fd);

		if (info && info->uffd_total)
			wait_holders_add(&h, l, all[i].pid);
	}
	if (h.self && !h.others.len) {
		ret->nature = WAIT_EVENT;
		ret->own = true;
		WAIT_SAY(ret->detail, "only this process itself has it");
		if (l->process->threads.len == 1) {
			ret->nature = WAIT_PEER;
			ret->trouble = WAIT_OWN_PIPE;
		}
	} else {
		wait_blame_holders(l, &h, "it has a userfaultfd with a fault that is not resolved", ret);
		/* Whose memory a descriptor is for is told nowhere. */
		if (ret->grade < WAIT_INFERRED)
			ret->grade = WAIT_INFERRED;
		for (size_t i = 0; i < ret->blocker_count; i++)
			if (ret->blockers[i].grade < ret->grade)
				ret->blockers[i].grade = ret->grade;
	}
	wait_holders_release(&h);
	return true;
}

const struct wait_kind wait_kind_userfault = {.name = "userfaultfd", .look = look};
