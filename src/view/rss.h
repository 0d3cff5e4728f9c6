/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What the resident memory of a process is, as text and as JSON.
 *
 * They append to a buffer and decide nothing. 0 or -ENOMEM.
 */
#ifndef SONDE_VIEW_RSS_H
#define SONDE_VIEW_RSS_H

#include "base/buf.h"
#include "base/term.h"
#include "heap/rss.h"

struct rss_options {
	struct term term;
	size_t top; /* files, and other things of which there may be many, at most */
};

int view_rss(const struct rss *r, const struct rss_options *o, struct buf *out, struct err *err);

/* One object on one line. docs/JSON.md */
int view_rss_json(const struct rss *r, struct buf *out, struct err *err);

#endif
