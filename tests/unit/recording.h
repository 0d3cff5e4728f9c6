/* SPDX-License-Identifier: BSD-2-Clause */
/* Recordings for tests: written by the writer into memory, or laid out by hand. */
#ifndef SONDE_TESTS_UNIT_RECORDING_H
#define SONDE_TESTS_UNIT_RECORDING_H

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "capture/writer.h"

struct bytes {
	uint8_t *data;
	size_t len;
};

/* A writer into memory; *ret_fd is a second descriptor for recording_bytes(). */
static inline struct capture_writer *recording_start(int *ret_fd)
{
	struct capture_writer *w = NULL;
	int fd = memfd_create("recording", 0);

	*ret_fd = dup(fd);
	return capture_writer_to_fd(fd, "memory", &w, NULL) ? NULL : w;
}

/* What was written; closes the descriptor. */
static inline struct bytes recording_bytes(int fd)
{
	struct stat st = {0};
	struct bytes b = {0};

	if (!fstat(fd, &st)) {
		b.len = (size_t)st.st_size;
		b.data = malloc(b.len + 1);
		if (pread(fd, b.data, b.len, 0) != (ssize_t)b.len)
			b.len = 0;
	}
	close(fd);
	return b;
}

/* ---- by hand ---- */

static inline void raw_header(struct buf *b)
{
	struct capture_file_header h = {
		.magic = CAPTURE_MAGIC,
		.version = CAPTURE_VERSION,
		.header_bytes = sizeof(h),
		.start_monotonic_ns = 1000,
		.start_realtime_ns = 2000,
	};

	h.checksum = hash_bytes(&h, 56);
	buf_add(b, &h, sizeof(h));
}

/* A block with the checksum of docs/FORMAT.md, spelled out apart from the writer's code. */
static inline void raw_block_codec(struct buf *b, uint64_t sequence, const void *stored, size_t len,
	uint32_t codec, uint32_t plain_bytes)
{
	struct capture_block_header h = {
		.magic = CAPTURE_BLOCK_MAGIC,
		.codec = codec,
		.stored_bytes = (uint32_t)len,
		.plain_bytes = plain_bytes,
		.sequence = sequence,
	};
	uint8_t covered[32];
	uint64_t inner = hash_bytes(stored, len);

	memcpy(covered, &h, 24);
	memcpy(covered + 24, &inner, 8);
	h.checksum = hash_bytes(covered, 32);
	buf_add(b, &h, sizeof(h));
	buf_add(b, stored, len);
}

static inline void raw_block(struct buf *b, uint64_t sequence, const void *payload, size_t len)
{
	raw_block_codec(b, sequence, payload, len, CAPTURE_PLAIN, (uint32_t)len);
}

/* Appends a record of `bytes` bytes to a payload; sets its header. */
static inline void raw_record(struct buf *payload, uint16_t type, void *record, size_t bytes)
{
	*(struct record_header *)record = (struct record_header){
		.type = type,
		.bytes = (uint32_t)bytes,
	};
	buf_add(payload, record, bytes);
}

#endif
