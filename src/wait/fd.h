/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Waits for a descriptor: to read from it or to write to it, alone or as one of many that are watched.
 *
 * What stands behind a descriptor decides who is in the way. Each sort of descriptor is one function,
 * in its file in kinds/, and one row in fd.c.
 */
#ifndef SONDE_WAIT_FD_H
#define SONDE_WAIT_FD_H

#include "wait/holders.h"
#include "wait/kind.h"

struct wait_fd {
	struct wait_look *l;
	int fd;
	bool out;                     /* to write; else to read */
	struct open_file file;
	char link[OPEN_MOST_NAME];
	struct open_identity identity; /* of those with a path; all zero: it could not be told */
};

/* Fills *ret, which is as for a kind; sets ret->kind as well. False: there is no such descriptor, or it
 * cannot be read. */
bool wait_on_fd(struct wait_look *l, int fd, bool out, struct wait *ret);

/* One of many that a thread watches. */
struct wait_watched {
	int fd;
	bool in, out;
	uint64_t inode; /* 0, or what it was when it was added; another one: not looked at */
};

/* What is said of all of them together: docs/heuristics/event-loops.md. `verb` is of the call: "poll()". */
void wait_on_many(struct wait_look *l, const struct wait_watched *watched, size_t count,
	const char *verb, struct wait *ret);

/* ---- sorts of descriptors ---- */

void wait_fd_pipe(struct wait_fd *f, struct wait *ret);     /* and FIFOs */
void wait_fd_socket(struct wait_fd *f, struct wait *ret);
void wait_fd_tcp(struct wait_fd *f, const struct socket_info *info, struct wait *ret);
void wait_fd_unix(struct wait_fd *f, const struct socket_info *info, struct wait *ret);
void wait_fd_eventfd(struct wait_fd *f, struct wait *ret);
void wait_fd_epoll(struct wait_fd *f, struct wait *ret);
void wait_fd_pidfd(struct wait_fd *f, struct wait *ret);
void wait_fd_timer(struct wait_fd *f, struct wait *ret);
void wait_fd_events(struct wait_fd *f, struct wait *ret);   /* signalfd, inotify */
void wait_fd_uring(struct wait_fd *f, struct wait *ret);
void wait_fd_uffd(struct wait_fd *f, struct wait *ret);
void wait_fd_tty(struct wait_fd *f, struct wait *ret);
void wait_fd_queue(struct wait_fd *f, struct wait *ret);    /* POSIX message queues */
void wait_fd_file(struct wait_fd *f, struct wait *ret);     /* files and devices */

#endif
