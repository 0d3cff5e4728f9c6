/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the heap of a Python program holds, as text and as JSON; and how it grows.
 *
 * They append to a buffer and decide nothing. 0 or -ENOMEM.
 */
#ifndef SONDE_VIEW_CENSUS_H
#define SONDE_VIEW_CENSUS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/term.h"
#include "python/census.h"
#include "python/pools.h"

struct census_facts {
	int pid;
	const char *name;     /* of the process */
	const char *version;  /* of CPython */
	uint64_t resident_bytes; /* of the process, 0: not known */
	struct python_pools pools;
	uint64_t took_ns;     /* for this census */
	uint64_t since_ns;    /* time since the first one */
	uint64_t gap_ns;      /* since the one before */
};

struct census_options {
	struct term term;
	size_t top;   /* types at most */
	bool loose;   /* also what the collector has no list of */
};

int view_census(const struct python_census *c, const struct census_facts *f, const struct census_options *o,
	struct buf *out, struct err *err);

/* What has changed since an earlier one. */
int view_census_growth(const struct python_census *earlier, const struct python_census *c,
	const struct census_facts *f, const struct census_options *o, struct buf *out, struct err *err);

/* One object on one line; `earlier` may be NULL. docs/JSON.md */
int view_census_json(const struct python_census *earlier, const struct python_census *c,
	const struct census_facts *f, const struct census_options *o, struct buf *out, struct err *err);

#endif
