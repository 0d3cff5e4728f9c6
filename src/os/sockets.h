/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The sockets of a network namespace: which belong together, and what waits in them.
 *
 * Asked of the kernel's sock_diag (sock_diag(7)), from inside the namespace of a process; where that
 * cannot be had, the text in /proc/PID/net, which does not tell the other end of a unix socket.
 */
#ifndef SONDE_OS_SOCKETS_H
#define SONDE_OS_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

#define SOCKET_NAME_BYTES 112u
#define SOCKET_UNKNOWN UINT32_MAX

/* An address of TCP; IPv4 as ::ffff:a.b.c.d. */
struct socket_address {
	uint8_t ip[16];
	uint16_t port;
};

struct socket_info {
	uint64_t inode;      /* 0: nobody has it open: not accepted yet, or closed */
	uint8_t family;      /* AF_UNIX; AF_INET and AF_INET6 for TCP */
	uint8_t type;        /* SOCK_STREAM... */
	uint8_t state;       /* TCP_ESTABLISHED, TCP_LISTEN... of unix sockets as well */
	uint64_t peer;       /* unix: inode of the other end, 0: none, or not accepted yet */
	bool peer_known;     /* unix: whether it could be told */
	uint32_t received, unsent; /* bytes not read; bytes not sent, or not acknowledged. Listening: connections
				      not accepted, and how many may be. SOCKET_UNKNOWN */
	struct socket_address local, remote; /* TCP */
	uint32_t heard_ms, said_ms; /* TCP: since data came, and went. SOCKET_UNKNOWN */
	uint32_t retransmits;       /* TCP: of what is on the way now */
	char name[SOCKET_NAME_BYTES]; /* unix: its address, '@' first for an abstract one; "" */
};

/* A unix socket that has connected and was not accepted yet: inodes. */
struct socket_pending {
	uint64_t listener, client;
};

struct sockets {
	VEC(struct socket_info) list;  /* ascending by inode */
	VEC(struct socket_pending) pending;
	bool cut;        /* the deadline passed, or too many */
	bool from_text;  /* sock_diag could not be asked: no unix peers */
};

#define SOCKETS_MOST 1000000u

/* All of the network namespace of `pid`. `limit_ns`: how long it may take. 0, -ESRCH, -EACCES, -ENOMEM;
 * *ret is to be released after 0. */
int sockets_read(pid_t pid, uint64_t limit_ns, struct sockets *ret, struct err *err);
void sockets_release(struct sockets *s);

/* By its inode; NULL. */
const struct socket_info *sockets_find(const struct sockets *s, uint64_t inode);

/* The TCP socket whose local address is `local` and whose remote one is `remote`; NULL. */
const struct socket_info *sockets_find_tcp(const struct sockets *s,
	const struct socket_address *local, const struct socket_address *remote);

/* Who listens at that TCP address; NULL. */
const struct socket_info *sockets_find_listener(
	const struct sockets *s, const struct socket_address *at);

/* Who listens at that name of unix sockets; NULL. */
const struct socket_info *sockets_find_name(const struct sockets *s, const char *name);

/* "127.0.0.1:80", "[::1]:80". */
void socket_address_text(const struct socket_address *a, char *buf, size_t size);

/* Whether it is an address of the machine to itself: 127.0.0.0/8, ::1. */
bool socket_address_is_loopback(const struct socket_address *a);

/* ---- of bytes (tests) ---- */

/* One datagram of sock_diag's netlink. *ret_done: the dump is at its end; *ret_code: the errno that it
 * ended with. 0 or -ENOMEM. */
int sockets_parse_diag(
	const void *bytes, size_t len, struct sockets *ret, bool *ret_done, int *ret_code);

/* Texts of /proc/PID/net/unix and of tcp or tcp6 there. 0 or -ENOMEM. */
int sockets_parse_unix(const char *text, struct sockets *ret);
int sockets_parse_tcp(const char *text, bool v6, struct sockets *ret);

/* To be called once after all of them. */
void sockets_sort(struct sockets *s);

#endif
