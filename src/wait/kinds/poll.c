/* SPDX-License-Identifier: BSD-2-Clause */
/* poll() and select(): what is watched stands in the target's memory. */
#include <poll.h>
#include <stdlib.h>
#include <sys/select.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

#define MOST_FDS 1024u /* of a program that watches more, no more than their number is told */

static void sleeps(struct wait *ret, const char *verb)
{
	ret->nature = ret->timeout_ns == LOOK_UNKNOWN ? WAIT_EVENT : WAIT_TIME;
	WAIT_SAY(ret->what, ret->timeout_ns == LOOK_UNKNOWN ? "in %s for a signal" : "in %s for a time",
		verb);
}

static void unreadable(struct wait *ret, const char *verb)
{
	ret->nature = WAIT_EVENT;
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->what, "in %s for one of its descriptors", verb);
}

/* ---- poll ---- */

static bool decode_poll(const struct wait_look *l, uint64_t *ret_limit_ns)
{
	switch (l->call) {
#if defined(SYS_poll)
	case SYS_poll:
		*ret_limit_ns = (int)l->args[2] < 0 ? LOOK_UNKNOWN
						    : (uint64_t)(int)l->args[2] * NS_PER_MS;
		return true;
#endif
	case SYS_ppoll:
		*ret_limit_ns = wait_timespec(l, l->args[2]);
		return true;
	default:
		return false;
	}
}

static bool look_poll(struct wait_look *l, struct wait *ret)
{
	struct pollfd fds[MOST_FDS];
	struct wait_watched watched[MOST_FDS];
	uint64_t count, limit_ns;
	size_t n = 0;

	if (!wait_has_call(l) || !decode_poll(l, &limit_ns))
		return false;
	ret->kind = "poll";
	ret->timeout_ns = wait_left(l, limit_ns);
	count = l->args[1];
	if (count > MOST_FDS || (count && !snapshot_read(l->snapshot, l->process, l->args[0], fds,
					  count * sizeof(fds[0])))) {
		unreadable(ret, "poll()");
		return true;
	}
	for (size_t i = 0; i < count; i++)
		if (fds[i].fd >= 0) /* negative ones are to be ignored */
			watched[n++] = (struct wait_watched){
				.fd = fds[i].fd,
				.in = !(fds[i].events & POLLOUT) || (fds[i].events & POLLIN),
				.out = !(fds[i].events & POLLIN) && (fds[i].events & POLLOUT),
			};
	if (n)
		wait_on_many(l, watched, n, "poll()", ret);
	else
		sleeps(ret, "poll()");
	return true;
}

const struct wait_kind wait_kind_poll = {.name = "poll", .look = look_poll};

/* ---- select ---- */

static bool decode_select(const struct wait_look *l, uint64_t *ret_limit_ns)
{
	switch (l->call) {
#if defined(SYS_select)
	case SYS_select:
		*ret_limit_ns = wait_timeval(l, l->args[4]);
		return true;
#endif
	case SYS_pselect6:
		*ret_limit_ns = wait_timespec(l, l->args[4]);
		return true;
	default:
		return false;
	}
}

/* A set of `count` bits, in words as the kernel has them; all clear for address 0. */
static bool read_set(const struct wait_look *l, uint64_t address, size_t count, fd_set *ret)
{
	size_t bytes = (count + 63) / 64 * 8;

	FD_ZERO(ret);
	return !address || !bytes || snapshot_read(l->snapshot, l->process, address, ret, bytes);
}

static bool look_select(struct wait_look *l, struct wait *ret)
{
	struct wait_watched watched[FD_SETSIZE];
	uint64_t count, limit_ns;
	fd_set in, out, odd;
	size_t n = 0;

	if (!wait_has_call(l) || !decode_select(l, &limit_ns))
		return false;
	ret->kind = "select";
	ret->timeout_ns = wait_left(l, limit_ns);
	count = l->args[0];
	if (count > FD_SETSIZE || !read_set(l, l->args[1], count, &in) ||
		!read_set(l, l->args[2], count, &out) || !read_set(l, l->args[3], count, &odd)) {
		unreadable(ret, "select()");
		return true;
	}
	for (int fd = 0; fd < (int)count; fd++) {
		bool reads = FD_ISSET(fd, &in) || FD_ISSET(fd, &odd), writes = FD_ISSET(fd, &out);

		if (reads || writes)
			watched[n++] = (struct wait_watched){.fd = fd, .in = reads, .out = !reads};
	}
	if (n)
		wait_on_many(l, watched, n, "select()", ret);
	else
		sleeps(ret, "select()");
	return true;
}

const struct wait_kind wait_kind_select = {.name = "select", .look = look_select};
