/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What `sonde why --watch` waits for:
 *
 *	main blocked > 5s       the first thread has not run for that long, and is not idle
 *	any blocked > 10s       any thread; also a thread id, or a regular expression for names
 *	main not run > 5s       the same, idle or not
 *	deadlock                threads wait for each other in a circle
 *
 * Nothing here looks at a process.
 */
#ifndef SONDE_CMD_WATCH_FOR_H
#define SONDE_CMD_WATCH_FOR_H

#include "cmd/record/when.h"

enum watch_kind {
	WATCH_BLOCKED,
	WATCH_NOT_RUN,
	WATCH_DEADLOCK,
};

struct watch_for {
	enum watch_kind kind;
	struct when when; /* who, and for how long; WATCH_DEADLOCK: anybody, for a second */
};

/* 0, or -EINVAL with words. */
int watch_for_parse(const char *text, struct watch_for *ret, struct err *err);
void watch_for_release(struct watch_for *w);

#endif
