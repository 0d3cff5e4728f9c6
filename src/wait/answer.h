/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * From a process to a verdict: look, follow, judge, look again where that is not certain yet, and find the
 * names of what the answer is about.
 */
#ifndef SONDE_WAIT_ANSWER_H
#define SONDE_WAIT_ANSWER_H

#include "wait/verdict.h"

struct wait_answer {
	struct snapshot *snapshot;
	struct wait_graph *graph;
	struct wait_verdict verdict;
	bool second_look; /* there were two, 100 ms apart */
};

/* `pid` is a process (0: that of options->core); `focus` one of its threads to explain, 0: the most interesting one. -ESRCH, or what
 * kept us from looking at the process. */
int wait_answer_new(const struct snapshot_options *options, pid_t pid, pid_t focus,
	struct wait_answer *ret, struct err *err);
void wait_answer_release(struct wait_answer *a);

/* The part of a stack that is the program's own: without the C library, the language's runtime and the
 * kernel's page at its leaf, and without what starts threads at its root. */
struct wait_own_part {
	size_t step, level; /* its first line: an index into the thread's steps, and a level of inlining there */
	size_t end;         /* steps from here on are not part of it */
};

/* False: nothing of it is. */
bool wait_own_part(struct snapshot *s, const struct snapshot_thread *t, struct wait_own_part *ret);

/* The function of its own program that a thread is in: `doing` of its node. Reads its stack. */
void wait_describe(struct snapshot *s, struct wait_node *n);

#endif
