/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code that a program has copied out of its file, to where it lay before: programs do that to get
 * large pages for it. The mapping is anonymous then, and the file is that of its neighbours.
 *
 * docs/heuristics/copied-text.md
 */
#ifndef SONDE_SAMPLE_TEXT_COPY_H
#define SONDE_SAMPLE_TEXT_COPY_H

#include "sample/processes.h"

/* Where `added` may be text of its neighbour `beside`, which is mapped as said, or is that of a
 * mapping which it replaces: makes it a candidate. */
void text_copy_beside(struct space_mapping *added, struct module *beside,
	const struct proc_mapping *mapped);
void text_copy_replaces(struct space_mapping *added, const struct space_mapping *replaced);

/* A sample has met `addr` in a candidate: makes the mapping one of the file when the process has the
 * file's bytes there. True when it did. */
bool text_copy_settle(
	const struct source *s, struct space_mapping *m, pid_t pid, uint64_t addr);

#endif
