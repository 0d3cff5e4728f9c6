/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Reading a recording, ours or a stranger's: nothing in the file is trusted.
 *
 * Records are handed out in file order, each at least as large as the struct of its type and its
 * tail: string bytes, symbol levels and build ids lie inside their record. Records for which that
 * does not hold are counted as damage and skipped; unknown types are handed out as they are. Ids
 * are not checked. A block whose checksum is wrong is skipped and counted; the search goes on at
 * the next block magic. The file is read once, front to back, a block at a time, so pipes work and
 * memory stays bounded. Not thread-safe.
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

/* Its times are not to be trusted when capture_reader_damage() says bad_header. */
const struct capture_file_header *capture_reader_header(const struct capture_reader *r);

/* Bytes read so far; the size of the file once capture_reader_next() gave 0. */
uint64_t capture_reader_bytes(const struct capture_reader *r);

/* The next record, 8-byte aligned, valid until the next call. 1: a record; 0: the end; -errno when
 * reading failed or memory ran out (damage is not an error). */
int capture_reader_next(
	struct capture_reader *r, const struct record_header **ret, struct err *err);

struct capture_damage {
	uint64_t bad_blocks;      /* checksum or decompression failed, or stored twice */
	uint64_t missing_blocks;  /* gaps in the numbers of the blocks that could be read */
	uint64_t skipped_bytes;   /* between blocks, or a last block that is not whole */
	uint64_t bad_records;     /* too short, or running over their block */
	uint64_t unknown_records; /* of a type this version does not know; not damage */
	bool bad_header;          /* the checksum of the file header is wrong */
	bool truncated;           /* the last block is not whole */
	bool no_end;              /* no END record seen (valid after capture_reader_next gave 0) */
};
const struct capture_damage *capture_reader_damage(const struct capture_reader *r);

#endif
