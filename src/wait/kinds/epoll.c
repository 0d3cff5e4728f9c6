/* SPDX-License-Identifier: BSD-2-Clause */
/* epoll_wait(): what it watches stands in fdinfo. */
#include <inttypes.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

/* Asked of from within another poll: anything may happen there. */
void wait_fd_epoll(struct wait_fd *f, struct wait *ret)
{
	ret->kind = "epoll";
	ret->nature = WAIT_EVENT;
	WAIT_SAY(ret->what, "for an event of an epoll instance");
}

static bool decode(const struct wait_look *l, uint64_t *ret_limit_ns)
{
	*ret_limit_ns = LOOK_UNKNOWN;
	if (!wait_has_call(l))
		return false;
	switch (l->call) {
#if defined(SYS_epoll_wait)
	case SYS_epoll_wait:
#endif
	case SYS_epoll_pwait:
		if ((int)l->args[3] >= 0)
			*ret_limit_ns = (uint64_t)(int)l->args[3] * NS_PER_MS;
		return true;
#if defined(SYS_epoll_pwait2)
	case SYS_epoll_pwait2:
		*ret_limit_ns = wait_timespec(l, l->args[3]);
		return true;
#endif
	default:
		return false;
	}
}

static bool look(struct wait_look *l, struct wait *ret)
{
	const struct fdinfo *info;
	uint64_t limit_ns;

	if (!decode(l, &limit_ns))
		return false;
	ret->kind = "epoll";
	ret->nature = WAIT_EVENT;
	ret->timeout_ns = wait_left(l, limit_ns);
	WAIT_SAY(ret->what, "in epoll_wait() for an event");
	info = wait_world_fdinfo(l->world, l->process->reader, (int)l->args[0]);
	if (!info)
		return true;

	autofree struct wait_watched *w = calloc(info->watches.len + 1, sizeof(*w));

	if (!w)
		return true;
	for (size_t i = 0; i < info->watches.len; i++) {
		const struct fdinfo_watch *from = &info->watches.data[i];

		w[i] = (struct wait_watched){.fd = from->fd, .inode = from->inode};
		w[i].in = from->events & (EPOLLIN | EPOLLPRI | EPOLLRDHUP);
		w[i].out = !w[i].in && (from->events & EPOLLOUT);
	}
	wait_on_many(l, w, info->watches.len, "epoll_wait()", ret);
	/* Who can be woken by others is an event loop: it is not held up by the one it talks to. */
	if (ret->nature == WAIT_PEER && ret->grade > WAIT_PROVEN && ret->blocker_count == 1 &&
		info->watches.len > 1)
		ret->nature = WAIT_EVENT;
	return true;
}

const struct wait_kind wait_kind_epoll = {.name = "epoll", .look = look};
