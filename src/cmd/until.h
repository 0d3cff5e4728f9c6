/* SPDX-License-Identifier: BSD-2-Clause */
/* Waiting for a time to come, unless Ctrl-C or the end of a process comes first. */
#ifndef SONDE_CMD_UNTIL_H
#define SONDE_CMD_UNTIL_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct until {
	int signal_fd, pid_fd; /* -1: none */
};

enum until_end {
	UNTIL_TIME,
	UNTIL_SIGNAL, /* SIGINT, SIGTERM or SIGHUP, unless our caller has it ignored */
	UNTIL_ENDED,  /* the process */
};

/* From here on these signals end nothing but until_ns(). -ESRCH: there is no such process. */
int until_new(pid_t pid, struct until *ret, struct err *err);
void until_release(struct until *u);

/* CLOCK_MONOTONIC. A time that is past gives UNTIL_TIME only where nothing else has come. */
enum until_end until_ns(const struct until *u, uint64_t time_ns);

#endif
