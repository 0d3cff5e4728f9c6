/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets: which protocol it is, and what is common to all. */
#include <inttypes.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "wait/call.h"
#include "wait/fd.h"
#include "wait/kinds.h"

/* "UDP", "NETLINK": the kernel's name of its protocol; "" where it is not told. */
static void protocol(const struct wait_fd *f, char *buf, size_t size)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)f->file.pid, f->fd);

	ssize_t n = getxattr(path, "system.sockprotoname", buf, size - 1);

	if (n < 0)
		n = 0;
	buf[n] = '\0';
	for (char *c = buf; *c; c++)
		if (*c < 0x20 || *c == 0x7f)
			*c = '?';
}

static void unlisted(struct wait_fd *f, struct wait *ret)
{
	char name[32];

	protocol(f, name, sizeof(name));
	ret->kind = "socket";
	ret->nature = f->out ? WAIT_DEVICE : WAIT_EVENT;
	ret->grade = WAIT_INFERRED;
	WAIT_SAY(ret->what, "to %s a socket%s%s", f->out ? "send to" : "receive from",
		*name ? " of " : "", name);
}

static void listening(struct wait_fd *f, const struct socket_info *info, struct wait *ret)
{
	char at[SOCKET_NAME_BYTES];

	ret->kind = "accept";
	ret->nature = WAIT_EVENT;
	if (info->family == AF_UNIX)
		snprintf(at, sizeof(at), "%s", info->name);
	else
		socket_address_text(&info->local, at, sizeof(at));
	WAIT_SAY(ret->what, "for somebody to connect to %s", at);
}

void wait_fd_socket(struct wait_fd *f, struct wait *ret)
{
	const struct sockets *all = wait_world_sockets(f->l->world, f->l->process->reader);
	const struct socket_info *info = sockets_find(all, f->file.key);

	WAIT_SAY(ret->object, "socket:[%" PRIu64 "]", f->file.key);
	if (!info)
		unlisted(f, ret);
	else if (info->state == TCP_LISTEN)
		listening(f, info, ret);
	else if (info->family == AF_UNIX)
		wait_fd_unix(f, info, ret);
	else
		wait_fd_tcp(f, info, ret);
}

/* ---- connect() ---- */

/* The name in the address that the call was given, as sockets are listed. */
static bool read_name(struct wait_look *l, char *buf, size_t size)
{
	struct sockaddr_un at = {0};
	uint64_t len = l->args[2];
	size_t n = 0, path = offsetof(struct sockaddr_un, sun_path);

	if (len <= path || len > sizeof(at) ||
		!snapshot_read(l->snapshot, l->process, l->args[1], &at, len) ||
		at.sun_family != AF_UNIX)
		return false;
	for (size_t i = 0; i < len - path && n < size - 1; i++) {
		if (!at.sun_path[i] && i && at.sun_path[0])
			break;
		buf[n++] = at.sun_path[i] ? at.sun_path[i] : '@';
	}
	buf[n] = '\0';
	return true;
}

static bool look_connect(struct wait_look *l, struct wait *ret)
{
	const struct socket_info *listener;
	struct wait_holders h = {0};
	char name[SOCKET_NAME_BYTES];

	if (!wait_has_call(l) || l->call != SYS_connect)
		return false;
	if (!read_name(l, name, sizeof(name))) {
		bool known = wait_on_fd(l, (int)l->args[0], true, ret);

		ret->kind = "connect";
		return known;
	}
	ret->kind = "connect";
	ret->nature = WAIT_PEER;
	WAIT_SAY(ret->object, "unix %.80s", name);
	WAIT_SAY(ret->what, "to connect to unix socket %.100s", name);
	listener = sockets_find_name(wait_world_sockets(l->world, l->process->reader), name);
	if (!listener) {
		ret->grade = WAIT_INFERRED;
		return true;
	}
	if (listener->received != SOCKET_UNKNOWN)
		WAIT_SAY(ret->detail, "%u connections wait to be accepted", listener->received);
	wait_holders_find(&h, l, OPEN_SOCKET, listener->inode, false, false);
	wait_blame_holders(l, &h, "it listens at that name", ret);
	wait_holders_release(&h);
	return true;
}

const struct wait_kind wait_kind_connect = {.name = "connect", .look = look_connect};
