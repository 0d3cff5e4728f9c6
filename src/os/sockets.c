/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/sockets.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "os/in_namespace.h"
#include "os/proc_priv.h"

#define MOST_TEXT ((size_t)64 << 20)
#define DATAGRAM_BYTES 65536u

/* ---- sock_diag ---- */

struct opened {
	int fd, code;
};

static void open_diag(void *arg)
{
	struct opened *o = arg;

	o->fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	o->code = o->fd < 0 ? errno : 0;
}

static int send_request(int fd, const void *request, size_t len)
{
	struct {
		struct nlmsghdr head;
		char body[64];
	} m = {
		.head = {
			.nlmsg_len = (uint32_t)(sizeof(m.head) + len),
			.nlmsg_type = SOCK_DIAG_BY_FAMILY,
			.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP,
		},
	};
	struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};

	memcpy(m.body, request, len);
	if (sendto(fd, &m, m.head.nlmsg_len, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0)
		return -errno;
	return 0;
}

/* 0, or the -errno that the dump ended with. */
static int receive(int fd, uint64_t deadline_ns, struct sockets *s)
{
	autofree char *bytes = malloc(DATAGRAM_BYTES);
	bool done = false;
	int code = 0;

	if (!bytes)
		return -ENOMEM;
	while (!done && !code) {
		uint64_t now = clock_monotonic_ns();
		uint64_t left = now < deadline_ns ? deadline_ns - now : 0;
		struct timeval tv = {
			.tv_sec = (time_t)(left / NS_PER_S),
			.tv_usec = (suseconds_t)(left % NS_PER_S / NS_PER_US),
		};

		if (left < NS_PER_US || s->cut ||
			setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv))) {
			s->cut = true;
			break;
		}

		ssize_t n = recv(fd, bytes, DATAGRAM_BYTES, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 && errno != EAGAIN ? -errno : (s->cut = true, 0);
		if (sockets_parse_diag(bytes, (size_t)n, s, &done, &code))
			return -ENOMEM;
	}
	return -code;
}

static int dump_unix(int fd, uint64_t deadline_ns, struct sockets *s)
{
	struct unix_diag_req r = {
		.sdiag_family = AF_UNIX,
		.udiag_states = UINT32_MAX,
		.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN,
	};
	int rc = send_request(fd, &r, sizeof(r));

	return rc ? rc : receive(fd, deadline_ns, s);
}

static int dump_tcp(int fd, int family, uint64_t deadline_ns, struct sockets *s)
{
	struct inet_diag_req_v2 r = {
		.sdiag_family = (uint8_t)family,
		.sdiag_protocol = IPPROTO_TCP,
		.idiag_ext = 1 << (INET_DIAG_INFO - 1),
		.idiag_states = UINT32_MAX,
	};
	int rc = send_request(fd, &r, sizeof(r));

	return rc ? rc : receive(fd, deadline_ns, s);
}

/* ---- text ---- */

enum table {
	TABLE_UNIX,
	TABLE_TCP,
	TABLE_TCP6,
};

static int read_text(pid_t pid, enum table table, struct sockets *s)
{
	static const char *const names[] = {"unix", "tcp", "tcp6"};
	autofree char *text = NULL;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/net/%s", (int)pid, names[table]);

	int rc = proc_read_whole(path, MOST_TEXT, &text);

	if (rc)
		return table == TABLE_TCP6 && rc == -ESRCH ? 0 : rc; /* no IPv6 */
	return table == TABLE_UNIX ? sockets_parse_unix(text, s)
				   : sockets_parse_tcp(text, table == TABLE_TCP6, s);
}

static int read_table(int fd, pid_t pid, enum table table, uint64_t deadline_ns, struct sockets *s)
{
	size_t before = s->list.len;
	int rc = -ENOENT;

	if (fd >= 0 && table == TABLE_UNIX)
		rc = dump_unix(fd, deadline_ns, s);
	else if (fd >= 0)
		rc = dump_tcp(fd, table == TABLE_TCP ? AF_INET : AF_INET6, deadline_ns, s);
	if (!rc || rc == -ENOMEM)
		return rc;
	/* A kernel without that part of sock_diag, or we may not enter. */
	s->list.len = before;
	if (table == TABLE_UNIX)
		s->from_text = true;
	return read_text(pid, table, s);
}

int sockets_read(pid_t pid, uint64_t limit_ns, struct sockets *ret, struct err *err)
{
	uint64_t deadline_ns = clock_monotonic_ns() + limit_ns;
	struct opened o = {.fd = -1};
	int rc = in_namespace(pid, "net", open_diag, &o, sizeof(o), limit_ns, NULL);
	autoclose int fd = rc ? -1 : o.fd;

	*ret = (struct sockets){0};
	for (int t = TABLE_UNIX; t <= TABLE_TCP6; t++) {
		rc = read_table(fd, pid, (enum table)t, deadline_ns, ret);
		if (rc) {
			sockets_release(ret);
			return rc == -ENOMEM ? err_nomem(err)
					     : err_errno(err, -rc, "sockets of process %d", (int)pid);
		}
	}
	sockets_sort(ret);
	return 0;
}

void sockets_release(struct sockets *s)
{
	vec_release(&s->list);
	vec_release(&s->pending);
}
