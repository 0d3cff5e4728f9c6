/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Errors that explain themselves.
 *
 * A fallible function returns 0 or a negative errno and takes a `struct err *` as its last
 * argument. The lowest function that knows the *name* of the thing that failed writes the
 * message: what failed, on what, why, and what to do. Callers pass it on untouched, or put words
 * in front with err_prefix(). The struct is owned by the caller, holds no allocation, and may be
 * NULL where the caller does not want the words.
 */
#ifndef SONDE_BASE_ERR_H
#define SONDE_BASE_ERR_H

#include <stdarg.h>

struct err {
	int code;       /* positive errno, 0 while nothing failed */
	char text[760]; /* for a person; empty while nothing failed; may hold line breaks */
};

/* Sets the message and returns -code, so that `return err_set(err, ENOENT, ...)` reads well.
 * An earlier message is replaced. `code` is a positive errno. */
int err_set(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* The same with ": " and the words for `code` appended. */
int err_errno(struct err *err, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Puts words and ": " before the message that is there; returns -err->code (0 for a NULL err). */
int err_prefix(struct err *err, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory: the one error whose message never varies. Returns -ENOMEM. */
int err_nomem(struct err *err);

#endif
