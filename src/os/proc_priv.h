/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files that read /proc. */
#ifndef SONDE_OS_PROC_PRIV_H
#define SONDE_OS_PROC_PRIV_H

#include <stddef.h>
#include <sys/types.h>

/* Reads /proc/PID/WHAT, a small file, into `buf`, NUL-terminated and cut at size - 1. Its length or
 * -errno: -ESRCH when the process is gone. */
ssize_t proc_read_small(pid_t pid, const char *what, char *buf, size_t size);

/* The whole of a file of /proc that may be long, NUL-terminated; the caller frees it. 0, -ESRCH (it, or
 * its process, is gone), -EFBIG (more than `most` bytes) or -errno. */
int proc_read_whole(const char *path, size_t most, char **ret);

/* The text after "Key:" in a status file, NULL when the key is missing. */
const char *proc_status_field(const char *text, const char *key);

#endif
