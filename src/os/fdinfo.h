/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What /proc/PID/fdinfo/FD tells about an open descriptor (proc_pid_fdinfo(5)).
 */
#ifndef SONDE_OS_FDINFO_H
#define SONDE_OS_FDINFO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"
#include "os/file_locks.h"

/* A descriptor that an epoll instance watches. */
struct fdinfo_watch {
	int fd;          /* its number when it was added; it may stand for something else by now */
	uint32_t events; /* EPOLLIN... */
	uint64_t inode, device; /* 0: this kernel does not say (before 5.4) */
};

struct fdinfo {
	unsigned flags;        /* O_RDONLY... as given to open() */
	uint64_t inode;        /* 0: this kernel does not say (before 5.14) */
	int64_t eventfd_id;    /* the same number: the same eventfd; -1: none, or not said (before 5.2) */
	uint64_t eventfd_count;
	pid_t pidfd;           /* 0: no pidfd; -1: of a process that has ended, or of another namespace */
	bool timer;
	int timer_clock;       /* CLOCK_... */
	uint64_t timer_ns;     /* until it rings, 0: it is not set */
	int tty_index;         /* of the terminal whose master it is, -1: none */
	bool uring;
	uint32_t uring_submitted, uring_taken; /* tail and head of the submission queue */
	bool uffd;
	uint64_t uffd_pending; /* faults that nobody has read yet */
	uint64_t uffd_total;   /* faults that are not resolved yet */
	VEC(struct fdinfo_watch) watches; /* at most FDINFO_MOST_WATCHES */
	bool watches_cut;
	struct file_locks locks; /* taken through this descriptor */
};

#define FDINFO_MOST_WATCHES 16384u

/* 0, -ESRCH (no such process or descriptor), -EACCES, -ENOMEM. *ret is to be released after 0. */
int fdinfo_read(pid_t pid, int fd, struct fdinfo *ret, struct err *err);
void fdinfo_release(struct fdinfo *f);

/* The same of a text. 0 or -ENOMEM; to be released after either. */
int fdinfo_parse(const char *text, struct fdinfo *ret);

/* Whether the descriptor may be read, and written. */
bool fdinfo_reads(const struct fdinfo *f);
bool fdinfo_writes(const struct fdinfo *f);

#endif
