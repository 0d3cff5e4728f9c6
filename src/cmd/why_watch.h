/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde why --watch CONDITION */
#ifndef SONDE_CMD_WHY_WATCH_H
#define SONDE_CMD_WHY_WATCH_H

#include "cmd/watch_for.h"
#include "wait/answer.h"

/* 1: it has happened, and *ret is about it. 0: Ctrl-C or the end of the process came first, and that was said.
 * -errno. */
int why_watch(const struct snapshot_options *options, pid_t pid, struct watch_for *w, const char *text,
	struct wait_answer *ret, struct err *err);

#endif
