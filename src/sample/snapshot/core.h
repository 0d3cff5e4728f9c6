/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A process as a core file has kept it: a source of memory, mappings and files, and a look at its threads.
 *
 * What the core leaves out (the text of programs and libraries, mostly) comes from the files that were mapped.
 * They are found by their paths in our own file tree, or below another directory, without being led out of it; and
 * they are believed when they are the ones: docs/heuristics/core-files.md. Nothing in them is executed.
 *
 * Of the kernel's side of a thread a core has no more than registers. On x86-64 those tell the system call it was in,
 * with its arguments; on aarch64 they do not, since the first argument is overwritten. Threads have no names but
 * that of their process.
 */
#ifndef SONDE_SAMPLE_SNAPSHOT_CORE_H
#define SONDE_SAMPLE_SNAPSHOT_CORE_H

#include "elf/core_file.h"
#include "sample/snapshot/look.h"
#include "sample/source.h"

struct core;

enum core_found {
	CORE_NOT_LOOKED_FOR,
	CORE_FOUND,     /* the core's memory has its build id, or its program headers */
	CORE_UNCHECKED, /* that part of memory is not in the core: taken on trust */
	CORE_MISSING,   /* it cannot be opened */
	CORE_ANOTHER,   /* what is there now is another file */
};

/* `root`: the directory that files are looked for in; NULL or "": our own tree. -ENOEXEC: not a core, or of another
 * architecture than ours. */
int core_open(const char *path, const char *root, struct core **ret, struct err *err);
void core_free(struct core *c);

const struct core_info *core_info(const struct core *c);

/* Both live as long as the core. */
const struct source *core_source(const struct core *c);
struct look *core_look(struct core *c);

/* The signal that ended the process, 0: none did. */
int core_signal(const struct core *c);

/* Files with code, as far as they were needed so far. */
void core_each_file(const struct core *c,
	void (*each)(void *ctx, const char *path, enum core_found found), void *ctx);

#endif
