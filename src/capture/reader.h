/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading a recording, ours or a stranger's: nothing in the file is trusted.
 *
 * Records are handed out in file order, each at least as large as the struct of its type (records
 * that are shorter are counted as damage and skipped; unknown types are handed out as they are). A
 * block whose checksum is wrong is skipped and counted; the search goes on at the next block magic.
 */
#ifndef SONDE_CAPTURE_READER_H
#define SONDE_CAPTURE_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "capture/records.h"

struct capture_reader;

/* -EINVAL with a message that names the file when it is not a recording of ours. */
int capture_reader_open(const char *path, struct capture_reader **ret, struct err *err);

/* Over bytes in memory (fuzzing, tests); borrowed. */
int capture_reader_open_memory(
	const void *bytes, size_t size, struct capture_reader **ret, struct err *err);
void capture_reader_free(struct capture_reader *r);

const struct capture_file_header *capture_reader_header(const struct capture_reader *r);

/* The next record, 8-byte aligned, valid until the next call. 1: a record; 0: the end; -errno. */
int capture_reader_next(
	struct capture_reader *r, const struct record_header **ret, struct err *err);

struct capture_damage {
	uint64_t bad_blocks;      /* checksum or decompression failed */
	uint64_t skipped_bytes;   /* between blocks, or a last block that is not whole */
	uint64_t bad_records;     /* too short, or running over their block */
	uint64_t unknown_records; /* of a type this version does not know; not damage */
	bool truncated;           /* the last block is not whole */
	bool no_end;              /* no END record seen (valid after capture_reader_next gave 0) */
};
const struct capture_damage *capture_reader_damage(const struct capture_reader *r);

#endif
