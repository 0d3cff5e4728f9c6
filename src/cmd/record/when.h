/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Conditions under which a flight recorder writes its window: parsing and judging. Nothing here looks
 * at a process; record/watch.c brings the facts.
 *
 *	blocked MAIN > 2s           the first thread of a process has not run for that long
 *	blocked ANY > 2s            any thread; also /REGEX/ (its name), or a thread id
 *	cpu > 90% for 3s            of one CPU, all processes together; also <; without `for`: for 1s
 *	rss > 2G                    resident memory, all processes together
 *	threads > 500
 *
 * A condition fires when it becomes true, and not again before it was false; nor earlier than the
 * cool-down after it fired last. So one that stays true fires once.
 */
#ifndef SONDE_CMD_RECORD_WHEN_H
#define SONDE_CMD_RECORD_WHEN_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum when_kind {
	WHEN_BLOCKED, /* these two have a duration */
	WHEN_CPU,
	WHEN_RSS,
	WHEN_THREADS,
};

enum when_who {
	WHEN_MAIN,
	WHEN_ANY,
	WHEN_TID,
	WHEN_NAME,
};

struct when {
	char *text; /* as it was written */
	enum when_kind kind;
	enum when_who who; /* WHEN_BLOCKED */
	pid_t tid;
	regex_t name;
	bool below;           /* <, else > */
	double percent;       /* WHEN_CPU */
	uint64_t limit;       /* WHEN_RSS: bytes; WHEN_THREADS */
	uint64_t duration_ns; /* WHEN_BLOCKED, WHEN_CPU; else 0 */

	uint64_t true_since_ns; /* 0: it is not true */
	uint64_t quiet_until_ns;
	bool fired; /* and was not false since */
};

/* 0, or -EINVAL with words. */
int when_parse(const char *text, struct when *ret, struct err *err);
void when_release(struct when *w);

struct when_thread {
	pid_t pid, tid;
	bool is_main;
	uint64_t idle_ns; /* it has not run for so long */
	const char *name; /* only asked for when idle_ns is beyond the limit of a condition by name */
};

/* What is true now. */
struct when_facts {
	uint64_t now_ns;
	uint64_t since_ns;  /* of the facts before these */
	double cpu_percent; /* in between; below 0: not known */
	uint64_t rss_bytes, thread_count;
	const struct when_thread *threads;
	size_t known_threads;
};

/* Whether the condition fires; if it is WHEN_BLOCKED, *ret_thread is the index of the thread that has
 * not run for longest. */
bool when_fires(struct when *w, const struct when_facts *facts, uint64_t cool_down_ns,
	size_t *ret_thread);

/* Whether the condition is about this thread, but for how long it has not run. */
bool when_is_about(const struct when *w, const struct when_thread *t);

/* How often to look, without regard to what looking costs: a tenth of the duration, 10 to 500 ms. */
uint64_t when_interval_ns(const struct when *w);

#endif
