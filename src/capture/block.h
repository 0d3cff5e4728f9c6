/* SPDX-License-Identifier: BSD-2-Clause */
/* The two checksums of a recording, as docs/FORMAT.md defines them. */
#ifndef SONDE_CAPTURE_BLOCK_H
#define SONDE_CAPTURE_BLOCK_H

#include <stddef.h>

#include "base/hash.h"
#include "capture/records.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "recordings are little-endian");

static inline uint64_t file_header_checksum(const struct capture_file_header *h)
{
	return hash_bytes(h, offsetof(struct capture_file_header, checksum));
}

/* Hashing the hash of the stored bytes covers both parts in one pass without joining them. */
static inline uint64_t block_checksum(const struct capture_block_header *h, const void *stored)
{
	struct capture_block_header covered = *h;

	covered.checksum = hash_bytes(stored, h->stored_bytes);
	return hash_bytes(&covered, sizeof(covered));
}

#endif
