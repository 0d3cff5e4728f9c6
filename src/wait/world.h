/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known of the machine beyond one process's memory: who has what open, which sockets belong
 * together, who holds which file lock. Each of these is read once, when it is first asked for.
 */
#ifndef SONDE_WAIT_WORLD_H
#define SONDE_WAIT_WORLD_H

#include "base/err.h"

struct wait_world;

int wait_world_new(struct wait_world **ret, struct err *err);
void wait_world_free(struct wait_world *w);

#endif
