/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which FDE of a section may cover an address: a sorted array of (start, where the FDE lies).
 *
 * The linker's own sorted table in .eh_frame_hdr is used in place when it holds what it promises,
 * so that opening a file with 100,000 FDEs costs one pass over it and no memory to speak of;
 * otherwise the section is scanned and the same array is built. Above it stands a small table of
 * buckets by address, which leaves a search of one or two cache lines.
 */
#ifndef SONDE_UNWIND_FDE_INDEX_H
#define SONDE_UNWIND_FDE_INDEX_H

#include "unwind/cfi.h"

struct fde_index {
	const uint8_t *entries; /* int32 start - start_base, int32 FDE offset - fde_base */
	size_t count;
	uint64_t start_base, fde_base;
	uint8_t *own;	   /* entries, when they are not the linker's */
	uint32_t *buckets; /* first entry that starts in or behind bucket i; bucket_count + 1 of
			      them */
	size_t bucket_count;
	unsigned bucket_shift;
	uint64_t first; /* start of the first entry */
};

#define FDE_NOT_FOUND SIZE_MAX

/* Uses the table of `hdr`. 0; -EINVAL when there is none or it is not sorted, points outside, or
 * does not match the FDEs it names; -ENOMEM. The index is empty after a failure. */
int fde_index_from_hdr(
	struct fde_index *index, const struct unwind_section *hdr, const struct cfi_section *s);

/* Scans the section. 0 or -ENOMEM (the index is empty then). */
int fde_index_scan(struct fde_index *index, const struct cfi_section *s);

/* For an address that was not found though entry i (FDE_NOT_FOUND: none) is the last one below it:
 * whether the linker's table is wrong around there. */
bool fde_index_is_wrong_at(const struct fde_index *index, const struct cfi_section *s, size_t i);

/* How many FDEs stand in the section, which may be more than the linker's table names. */
size_t fde_index_count_fdes(const struct cfi_section *s);

/* The last entry that starts at or below `vaddr`, or FDE_NOT_FOUND. Whether it reaches as far as
 * vaddr only the FDE knows. */
size_t fde_index_find(const struct fde_index *index, uint64_t vaddr);

/* For i < count. */
uint64_t fde_index_start(const struct fde_index *index, size_t i);
uint64_t fde_index_offset(const struct fde_index *index, size_t i);

/* Memory held, in bytes. */
size_t fde_index_bytes(const struct fde_index *index);

void fde_index_release(struct fde_index *index);

#endif
