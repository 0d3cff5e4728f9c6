/* SPDX-License-Identifier: BSD-2-Clause */
/* What `why` and `stack` have in common: which process, and how it is looked at. */
#ifndef SONDE_CMD_TARGET_H
#define SONDE_CMD_TARGET_H

#include <sys/types.h>

#include "base/err.h"
#include "sample/snapshot/snapshot.h"

/* A process by its number, or by the name that it alone has. -ESRCH, or -EINVAL with the choice. */
int target_find(const char *text, pid_t *ret, struct err *err);

/* "auto", "proc" or "bpf"; NULL is auto. */
int target_look(const char *text, enum snapshot_method *ret, struct err *err);

#endif
