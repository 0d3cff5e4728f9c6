/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/hello.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

#define TOKEN_BYTES 32u /* hex digits */
/* Connected, and nothing said yet. A program says hello at once. */
#define MOST_WAITING 256u
#define WAIT_NS (2 * NS_PER_S)
/* A hello has one descriptor; room for a few more, so that they can be closed. */
#define MOST_DESCRIPTORS 8u
#define MOST_ROUNDS 64u /* of one call */

struct waiting {
	int fd;
	uint64_t until_ns;
};

struct hello {
	int epoll_fd, listen_fd;
	char name[40], token[TOKEN_BYTES + 1];
	struct waiting waiting[MOST_WAITING];
	size_t waiting_count;
	uint64_t refused;
};

static int random_hex(char *buf, size_t digits, struct err *err)
{
	uint8_t bytes[TOKEN_BYTES / 2];
	ssize_t n = getrandom(bytes, digits / 2, 0);

	if (n != (ssize_t)(digits / 2))
		return err_errno(err, n < 0 ? errno : EIO, "getrandom");
	for (size_t i = 0; i < digits / 2; i++)
		snprintf(buf + 2 * i, 3, "%02x", bytes[i]);
	return 0;
}

static int watch(struct hello *h, int fd, struct err *err)
{
	struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};

	return epoll_ctl(h->epoll_fd, EPOLL_CTL_ADD, fd, &event) ? err_errno(err, errno, "epoll_ctl") : 0;
}

static int listen_here(struct hello *h, struct err *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t len = strlen(h->name);
	int on = 1;

	h->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (h->listen_fd < 0)
		return err_errno(err, errno, "socket");
	memcpy(address.sun_path + 1, h->name, len);
	/* Handed on to those that are accepted. Set on these alone it could come after what they say, which then has no sender. */
	if (setsockopt(h->listen_fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)))
		return err_errno(err, errno, "SO_PASSCRED");
	if (bind(h->listen_fd, (struct sockaddr *)&address,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len)) ||
		listen(h->listen_fd, SOMAXCONN))
		return err_errno(err, errno, "socket %s", h->name);
	return watch(h, h->listen_fd, err);
}

int hello_new(struct hello **ret, struct err *err)
{
	struct hello *h = calloc(1, sizeof(*h));
	char digits[17];
	int rc;

	if (!h)
		return err_nomem(err);
	h->listen_fd = -1;
	h->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	rc = h->epoll_fd < 0 ? err_errno(err, errno, "epoll_create1") : random_hex(digits, 16, err);
	if (!rc)
		rc = random_hex(h->token, TOKEN_BYTES, err);
	if (!rc) {
		snprintf(h->name, sizeof(h->name), "sonde-heap-%s", digits);
		rc = listen_here(h, err);
	}
	if (rc) {
		hello_free(h);
		return rc;
	}
	*ret = h;
	return 0;
}

void hello_free(struct hello *h)
{
	if (!h)
		return;
	for (size_t i = 0; i < h->waiting_count; i++)
		close(h->waiting[i].fd);
	if (h->listen_fd >= 0)
		close(h->listen_fd);
	if (h->epoll_fd >= 0)
		close(h->epoll_fd);
	free(h);
}

int hello_fd(const struct hello *h)
{
	return h->epoll_fd;
}

uint64_t hello_refused(const struct hello *h)
{
	return h->refused;
}

void hello_environment(const struct hello *h, const struct hello_wish *wish, char *buf, size_t size)
{
	snprintf(buf, size, "%u:%u:%u:%llu:%llu:%s:%s", SHARE_VERSION, (unsigned)wish->mode, (unsigned)wish->clock,
		(unsigned long long)wish->rate, (unsigned long long)wish->options, h->token, h->name);
}

/* ---- who is there ---- */

static void drop(struct hello *h, size_t i)
{
	close(h->waiting[i].fd);
	h->waiting[i] = h->waiting[--h->waiting_count];
}

static void refuse(struct hello *h, size_t i)
{
	h->refused++;
	drop(h, i);
}

static void drop_late(struct hello *h, uint64_t now)
{
	for (size_t i = h->waiting_count; i-- > 0;)
		if (now >= h->waiting[i].until_ns)
			refuse(h, i);
}

static void accept_one(struct hello *h, int fd, uint64_t now)
{
	if (watch(h, fd, NULL)) {
		close(fd);
		h->refused++;
		return;
	}
	h->waiting[h->waiting_count++] = (struct waiting){fd, now + WAIT_NS};
}

/* As many as there is room for. */
static void accept_some(struct hello *h, uint64_t now)
{
	while (h->waiting_count < MOST_WAITING) {
		int fd = accept4(h->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0)
			return;
		accept_one(h, fd, now);
	}
}

/* Whoever has waited for longest goes. */
static void drop_oldest(struct hello *h)
{
	size_t oldest = 0;

	for (size_t i = 1; i < h->waiting_count; i++)
		if (h->waiting[i].until_ns < h->waiting[oldest].until_ns)
			oldest = i;
	refuse(h, oldest);
}

/* ---- what they say ---- */

struct message {
	struct share_hello hello;
	ssize_t bytes;
	struct ucred sender;
	bool has_sender, is_cut;
	int fds[MOST_DESCRIPTORS];
	size_t fd_count;
};

static void take_control(struct msghdr *msg, struct message *m)
{
	for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
		if (c->cmsg_level != SOL_SOCKET || c->cmsg_len < CMSG_LEN(0))
			continue;
		size_t bytes = c->cmsg_len - CMSG_LEN(0);

		if (c->cmsg_type == SCM_CREDENTIALS && bytes == sizeof(m->sender)) {
			memcpy(&m->sender, CMSG_DATA(c), sizeof(m->sender));
			m->has_sender = true;
		}
		for (size_t at = 0; c->cmsg_type == SCM_RIGHTS && at + sizeof(int) <= bytes; at += sizeof(int)) {
			int fd;

			memcpy(&fd, CMSG_DATA(c) + at, sizeof(fd));
			if (m->fd_count < MOST_DESCRIPTORS)
				m->fds[m->fd_count++] = fd;
			else
				close(fd);
		}
	}
}

/* False: nothing was said yet. */
static bool receive(int fd, struct message *m)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(sizeof(struct ucred)) + CMSG_SPACE(MOST_DESCRIPTORS * sizeof(int))];
	} control;
	struct iovec iov = {&m->hello, sizeof(m->hello)};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};

	m->bytes = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
	if (m->bytes < 0)
		return errno != EAGAIN && errno != EINTR;
	m->is_cut = msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC);
	take_control(&msg, m);
	return true;
}

/* Takes as long whatever is in it. */
static bool same_token(const char *a, const char *b)
{
	unsigned differs = 0;

	for (size_t i = 0; i < TOKEN_BYTES; i++)
		differs |= (unsigned)(a[i] ^ b[i]);
	return !differs;
}

/* Who connected and who spoke are asked both: a descriptor of ours may have been handed on. */
static bool is_hello(const struct hello *h, int fd, const struct message *m)
{
	struct ucred peer = {0};
	socklen_t len = sizeof(peer);

	return m->bytes == sizeof(m->hello) && !m->is_cut && m->has_sender && m->fd_count == 1 &&
		!memcmp(m->hello.magic, SHARE_MAGIC, sizeof(m->hello.magic)) &&
		m->hello.version == SHARE_VERSION && same_token(m->hello.token, h->token) &&
		!getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) && m->sender.pid > 0 &&
		peer.pid == m->sender.pid && m->hello.pid > 0 && m->hello.pid <= INT32_MAX;
}

/* True: it is one. Whatever it said, it does not wait any more. */
static bool hear(struct hello *h, size_t i, struct hello_program *ret)
{
	struct message m = {0};
	int fd = h->waiting[i].fd;

	if (!receive(fd, &m))
		return false;
	if (is_hello(h, fd, &m)) {
		*ret = (struct hello_program){m.fds[0], m.sender.pid, (pid_t)m.hello.pid};
		drop(h, i);
		return true;
	}
	for (size_t k = 0; k < m.fd_count; k++)
		close(m.fds[k]);
	refuse(h, i);
	return false;
}

int hello_next(struct hello *h, struct hello_program *ret)
{
	uint64_t now = clock_monotonic_ns();

	drop_late(h, now);
	/* A storm of connections that say nothing must not keep us, nor those that have something to say. */
	for (unsigned round = 0; round < MOST_ROUNDS; round++) {
		accept_some(h, now);
		for (size_t i = h->waiting_count; i-- > 0;)
			if (hear(h, i, ret))
				return 1;
		if (h->waiting_count < MOST_WAITING)
			return 0;
		drop_oldest(h);
	}
	return 0;
}
