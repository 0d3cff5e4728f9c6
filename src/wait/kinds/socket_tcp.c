/* SPDX-License-Identifier: BSD-2-Clause */
/* TCP: the other end is a socket with the same two addresses the other way round, or on another machine. */
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "wait/fd.h"

static void add_age(struct wait *ret, const char *words, uint32_t ms)
{
	if (ms == SOCKET_UNKNOWN || ms > 86400u * 1000 * 30)
		return; /* nothing yet: the kernel counts from when the machine was started */
	if (ms < 10000)
		WAIT_APPEND(ret->detail, "%s %u ms ago", words, ms);
	else
		WAIT_APPEND(ret->detail, "%s %u s ago", words, ms / 1000);
}

static void describe(const struct wait_fd *f, const struct socket_info *info, struct wait *ret)
{
	if (info->received && info->received != SOCKET_UNKNOWN && !f->out)
		WAIT_APPEND(ret->detail, "%u bytes are there", info->received);
	if (info->unsent && info->unsent != SOCKET_UNKNOWN)
		WAIT_APPEND(ret->detail, "%u bytes sent and not acknowledged", info->unsent);
	if (info->retransmits)
		WAIT_APPEND(ret->detail, "sent again %u times", info->retransmits);
	if (info->state == TCP_ESTABLISHED)
		add_age(ret, f->out ? "last sent" : "last heard of", f->out ? info->said_ms : info->heard_ms);
}

/* Ended by the other end, as far as this one has heard. */
static bool is_half_closed(const struct socket_info *info)
{
	return info->state == TCP_CLOSE_WAIT || info->state == TCP_CLOSE;
}

static void blame_socket(struct wait_fd *f, uint64_t inode, const char *how, struct wait *ret)
{
	struct wait_holders h = {0};

	wait_holders_find(&h, f->l, OPEN_SOCKET, inode, false, false);
	wait_blame_holders(f->l, &h, how, ret);
	wait_holders_release(&h);
}

/* Nobody has the other end open: not accepted yet, or closed. */
static void blame_listener(struct wait_fd *f, const struct sockets *among,
	const struct socket_info *info, struct wait *ret)
{
	const struct socket_info *listener = sockets_find_listener(among, &info->remote);

	if (listener) {
		WAIT_APPEND(ret->detail, "the connection was not accepted yet");
		blame_socket(f, listener->inode, "it listens, and has not accepted the connection", ret);
		return;
	}
	ret->nature = WAIT_PEER;
	ret->trouble = WAIT_NOBODY;
	WAIT_APPEND(ret->detail, "the other end was closed");
}

void wait_fd_tcp(struct wait_fd *f, const struct socket_info *info, struct wait *ret)
{
	static const char how[] = "it has the other end of the connection";
	const struct sockets *among;
	const struct socket_info *peer = wait_world_tcp_peer(f->l->world, f->l->process->reader, info, &among);
	const char *verb = info->state == TCP_SYN_SENT ? "connect to" : f->out ? "send to" : "receive from";
	char remote[64];

	ret->kind = "tcp";
	ret->nature = WAIT_PEER;
	socket_address_text(&info->remote, remote, sizeof(remote));
	WAIT_SAY(ret->what, "to %s %s", verb, remote);
	describe(f, info, ret);
	if (peer && peer->inode) {
		blame_socket(f, peer->inode, how, ret);
	} else if (peer || (info->state == TCP_SYN_SENT && socket_address_is_loopback(&info->remote))) {
		blame_listener(f, among, info, ret);
	} else if (socket_address_is_loopback(&info->remote) || is_half_closed(info)) {
		ret->trouble = WAIT_NOBODY;
	} else {
		ret->trouble = WAIT_REMOTE;
		ret->grade = WAIT_PROVEN;
	}
}
