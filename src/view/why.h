/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pictures of a process at one moment: why it waits (text, JSON, Graphviz), and all its stacks.
 *
 * Like the views of a profile they append to a buffer and decide nothing. Names are looked up on the way,
 * so the snapshot must still be there. 0 or -ENOMEM.
 */
#ifndef SONDE_VIEW_WHY_H
#define SONDE_VIEW_WHY_H

#include "base/buf.h"
#include "base/err.h"
#include "base/term.h"
#include "wait/answer.h"

struct why_options {
	struct term term;
	bool all; /* every thread, not only the chain */
};

/* The verdict, the chain with the stacks of those in it, and what else there is, folded. */
int view_why(const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err);

/* One object: docs/JSON.md. */
int view_why_json(
	const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err);

/* The graph for Graphviz; without `all` only threads that have an edge. */
int view_why_dot(
	const struct wait_answer *a, const struct why_options *o, struct buf *out, struct err *err);

VEC_TYPE(stack_threads, struct snapshot_thread *);

struct stacks_options {
	struct term term; /* for text */
	bool interpreter; /* frames of an interpreter as well, beside those of the code that it runs */
};

/* Stacks of threads of one process; those that are the same once, with all their threads. */
int view_stacks(struct snapshot *s, const struct stack_threads *threads, const struct stacks_options *o,
	struct buf *out, struct err *err);
int view_stacks_json(struct snapshot *s, const struct stack_threads *threads,
	const struct stacks_options *o, struct buf *out, struct err *err);

#endif
