/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Opening files of another process's file system, read-only and without being led astray.
 *
 * `root` is the directory that stands for / ("" for our own). Symlinks are followed inside it and
 * never out of it, /proc's magic links not at all; only regular files are opened and a FIFO does
 * not block. Where the kernel has no openat2 (before 5.6) paths through symlinks are refused.
 */
#ifndef SONDE_BASE_IN_ROOT_H
#define SONDE_BASE_IN_ROOT_H

#include <stdbool.h>

/* A descriptor or -errno. -ELOOP: a symlink where none is allowed; -EINVAL: not a regular file.
 * `nofollow`: the last component may not be a symlink. */
int in_root_open(const char *root, const char *path, bool nofollow);

/* The same as far as finding it: an O_PATH descriptor of whatever is there, which may be a symlink when
 * `nofollow`. *ret_no_root (may be NULL): it is `root` itself that cannot be opened. */
int in_root_find(const char *root, const char *path, bool nofollow, bool *ret_no_root);

/* Opens for reading what an O_PATH descriptor stands for; the caller has made sure that it is a regular
 * file. */
int in_root_reopen(int found);

#endif
