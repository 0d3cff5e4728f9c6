/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Addresses -> names: function, inline chain, file and line.
 *
 * One `struct symbol_source` stands for one place names come from: an object file with its debug
 * file, the kernel, or a process's /tmp/perf-PID.map. Each answers symbol_resolve() the same way.
 * A source caches what it opened and each address it answered; nothing is looked up twice.
 *
 * Strings are interned in the source and live as long as it. Names are demangled (C++, Rust, D)
 * with bounded output. Not thread-safe.
 */
#ifndef SONDE_SYMBOL_SYMBOL_H
#define SONDE_SYMBOL_SYMBOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "elf/elf_file.h"

/* Why an address has no name, or how good the name is. Stored in recordings: values are fixed. */
enum symbol_reason {
	SYMBOL_OK = 0,          /* named by a symbol or DWARF that covers the address */
	SYMBOL_NEAREST = 1,     /* a symbol of unknown size starts before it */
	SYMBOL_NO_SYMBOLS = 2,  /* the file has no symbol that covers it (stripped) */
	SYMBOL_NO_FILE = 3,     /* the file could not be opened */
	SYMBOL_ANONYMOUS = 4,   /* memory without a file and without a perf map (JIT) */
	SYMBOL_NOT_MAPPED = 5,
	SYMBOL_REFUSED = 6,     /* kptr_restrict, or a perf map of another owner */
};
const char *symbol_reason_text(enum symbol_reason reason); /* "stripped", ... for a person */

/* One level of an inline chain. */
struct symbol_level {
	const char *name; /* demangled; never NULL */
	const char *file; /* NULL when unknown */
	uint32_t line;    /* 0 when unknown */
	uint32_t column;  /* of Python code, from 1; 0 when unknown */
};

#define SYMBOL_MAX_LEVELS 64

/* levels[0] is the innermost inlined function, levels[count - 1] the real one. count is 0 exactly
 * when the address has no name. */
struct symbol_answer {
	const struct symbol_level *levels;
	size_t count;
	enum symbol_reason reason;
};

struct symbol_source;

struct symbol_elf_options {
	const char *root;    /* "/proc/PID/root" or "" */
	bool debuginfod;     /* ask debuginfod servers (network); off by default */
	bool no_inlines;     /* names only: no DWARF is opened */
	const char *debug_dir; /* instead of /usr/lib/debug; NULL for that (tests) */
};

/* Names from an object file; `file` is borrowed and must outlive the source. Debug files are
 * opened lazily, at the first address. */
int symbol_source_elf(struct elf_file *file, const struct symbol_elf_options *options,
	struct symbol_source **ret, struct err *err);

/* Names from /proc/kallsyms. Fails with -EPERM when addresses are hidden (kptr_restrict). */
int symbol_source_kernel(struct symbol_source **ret, struct err *err);

/* The same over a text in memory (tests). */
int symbol_source_kernel_text(
	const char *text, size_t len, struct symbol_source **ret, struct err *err);

/* Opens /tmp/perf-PID.map as the process `pid` (in our pid namespace) writes it: the name by its
 * innermost pid namespace, under its root, owned by its user, a regular file, not a symlink. A
 * descriptor, -ENOENT when there is none, -EPERM for a foreign owner. Recorders open it while the
 * process lives and read it at the end. */
int symbol_perf_map_open(pid_t pid, struct err *err);

/* Names from an open perf map, all that is in it now; `fd` stays the caller's. */
int symbol_source_perf_map(int fd, struct symbol_source **ret, struct err *err);

/* The same over a text in memory (tests, fuzzing). */
int symbol_source_perf_map_text(
	const char *text, size_t len, struct symbol_source **ret, struct err *err);

void symbol_source_free(struct symbol_source *s);

/* Resolves the instruction at `address` (module address for ELF sources, absolute otherwise).
 * For a return address pass the address of the call (return address - 1). Never fails: a hole has
 * its reason. The answer lives as long as the source. */
struct symbol_answer symbol_resolve(struct symbol_source *s, uint64_t address);

/* `mangled` demangled (C++, Rust v0 and legacy, D, Cython); returned as it is when it is not mangled or
 * too long. The result is malloc'ed (NULL only when out of memory) and at most 4096 bytes. */
char *symbol_demangle(const char *mangled);

#endif
