/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The allocations of two recordings, side by side.
 *
 * Spots are the same when their function and the name of its file are, and their line, too, where the file is the same
 * build: in another build lines have moved. Files that only one of the recordings has, by name, are not told apart.
 * Addresses mean nothing.
 */
#ifndef SONDE_PROFILE_HEAP_DIFF_H
#define SONDE_PROFILE_HEAP_DIFF_H

#include "profile/heap.h"

struct heap_change {
	const char *name, *module; /* module "": none */
	const char *file;          /* NULL: not known */
	uint32_t line;             /* 0: not known, or of several lines */
	const char *allocator;     /* "[pool NAME]", "[mapped...]"; NULL: malloc */
	struct heap_sum sum[2];    /* zeros where there is none */
	uint32_t spot[2];          /* one of them: into spots[i], PROFILE_NONE */
	bool sure;                 /* the difference of what was sorted by is not chance, by 95 % */
};

struct heap_diff {
	VEC(struct heap_change) changes; /* the largest difference first */
	struct heap_spots spots[2];
};

/* Both profiles have a heap, and stay as long as the difference. *ret is untouched after a failure. */
int heap_diff_build(const struct profile *const p[2], enum heap_order order, struct heap_diff *ret, struct err *err);
void heap_diff_release(struct heap_diff *d);

/* What `order` measures in the second one less that in the first, with its interval. */
double heap_difference(const struct heap_sum sum[2], enum heap_order order);
struct heap_interval heap_difference_interval(
	const struct profile *const p[2], const struct heap_sum sum[2], enum heap_order order);

#endif
