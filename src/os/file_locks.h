/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Locks on files, as /proc/locks lists them: who holds one, and who waits for it.
 *
 * The kernel writes the same line of a lock that is held into the fdinfo of the descriptor it was
 * taken through (fdinfo.h).
 */
#ifndef SONDE_OS_FILE_LOCKS_H
#define SONDE_OS_FILE_LOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

enum file_lock_type {
	FILE_LOCK_OTHER, /* a lease, a delegation */
	FILE_LOCK_FLOCK, /* flock(): belongs to the open file, which children share */
	FILE_LOCK_POSIX, /* fcntl(): belongs to the process */
	FILE_LOCK_OFD,   /* fcntl(): belongs to the open file */
};

struct file_lock {
	uint64_t id;         /* lines with the same id belong together: a lock and those who wait for it */
	bool waits;
	enum file_lock_type type;
	bool write;
	pid_t pid;           /* who took it, maybe long ago; -1: of no process; 0: of another pid namespace */
	uint64_t device;     /* as makedev() */
	uint64_t inode;
	uint64_t start, end; /* the bytes from start to end, both included; UINT64_MAX: to the end of the file */
};

VEC_TYPE(file_locks, struct file_lock);

/* A line, without what may stand before its id. False when it is none. */
bool file_lock_parse(const char *line, struct file_lock *ret);

/* All lines of a text in their order; what was in *ret is replaced. 0 or -ENOMEM. */
int file_locks_parse(const char *text, struct file_locks *ret);

/* /proc/locks. Locks held by processes of pid namespaces that are not below ours are not in it. */
int file_locks_read(struct file_locks *ret, struct err *err);

/* Among `locks`, the one that stands in the way of the waiter at `index`: the first line with its id.
 * NULL: none is listed. */
const struct file_lock *file_lock_holder(const struct file_locks *locks, size_t index);

#endif
