/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing a profile in the formats of other tools. One file a format, one row in the list of
 * format.c; docs/howto/add-a-format.md walks through adding one.
 *
 * Writers stream into a FILE and keep in memory what belongs to the profile's stacks, never what
 * belongs to its samples. They do not check the FILE for errors: whoever closes it does.
 */
#ifndef SONDE_FORMAT_FORMAT_H
#define SONDE_FORMAT_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/err.h"
#include "profile/profile.h"

#define FORMAT_MAX_EXTENSIONS 4

struct format_ops {
	const char *name;                              /* for --to */
	const char *extensions[FORMAT_MAX_EXTENSIONS]; /* with the dot, ended by NULL */
	const char *help;                              /* what reads it */
	const char *loses;                             /* what of a profile it cannot hold */
	bool binary;                                   /* nothing for a terminal */
	/* 0, or -ENOMEM with words; `out` is then half-written. */
	int (*write)(const struct profile *p, FILE *out, struct err *err);
};

/* All formats, ended by NULL. */
extern const struct format_ops *const formats[];

extern const struct format_ops format_folded, format_pprof, format_speedscope;

/* NULL when there is none. */
const struct format_ops *format_by_name(const char *name);

/* By the longest extension that `path` ends in (".speedscope.json" before ".json"). */
const struct format_ops *format_by_path(const char *path);

#endif
