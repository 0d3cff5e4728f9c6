/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where an allocator is entered: its functions in an object file, by their names, and for each the instruction at which
 * a probe costs least. docs/heuristics/heap-probes.md.
 *
 * Reads the file and nothing else.
 */
#ifndef SONDE_HEAP_ENTRIES_H
#define SONDE_HEAP_ENTRIES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "bpf/heap_probes.h"
#include "elf/elf_file.h"

#define HEAP_ENTRY_NAME_BYTES 48

struct heap_entry {
	char name[HEAP_ENTRY_NAME_BYTES];
	uint64_t start, end;     /* of the function; end == start: its size is not known */
	struct heap_probe probe;
	uint64_t offset;         /* of the probed instruction in the file */
	bool emulated;           /* the kernel need not run it on the side */
};

struct heap_entries {
	struct heap_entry entries[HEAP_PROBES_MOST];
	size_t count;
	struct heap_probe_range ranges[HEAP_PROBE_RANGES]; /* code of the allocator that may call these functions */
	size_t range_count;
	size_t left_out; /* for want of room */
	bool has_malloc; /* "malloc" itself is in the file */
};

/*
 * The functions of `f` (symbols may come from its debug file `symbols`, NULL: its own). `prefix`: also PREFIXmalloc,
 * PREFIXfree and so on, NULL: of known allocators alone. -ENOENT: there is none that allocates together with one that
 * frees, or no symbols at all; in words, without the file's name.
 */
int heap_entries_find(
	struct elf_file *f, struct elf_file *symbols, const char *prefix, struct heap_entries *ret, struct err *err);

/* How a function of that name is called; kind 0: it is none of an allocator's. *ret_operator: of C++, which may be part of
 * the allocator or of the language's library. */
struct heap_probe heap_entry_by_name(const char *name, const char *prefix, bool *ret_operator);

/*
 * An instruction at most some bytes behind the entry of a function of x86-64, whose `len` bytes are `code`, that is run
 * by all calls, with the stack pointer and the arguments that `probe` looks at as they came, and that the kernel emulates. 0 and
 * *ret_emulated false where there is none.
 */
size_t heap_entry_place(
	const struct heap_probe *probe, const uint8_t *code, size_t len, uint64_t at, bool *ret_emulated);

#endif
