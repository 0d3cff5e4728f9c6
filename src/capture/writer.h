/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Writing a recording. Append-only: what is on disk is never changed, so a recording that ends by
 * kill -9 is readable up to its last whole block.
 *
 * Errors are sticky: the first failed write (a full disk) is kept, everything after it is
 * dropped, and capture_writer_error() tells. Records are buffered into blocks; a block goes to
 * the file when it is full or capture_writer_flush() asks.
 *
 * The interning calls return the id of an equal thing written before, or write it and return its
 * new id; CAPTURE_NONE when out of memory.
 */
#ifndef SONDE_CAPTURE_WRITER_H
#define SONDE_CAPTURE_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "capture/records.h"

struct capture_writer; /* of a file, or of a window: capture/window.h */

/* Creates `path` with mode 0600: a new file that replaces an older one of that name only when it
 * is a regular file of ours (never through a symlink). A FIFO or character device of ours or
 * root's is written to as it is, and /dev/stdout and /dev/fd/N mean that descriptor. The message
 * of a failure names the file. The caller ignores SIGPIPE when pipes are possible. */
int capture_writer_create(const char *path, struct capture_writer **ret, struct err *err);

/* The same into a descriptor, of which ownership is taken (pipes, tests). */
int capture_writer_to_fd(int fd, const char *name, struct capture_writer **ret, struct err *err);

/* The same, with a start of recording that is not now. */
int capture_writer_to_fd_since(int fd, const char *name, uint64_t start_monotonic_ns,
	uint64_t start_realtime_ns, struct capture_writer **ret, struct err *err);

/* Strings longer than CAPTURE_MAX_STRING_BYTES are cut. NULL gives CAPTURE_NONE. */
uint32_t capture_string(struct capture_writer *w, const char *s);
uint32_t capture_string_bytes(struct capture_writer *w, const char *bytes, size_t len);

/* Interned by all fields but `header`, `id` and padding, which are filled in here. */
uint32_t capture_module(struct capture_writer *w, const struct record_module *module);
uint32_t capture_frame(struct capture_writer *w, const struct record_frame *frame);

/* The stack node for `frame` called by `parent` (CAPTURE_NONE for the outermost). To bound memory
 * the writer forgets old nodes now and then: their ids stay good, equal nodes get new ones. */
uint32_t capture_stack(struct capture_writer *w, uint32_t parent, uint32_t frame);

/* Number of frames so far and one of them, for naming them at the end. */
size_t capture_frame_count(const struct capture_writer *w);
struct record_frame capture_frame_get(const struct capture_writer *w, uint32_t id);

/* Any record without a tail (process, thread, exit, mapping, sample, off_cpu, thread_times, loss,
 * cost, marks and counters, those of the heap but its shapes): `bytes` is its size; type and size are filled in. */
void capture_record(struct capture_writer *w, enum record_type type, void *record, size_t bytes);
void capture_meta(struct capture_writer *w, const char *key, const char *value);
void capture_symbol(struct capture_writer *w, uint32_t frame, uint8_t reason,
	const struct record_symbol_level *levels, size_t count);

/* `time_ns`, `site` and `kind` of `shape`, and HEAP_BUCKETS counts. */
void capture_heap_shape(struct capture_writer *w, const struct record_heap_shape *shape, const double *counts);

/* A frame that has no name; `function_start` as in struct record_symbol. */
void capture_unnamed(
	struct capture_writer *w, uint32_t frame, uint8_t reason, uint64_t function_start);

/* Ends the current block and hands it to the kernel. Nothing to do for a window. */
void capture_writer_flush(struct capture_writer *w);

/* The segment that a rolling window (capture/window.h) writes now, from 1 on; 0: this is a file. */
uint32_t capture_segment(const struct capture_writer *w);

uint64_t capture_writer_bytes(const struct capture_writer *w); /* written to the file so far */
int capture_writer_error(const struct capture_writer *w, struct err *err); /* 0 or -errno */

/* Writes the END record, flushes, closes and frees. `end_ns`: when sampling ended, which naming what
 * was sampled comes after. The sticky error, if any. NULL is fine. */
int capture_writer_finish(
	struct capture_writer *w, enum end_reason reason, uint64_t end_ns, struct err *err);

/* Closes and frees without an END record. */
void capture_writer_abandon(struct capture_writer *w);

#endif
