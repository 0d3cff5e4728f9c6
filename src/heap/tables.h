/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unwind tables for the code in watched programs: made here from call frame information, published through the
 * shared memory (share.h, tables_layout.h), applied in there (preload/walk.h).
 *
 * What was made of an object file is kept as long as the file's module, and copied to each process that maps it.
 * Large files are made in slices: until one is done its frames have no rules in the target, which then hands out raw stacks.
 *
 * One thread at a time. What the target does to its memory cannot harm: nothing is read back from it.
 */
#ifndef SONDE_HEAP_TABLES_H
#define SONDE_HEAP_TABLES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "heap/share.h"
#include "unwind/unwind.h"

/* ---- of all processes ---- */

struct heap_rules;

int heap_rules_new(struct heap_rules **ret, struct err *err);

/* All struct heap_tables must be gone. */
void heap_rules_free(struct heap_rules *r);

/* Before unwind_module_free(); the module must be in no table any more (heap_tables_set() without it). */
void heap_rules_forget(struct heap_rules *r, const struct unwind_module *module);

/* Goes on with files that are not done for about so long, and publishes those that are. True: there is more to do. Cheap
 * when there is nothing; to be called whenever the collector has time. */
bool heap_rules_work(struct heap_rules *r, uint64_t ns);

struct heap_rules_stats {
	size_t modules, unfinished; /* object files known, and not done */
	size_t bytes;               /* of those that are done, kept here */
	uint64_t build_ns;          /* CPU time that all took */
};
void heap_rules_stats(const struct heap_rules *r, struct heap_rules_stats *ret);

/* ---- of a process ---- */

struct heap_tables;

/* Executable memory of the process; module address = address - bias. Without a module it may be left out. */
struct heap_tables_module {
	uint64_t start, end, bias;
	const struct unwind_module *module; /* of the architecture of the process */
};

/* `area`: the tables area, SHARE_TABLES_BYTES that can be written; `header` as well. Both must outlive it. Of that
 * area no more than `limit` bytes are used (0: all of it). 0 or -ENOMEM. */
int heap_tables_new(struct heap_rules *r, uint8_t *area, struct share_header *header, uint64_t limit,
	struct heap_tables **ret, struct err *err);
void heap_tables_free(struct heap_tables *t);

/* Nothing is written to the first so many bytes of the area: a forked child has the tables of its parent there. Before
 * heap_tables_set(); more than is likely is not believed. */
void heap_tables_keep(struct heap_tables *t, uint64_t bytes);

/*
 * What the process has mapped now; in any order, overlaps are cut. `modules_wanted` and `modules_gone` are the header's as
 * they were before the mappings were read. Makes what is not there yet for about `ns` (UINT64_MAX: all), publishes, and then sets
 * header->modules_done and wakes who waits for that. What is not done in that time comes with heap_rules_work().
 * 0; -ENOMEM, and the tables of before are still there; -ENOSPC: some modules found no room and have no rules.
 */
int heap_tables_set(struct heap_tables *t, const struct heap_tables_module *modules, size_t count,
	uint32_t modules_wanted, uint32_t modules_gone, uint64_t ns, struct err *err);

/* Bytes of the area in use. */
uint64_t heap_tables_bytes(const struct heap_tables *t);

#endif
