/* SPDX-License-Identifier: BSD-2-Clause */
/* Cgroups whose processes are made to stand still: cgroup.freeze of v2, the freezer of v1. */
#ifndef SONDE_OS_FREEZER_H
#define SONDE_OS_FREEZER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Whether the cgroup of `pid` (it may be a thread's id) is frozen, itself or by one above it; its path below
 * the mount goes into buf, "" when not. */
bool freezer_frozen(pid_t pid, char *buf, size_t size);

/* The path in the text of /proc/PID/cgroup: of v1's freezer, or of v2. False: no such line. */
bool freezer_path(const char *text, bool v1, char *buf, size_t size);

/* The text of cgroup.events. */
bool freezer_events_frozen(const char *text);

#endif
