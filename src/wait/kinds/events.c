/* SPDX-License-Identifier: BSD-2-Clause */
/* Descriptors by which times, signals and news of files come: nobody is in the way. */
#include "wait/fd.h"

void wait_fd_timer(struct wait_fd *f, struct wait *ret)
{
	const struct fdinfo *info = wait_world_fdinfo(f->l->world, f->file.pid, f->fd);

	ret->kind = "timer";
	ret->nature = WAIT_TIME;
	WAIT_SAY(ret->what, "for a timer");
	if (!info || !info->timer) {
		ret->grade = WAIT_INFERRED;
	} else if (info->timer_ns) {
		/* fdinfo was read a moment ago at most; what it says is what was left then. */
		ret->timeout_ns = info->timer_ns;
	} else {
		ret->nature = WAIT_EVENT;
		WAIT_SAY(ret->what, "for a timer that is not set");
	}
}

void wait_fd_events(struct wait_fd *f, struct wait *ret)
{
	bool signals = f->file.what == OPEN_SIGNALFD;

	ret->kind = signals ? "signal" : "inotify";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, signals ? "for a signal" : "for a file to change");
}
