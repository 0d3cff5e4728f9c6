/* SPDX-License-Identifier: BSD-2-Clause */
/* Unix sockets: the kernel knows which two belong together. */
#include <inttypes.h>
#include <sys/socket.h>

#include "wait/fd.h"

/* Connected, and nobody has accepted it yet: who listens is to act. */
static uint64_t listener_of(const struct sockets *all, uint64_t client)
{
	vec_each(&all->pending, p)
		if (p->client == client)
			return p->listener;
	return 0;
}

static void without_peer(struct wait_fd *f, const struct socket_info *info, struct wait *ret)
{
	const struct sockets *all = wait_world_sockets(f->l->world, f->l->process->reader);
	uint64_t listener = listener_of(all, info->inode);
	struct wait_holders h = {0};

	if (listener) {
		WAIT_SAY(ret->detail, "the connection was not accepted yet");
		wait_holders_find(&h, f->l, OPEN_SOCKET, listener, false, false);
		wait_blame_holders(f->l, &h, "it listens, and has not accepted the connection", ret);
		wait_holders_release(&h);
		return;
	}
	/* Anybody may send to it. */
	ret->nature = WAIT_EVENT;
	ret->grade = info->peer_known ? WAIT_PROVEN : WAIT_INFERRED;
	if (!info->peer_known) {
		ret->nature = WAIT_PEER;
		WAIT_SAY(ret->detail, "who has the other end cannot be told: sock_diag is not there, or "
				      "the network namespace is not ours to enter (CAP_SYS_ADMIN)");
	}
}

void wait_fd_unix(struct wait_fd *f, const struct socket_info *info, struct wait *ret)
{
	struct wait_holders h = {0};

	ret->kind = "unix_socket";
	WAIT_SAY(ret->what, "to %s a unix socket%s%s", f->out ? "send to" : "receive from",
		info->name[0] ? " " : "", info->name);
	if (!info->peer) {
		without_peer(f, info, ret);
		return;
	}
	wait_holders_find(&h, f->l, OPEN_SOCKET, info->peer, false, false);
	wait_blame_holders(f->l, &h, "it has the other end of the socket", ret);
	wait_holders_release(&h);
}
