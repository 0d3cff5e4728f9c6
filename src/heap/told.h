/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that sample their allocations themselves, and tell of that by USDT probes of the provider otel_memory:
 * alloc(address, size, weight) and free(address). Which there are in a process, and what a weight says. docs/heuristics/heap-probes.md.
 */
#ifndef SONDE_HEAP_TOLD_H
#define SONDE_HEAP_TOLD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "bpf/heap_probes.h"
#include "elf/elf_file.h"

struct heap_told_site {
	struct heap_told_probe probe;
	uint64_t offset, semaphore; /* in the file; semaphore 0: there is none */
};

/* Of one object file. */
struct heap_told {
	struct elf_file *file; /* ours: heap_told_release() */
	char shown[256];       /* as the process knows it */
	struct heap_told_site sites[HEAP_TOLD_MOST];
	size_t count;
	size_t left_out; /* for want of room */
};

/*
 * Looks through what a process has mapped to run. -ENOENT: no object has both probes (our own library in it does not count);
 * -EOPNOTSUPP: one has, but its arguments are of a form that is not read, in words.
 */
int heap_told_find(pid_t pid, struct heap_told *ret, struct err *err);

/* The same of one file, which stays the caller's. Another machine than ours: -EOPNOTSUPP. */
int heap_told_find_in(struct elf_file *f, struct heap_told *ret, struct err *err);
void heap_told_release(struct heap_told *t);

/*
 * The mean distance between samples at which a block of `size` bytes stands for `weight`: `last`, if that gives the weight but for
 * its rounding, for programs seldom change it. A weight below the size is taken for the size.
 */
uint64_t heap_told_rate(uint64_t size, uint64_t weight, uint64_t last);

#endif
