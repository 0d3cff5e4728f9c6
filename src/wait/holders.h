/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Processes that hold the other end of what a thread waits for, and which of them are in its way:
 * docs/heuristics/other-end.md.
 */
#ifndef SONDE_WAIT_HOLDERS_H
#define SONDE_WAIT_HOLDERS_H

#include "wait/kind.h"
#include "wait/world.h"

struct wait_holders {
	struct pid_vec others; /* each once */
	bool self;             /* the waiting process itself */
};

/* Notes that `pid` holds it. */
void wait_holders_add(struct wait_holders *h, const struct wait_look *l, pid_t pid);
void wait_holders_release(struct wait_holders *h);

/* All who have a file of that kind and key open and, where `reads` or `writes` is asked for, can do
 * that with it. */
void wait_holders_find(struct wait_holders *h, struct wait_look *l, enum open_what what,
	uint64_t key, bool reads, bool writes);

/* The same of a file with a path: those who have that very file open. */
void wait_holders_find_file(struct wait_holders *h, struct wait_look *l, const char *path,
	const struct open_identity *identity, bool reads, bool writes);

/*
 * Makes blockers of them, or a trouble where there are none: WAIT_OWN_PIPE, WAIT_NOBODY. `how` is static.
 * Sets nature, grade and trouble; appends to detail.
 */
void wait_blame_holders(struct wait_look *l, struct wait_holders *h, const char *how,
	struct wait *ret);

/* One process, all of it: with its thread where it has only one. */
void wait_blame_process(struct wait_look *l, struct wait *ret, pid_t pid, enum wait_grade grade,
	const char *how);

/* Appends to a text of struct wait, with "; " before it where there is something already. */
void wait_append(char *buf, size_t size, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
#define WAIT_APPEND(field, ...) wait_append((field), sizeof(field), __VA_ARGS__)

#endif
