/* SPDX-License-Identifier: BSD-2-Clause */
/* Sockets as the kernel describes them: netlink messages and lines of text. */
#include "os/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/cursor.h"

static const uint8_t v4_prefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

/* Makes the bytes of an address as it stands in a header (network order) a struct socket_address. */
static struct socket_address address_of(int family, const uint8_t *ip, uint16_t port_be)
{
	struct socket_address a = {.port = ntohs(port_be)};

	if (family == AF_INET6) {
		memcpy(a.ip, ip, 16);
	} else {
		memcpy(a.ip, v4_prefix, 12);
		memcpy(a.ip + 12, ip, 4);
	}
	return a;
}

static int add(struct sockets *s, const struct socket_info *info)
{
	if (s->list.len >= SOCKETS_MOST) {
		s->cut = true;
		return 0;
	}
	return vec_push(&s->list, *info);
}

/* A name of sun_path: an abstract one begins with NUL, and may hold anything. */
static void take_name(struct socket_info *info, const uint8_t *bytes, size_t len)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n < sizeof(info->name) - 1; i++) {
		if (!bytes[i] && i && bytes[0])
			break; /* a path ends at the first NUL */
		if (!bytes[i])
			info->name[n++] = '@';
		else
			info->name[n++] = bytes[i] < 0x20 || bytes[i] == 0x7f ? '?' : (char)bytes[i];
	}
	info->name[n] = '\0';
}

/* The next attribute; false at the end. Lengths are padded to 4 (NLA_ALIGNTO). */
static bool next_attribute(struct cursor *c, uint16_t *ret_type, struct cursor *ret_body)
{
	if (cursor_left(c) < 4)
		return false;

	uint16_t len = cursor_u16(c);

	*ret_type = cursor_u16(c) & NLA_TYPE_MASK;
	if (len < 4)
		return false;
	*ret_body = cursor_sub(c, len - 4u);
	if (c->bad)
		return false;
	cursor_skip(c, cursor_left(c) < (-len & 3u) ? cursor_left(c) : (-len & 3u));
	return true;
}

/* struct unix_diag_msg and its attributes, linux/unix_diag.h */
static int parse_unix(struct cursor *c, struct sockets *s)
{
	struct socket_info info = {
		.family = AF_UNIX,
		.peer_known = true,
		.received = SOCKET_UNKNOWN,
		.unsent = SOCKET_UNKNOWN,
		.heard_ms = SOCKET_UNKNOWN,
		.said_ms = SOCKET_UNKNOWN,
	};
	struct cursor body;
	uint16_t type;
	int rc = 0;

	cursor_skip(c, 1); /* the family */
	info.type = cursor_u8(c);
	info.state = cursor_u8(c);
	cursor_skip(c, 1);
	info.inode = cursor_u32(c);
	cursor_skip(c, 8); /* cookie */
	if (c->bad)
		return 0;
	while (!rc && next_attribute(c, &type, &body)) {
		if (type == UNIX_DIAG_PEER) {
			info.peer = cursor_u32(&body);
		} else if (type == UNIX_DIAG_NAME) {
			size_t len = cursor_left(&body);

			take_name(&info, body.at, len);
		} else if (type == UNIX_DIAG_RQLEN && cursor_left(&body) >= 8) {
			info.received = cursor_u32(&body);
			info.unsent = cursor_u32(&body);
		} else if (type == UNIX_DIAG_ICONS) {
			while (!rc && cursor_left(&body) >= 4 && s->pending.len < SOCKETS_MOST) {
				struct socket_pending p = {info.inode, cursor_u32(&body)};

				rc = vec_push(&s->pending, p);
			}
		}
	}
	return rc ? rc : add(s, &info);
}

static void take_tcp_info(struct cursor *body, struct socket_info *info)
{
	struct tcp_info t = {0};
	size_t len = cursor_left(body);

	if (len > sizeof(t))
		len = sizeof(t);
	if (len < offsetof(struct tcp_info, tcpi_last_ack_recv))
		return;
	memcpy(&t, body->at, len);
	info->heard_ms = t.tcpi_last_data_recv;
	info->said_ms = t.tcpi_last_data_sent;
	info->retransmits = t.tcpi_retransmits;
}

/* struct inet_diag_msg and its attributes, linux/inet_diag.h */
static int parse_inet(struct cursor *c, struct sockets *s)
{
	struct socket_info info = {
		.type = SOCK_STREAM, .heard_ms = SOCKET_UNKNOWN, .said_ms = SOCKET_UNKNOWN};
	struct cursor body;
	uint16_t type, local_port, remote_port;
	const uint8_t *local, *remote;

	info.family = cursor_u8(c);
	info.state = cursor_u8(c);
	cursor_skip(c, 2); /* timer, retransmissions */
	local_port = cursor_u16(c);
	remote_port = cursor_u16(c);
	local = cursor_bytes(c, 16);
	remote = cursor_bytes(c, 16);
	cursor_skip(c, 4 + 8 + 4); /* interface, cookie, expiry */
	info.received = cursor_u32(c);
	info.unsent = cursor_u32(c);
	cursor_skip(c, 4); /* uid */
	info.inode = cursor_u32(c);
	if (c->bad)
		return 0;
	info.local = address_of(info.family, local, local_port);
	info.remote = address_of(info.family, remote, remote_port);
	while (next_attribute(c, &type, &body))
		if (type == INET_DIAG_INFO)
			take_tcp_info(&body, &info);
	return add(s, &info);
}

int sockets_parse_diag(
	const void *bytes, size_t len, struct sockets *ret, bool *ret_done, int *ret_code)
{
	struct cursor c = cursor_over(bytes, len);
	int rc = 0;

	while (!rc && cursor_left(&c) >= sizeof(struct nlmsghdr)) {
		uint32_t size = cursor_u32(&c);
		uint16_t type = cursor_u16(&c);

		cursor_skip(&c, 10); /* flags, sequence, port */
		if (size < sizeof(struct nlmsghdr))
			break;

		struct cursor body = cursor_sub(&c, size - sizeof(struct nlmsghdr));

		if (c.bad)
			break;
		if (cursor_left(&c) && (-size & 3u) <= cursor_left(&c))
			cursor_skip(&c, -size & 3u);
		if (type == NLMSG_DONE || type == NLMSG_ERROR) {
			int32_t code = cursor_left(&body) >= 4 ? cursor_s32(&body) : 0;

			*ret_done = true;
			*ret_code = code < 0 && code > INT32_MIN ? -code : 0;
		} else if (type == SOCK_DIAG_BY_FAMILY && cursor_left(&body)) {
			rc = body.at[0] == AF_UNIX ? parse_unix(&body, ret) : parse_inet(&body, ret);
		}
	}
	return rc;
}

/* ---- text ---- */

/* "Num RefCount Protocol Flags Type St Inode Path", all but Inode in hex; Flags has __SO_ACCEPTCON. */
static int parse_unix_line(const char *line, struct sockets *s)
{
	struct socket_info info = {
		.family = AF_UNIX,
		.received = SOCKET_UNKNOWN,
		.unsent = SOCKET_UNKNOWN,
		.heard_ms = SOCKET_UNKNOWN,
		.said_ms = SOCKET_UNKNOWN,
	};
	unsigned flags, type, state;
	int path = 0;

	if (sscanf(line, "%*s %*x %*x %x %x %x %" SCNu64 " %n", &flags, &type, &state, &info.inode,
		    &path) < 4)
		return 0;
	info.type = (uint8_t)type;
	info.state = flags & 0x10000 ? TCP_LISTEN : state == 3 /* SS_CONNECTED */ ? TCP_ESTABLISHED : TCP_CLOSE;
	if (path)
		take_name(&info, (const uint8_t *)line + path, strcspn(line + path, "\n"));
	return add(s, &info);
}

static int each_line(const char *text, int (*one)(const char *line, struct sockets *s, bool v6),
	struct sockets *s, bool v6)
{
	int rc = 0;

	/* The first one is the heading. */
	for (const char *line = strchr(text, '\n'); !rc && line && line[1]; line = strchr(line, '\n'))
		rc = one(++line, s, v6);
	return rc;
}

static int one_unix(const char *line, struct sockets *s, bool v6)
{
	(void)v6;
	return parse_unix_line(line, s);
}

int sockets_parse_unix(const char *text, struct sockets *ret)
{
	return each_line(text, one_unix, ret, false);
}

/* Words of 32 bits in the byte order of the machine, as %08X; a port as %04X. */
static bool parse_endpoint(const char *text, bool v6, struct socket_address *ret)
{
	uint32_t words[4];
	unsigned port;
	int count = v6 ? 4 : 1;

	for (int i = 0; i < count; i++, text += 8)
		if (strspn(text, "0123456789ABCDEFabcdef") < 8 || sscanf(text, "%8" SCNx32, &words[i]) != 1)
			return false;
	if (sscanf(text, ":%4x", &port) != 1)
		return false;
	*ret = address_of(v6 ? AF_INET6 : AF_INET, (const uint8_t *)words, htons((uint16_t)port));
	return true;
}

/* "sl local remote st tx:rx tr:when retrnsmt uid timeout inode ..." */
static int one_tcp(const char *line, struct sockets *s, bool v6)
{
	struct socket_info info = {
		.family = v6 ? AF_INET6 : AF_INET,
		.type = SOCK_STREAM,
		.heard_ms = SOCKET_UNKNOWN,
		.said_ms = SOCKET_UNKNOWN,
	};
	char local[48], remote[48];
	unsigned state;

	if (sscanf(line, "%*s %47s %47s %x %" SCNx32 ":%" SCNx32 " %*x:%*x %" SCNx32 " %*u %*u %" SCNu64,
		    local, remote, &state, &info.unsent, &info.received, &info.retransmits,
		    &info.inode) != 7 ||
		!parse_endpoint(local, v6, &info.local) || !parse_endpoint(remote, v6, &info.remote))
		return 0;
	info.state = (uint8_t)state;
	return add(s, &info);
}

int sockets_parse_tcp(const char *text, bool v6, struct sockets *ret)
{
	return each_line(text, one_tcp, ret, v6);
}

/* ---- what they say ---- */

static int compare(const void *a, const void *b)
{
	const struct socket_info *x = a, *y = b;

	return (x->inode > y->inode) - (x->inode < y->inode);
}

void sockets_sort(struct sockets *s)
{
	if (s->list.len)
		qsort(s->list.data, s->list.len, sizeof(*s->list.data), compare);
}

const struct socket_info *sockets_find(const struct sockets *s, uint64_t inode)
{
	struct socket_info want = {.inode = inode};

	if (!inode || !s->list.len)
		return NULL;
	return bsearch(&want, s->list.data, s->list.len, sizeof(*s->list.data), compare);
}

static bool same_address(const struct socket_address *a, const struct socket_address *b)
{
	return a->port == b->port && !memcmp(a->ip, b->ip, sizeof(a->ip));
}

const struct socket_info *sockets_find_tcp(const struct sockets *s,
	const struct socket_address *local, const struct socket_address *remote)
{
	vec_each(&s->list, i)
		if (i->family != AF_UNIX && same_address(&i->local, local) &&
			same_address(&i->remote, remote))
			return i;
	return NULL;
}

static bool is_any(const struct socket_address *a)
{
	static const uint8_t any6[16];

	return !memcmp(a->ip, any6, 16) ||
		(!memcmp(a->ip, v4_prefix, 12) && !memcmp(a->ip + 12, any6, 4));
}

const struct socket_info *sockets_find_listener(
	const struct sockets *s, const struct socket_address *at)
{
	const struct socket_info *any = NULL;

	vec_each(&s->list, i) {
		if (i->family == AF_UNIX || i->state != TCP_LISTEN || i->local.port != at->port)
			continue;
		if (same_address(&i->local, at))
			return i;
		if (is_any(&i->local))
			any = i;
	}
	return any;
}

const struct socket_info *sockets_find_name(const struct sockets *s, const char *name)
{
	vec_each(&s->list, i)
		if (i->family == AF_UNIX && *name && !strcmp(i->name, name) &&
			(i->state == TCP_LISTEN || i->type == SOCK_DGRAM))
			return i;
	return NULL;
}

void socket_address_text(const struct socket_address *a, char *buf, size_t size)
{
	char ip[INET6_ADDRSTRLEN] = "?";

	if (!memcmp(a->ip, v4_prefix, 12)) {
		inet_ntop(AF_INET, a->ip + 12, ip, sizeof(ip));
		snprintf(buf, size, "%s:%u", ip, a->port);
	} else {
		inet_ntop(AF_INET6, a->ip, ip, sizeof(ip));
		snprintf(buf, size, "[%s]:%u", ip, a->port);
	}
}

bool socket_address_is_loopback(const struct socket_address *a)
{
	static const uint8_t loopback6[16] = {[15] = 1};

	return (!memcmp(a->ip, v4_prefix, 12) && a->ip[12] == 127) ||
		!memcmp(a->ip, loopback6, 16);
}
