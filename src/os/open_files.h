/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who has what open: the descriptors of all processes, as the links in /proc/PID/fd name them.
 *
 * Only the links are read, never what they point to, so that a file system that does not answer holds
 * nobody up. Which of these files are the same is told by numbers for pipes and sockets, and by
 * open_file_same() for files with a path.
 */
#ifndef SONDE_OS_OPEN_FILES_H
#define SONDE_OS_OPEN_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/vec.h"

enum open_what {
	OPEN_ANON,     /* "anon_inode:..." of other kinds */
	OPEN_PATH,     /* something with a path: files, FIFOs, terminals, message queues */
	OPEN_PIPE,
	OPEN_SOCKET,
	OPEN_EVENTFD,
	OPEN_EPOLL,
	OPEN_PIDFD,
	OPEN_TIMERFD,
	OPEN_SIGNALFD,
	OPEN_INOTIFY, /* and fanotify */
	OPEN_URING,
	OPEN_USERFAULTFD,
};

#define OPEN_MOST_NAME 256u

struct open_file {
	pid_t pid;
	int fd;
	enum open_what what;
	/* Pipes and sockets: the inode. Paths: open_path_key(), the same for all that have the same last
	 * component. Others 0: all of a kind share an inode. */
	uint64_t key;
};

/* Of the text of a link. What it is, and the key. */
enum open_what open_file_classify(const char *link, uint64_t *ret_key);

/* For paths: of the last component, without " (deleted)". */
uint64_t open_path_key(const char *path);

/* One descriptor. `link` receives the text of its link, cut at `size`, control characters as '?'. 0, -ESRCH
 * (none such) or -EACCES. */
int open_file_read(pid_t pid, int fd, struct open_file *ret, char *link, size_t size);

/* All descriptors of all processes but `without`, sorted by (what, key, pid, fd). */
struct open_files {
	VEC(struct open_file) files;
	size_t processes; /* read */
	size_t refused;   /* that are not ours to read */
	bool cut;         /* the deadline passed, or there were more than OPEN_MOST_FILES */
};

#define OPEN_MOST_FILES 2000000u

/* `deadline_ns` is of clock_monotonic_ns(). */
int open_files_read(pid_t without, uint64_t deadline_ns, struct open_files *ret, struct err *err);
void open_files_release(struct open_files *o);

/* The files of that kind and key: how many, and the first of them. */
size_t open_files_find(const struct open_files *o, enum open_what what, uint64_t key,
	const struct open_file **ret_first);

/* Which file a descriptor is of, without asking the file system to look (a network's attributes may be
 * old ones). */
struct open_identity {
	uint64_t device, inode;
	unsigned mode;   /* S_IFIFO... */
	uint64_t rdevice; /* of a device file */
};
bool open_file_identity(pid_t pid, int fd, struct open_identity *ret);
bool open_file_same(const struct open_identity *a, const struct open_identity *b);

#endif
