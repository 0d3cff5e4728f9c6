/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pictures of a profile: one screen of text, all of it as text, JSON for scripts, an SVG flame
 * graph, and the records of a recording one by one.
 *
 * A view reads a profile and appends to a buffer; it opens, prints and decides nothing. Shares are
 * shares of CPU time (the weight of samples), or of samples where a recording carries no weights;
 * JSON gives counts and leaves the sums to its reader.
 *
 * Every function returns 0 or -errno (-ENOMEM is the only one, but for view_dump) and leaves `out`
 * half-written on failure.
 */
#ifndef SONDE_VIEW_VIEW_H
#define SONDE_VIEW_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/term.h"
#include "profile/heap.h"
#include "profile/profile.h"

struct view_options {
	struct term term; /* columns and rows 0: no limit */
	size_t top;       /* functions to list; 0: what fits the screen, or all of them */
	bool inverted;    /* trees start at the leaves: who calls this */
	bool tree;        /* JSON: with the call tree */
	/* Of allocations: in which order, and which one of these to tell everything of (from 1; 0: none). */
	enum heap_order heap_order;
	size_t heap_site;
};

/* "Where is the time", in one screen of term.rows x term.columns. */
int view_summary(const struct profile *p, const struct view_options *o, struct buf *out,
	struct err *err);

/* The same and everything there is no room for: all losses, all functions, the whole tree. */
int view_text(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* What programs said themselves, for behind both of these; nothing where they said nothing. `all`: not only what comes
 * first. */
int view_notes(const struct profile *p, const struct view_options *o, bool all, struct buf *out, struct err *err);

/* The call tree alone, one line a function. */
int view_tree(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* One object; its keys are a contract with other people's scripts (docs/JSON.md). */
int view_json(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* A flame graph in one file: zoom by click, search, keyboard; without scripts still a picture. */
int view_svg(
	const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

/* What is different between two profiles that have a heap: a table, and an object (docs/JSON.md). */
int view_heap_diff(
	const struct profile *const p[2], const struct view_options *o, struct buf *out, struct err *err);
int view_heap_diff_json(
	const struct profile *const p[2], const struct view_options *o, struct buf *out, struct err *err);

/* Every record of the recording at `path` as a line of text, in file order. -errno of reading. */
int view_dump(const char *path, FILE *out, struct err *err);

/* What is wrong with the file itself ("ends in the middle of a block..."), one line a fact, for
 * stderr. Nothing is appended when it is whole. */
void view_damage(const struct profile *p, struct buf *out);

#endif
