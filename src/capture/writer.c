/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records gather in `block`; when that is full it is compressed and goes to the file with one
 * write, so that a kill loses at most the block being filled. Whatever fails first stays in
 * `error` and turns every later call into a no-op that only hands out ids.
 */
#include "capture/writer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "capture/block.h"
#include "capture/output.h"
#include "capture/writer_priv.h"

#define BLOCK_BYTES ((size_t)256 * 1024)
#define ZSTD_LEVEL 3

/* ---- bytes ---- */

static void put(struct capture_writer *w, const void *bytes, size_t len)
{
	if (w->error.code)
		return;
	if (w->window)
		window_put(w, bytes, len);
	else if (!output_write(w->fd, w->name, bytes, len, &w->error))
		w->written += len;
}

/* Compressed unless that makes it larger. */
static size_t encode_block(struct capture_writer *w, struct capture_block_header *h)
{
	uint8_t *payload = w->stored + sizeof(*h);
	size_t room = w->stored_cap - sizeof(*h);
	size_t n = ZSTD_compressCCtx(
		w->zstd, payload, room, w->block.data, w->block.len, ZSTD_LEVEL);

	*h = (struct capture_block_header){
		.magic = CAPTURE_BLOCK_MAGIC,
		.codec = CAPTURE_ZSTD,
		.stored_bytes = (uint32_t)n,
		.plain_bytes = (uint32_t)w->block.len,
		.sequence = w->sequence++,
	};
	if (ZSTD_isError(n) || n >= w->block.len) {
		memcpy(payload, w->block.data, w->block.len);
		h->codec = CAPTURE_PLAIN;
		h->stored_bytes = h->plain_bytes;
	}
	h->checksum = block_checksum(h, payload);
	memcpy(w->stored, h, sizeof(*h));
	return sizeof(*h) + h->stored_bytes;
}

/* Only a block with one huge record needs more than the buffer made at the start. */
static int reserve_stored(struct capture_writer *w, size_t plain_bytes)
{
	size_t need = sizeof(struct capture_block_header) + ZSTD_compressBound(plain_bytes);

	if (need <= w->stored_cap)
		return 0;

	uint8_t *grown = realloc(w->stored, need);

	if (!grown)
		return -ENOMEM;
	w->stored = grown;
	w->stored_cap = need;
	return 0;
}

void writer_end_block(struct capture_writer *w)
{
	struct capture_block_header h;

	if (w->error.code || !w->block.len)
		return;
	if (reserve_stored(w, w->block.len)) {
		err_nomem(&w->error);
		return;
	}
	put(w, w->stored, encode_block(w, &h));
	buf_clear(&w->block);
}

void capture_writer_flush(struct capture_writer *w)
{
	if (!w->window)
		writer_end_block(w);
}

void writer_add_record(struct capture_writer *w, enum record_type type, void *fixed,
	size_t fixed_bytes, const void *tail, size_t tail_bytes)
{
	struct record_header *h = fixed;

	if (w->error.code)
		return;
	*h = (struct record_header){
		.type = (uint16_t)type,
		.bytes = (uint32_t)((fixed_bytes + tail_bytes + 7) & ~(size_t)7),
	};
	buf_add(&w->block, fixed, fixed_bytes);
	buf_add(&w->block, tail, tail_bytes);
	buf_pad(&w->block, 8);
	if (w->block.failed)
		err_nomem(&w->error);
	else if (w->block.len >= BLOCK_BYTES)
		writer_end_block(w);
}

uint32_t writer_no_memory(struct capture_writer *w)
{
	if (!w->error.code)
		err_nomem(&w->error);
	return CAPTURE_NONE;
}

/* ---- life ---- */

void writer_put_file_header(
	struct capture_writer *w, uint64_t start_monotonic_ns, uint64_t start_realtime_ns)
{
	struct capture_file_header h = {
		.magic = CAPTURE_MAGIC,
		.version = CAPTURE_VERSION,
		.header_bytes = sizeof(h),
		.start_monotonic_ns = start_monotonic_ns,
		.start_realtime_ns = start_realtime_ns,
	};

	h.checksum = file_header_checksum(&h);
	put(w, &h, sizeof(h));
}

void writer_free(struct capture_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	if (w->window)
		window_free(w);
	free(w->name);
	buf_release(&w->block);
	ZSTD_freeCCtx(w->zstd);
	free(w->stored);
	tables_release(w);
	free(w);
}

int writer_new(const char *name, struct capture_writer **ret, struct err *err)
{
	struct capture_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return err_nomem(err);
	w->fd = -1;
	w->name = strdup(name);
	w->zstd = ZSTD_createCCtx();
	if (!w->name || !w->zstd || reserve_stored(w, BLOCK_BYTES + BLOCK_BYTES / 4)) {
		writer_free(w);
		return err_nomem(err);
	}
	*ret = w;
	return 0;
}

int capture_writer_to_fd_since(int fd, const char *name, uint64_t start_monotonic_ns,
	uint64_t start_realtime_ns, struct capture_writer **ret, struct err *err)
{
	struct capture_writer *w = NULL;
	int rc = writer_new(name, &w, err);

	if (rc) {
		close(fd);
		return rc;
	}
	w->fd = fd;
	writer_put_file_header(w, start_monotonic_ns, start_realtime_ns);
	rc = capture_writer_error(w, err);
	if (rc) {
		writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
}

int capture_writer_to_fd(int fd, const char *name, struct capture_writer **ret, struct err *err)
{
	return capture_writer_to_fd_since(
		fd, name, clock_monotonic_ns(), clock_read_ns(CLOCK_REALTIME), ret, err);
}

int capture_writer_create(const char *path, struct capture_writer **ret, struct err *err)
{
	int fd = output_open(path, err);

	return fd < 0 ? fd : capture_writer_to_fd(fd, path, ret, err);
}

uint64_t capture_writer_bytes(const struct capture_writer *w)
{
	return w->written;
}

int capture_writer_error(const struct capture_writer *w, struct err *err)
{
	if (w->error.code && err)
		*err = w->error;
	return -w->error.code;
}

int capture_writer_finish(
	struct capture_writer *w, enum end_reason reason, uint64_t end_ns, struct err *err)
{
	struct record_end end = {.time_ns = end_ns, .reason = reason};

	if (!w)
		return 0;
	writer_add_record(w, RECORD_END, &end, sizeof(end), NULL, 0);
	capture_writer_flush(w);

	/* Network filesystems tell only here that the disk was full. */
	if (w->fd >= 0 && close(take_fd(w->fd)) && errno != EINTR && !w->error.code)
		err_errno(&w->error, errno, "%s: cannot write", w->name);

	int rc = capture_writer_error(w, err);

	writer_free(w);
	return rc;
}

void capture_writer_abandon(struct capture_writer *w)
{
	if (w)
		writer_free(w);
}

/* ---- other records ---- */

/* Size of the records that capture_record() takes, 0 for the others; zeroes their padding. */
static size_t tidy_record(enum record_type type, void *record)
{
	switch (type) {
	case RECORD_PROCESS:
		((struct record_process *)record)->pad = 0;
		return sizeof(struct record_process);
	case RECORD_THREAD:
		((struct record_thread *)record)->pad = 0;
		return sizeof(struct record_thread);
	case RECORD_EXIT:
		return sizeof(struct record_exit);
	case RECORD_MAPPING:
		return sizeof(struct record_mapping);
	case RECORD_SAMPLE:
		return sizeof(struct record_sample);
	case RECORD_LOSS:
		((struct record_loss *)record)->pad = 0;
		return sizeof(struct record_loss);
	case RECORD_OFF_CPU:
		((struct record_off_cpu *)record)->pad = 0;
		return sizeof(struct record_off_cpu);
	case RECORD_THREAD_TIMES:
		return sizeof(struct record_thread_times);
	case RECORD_TASK_TIME:
		memset(((struct record_task_time *)record)->pad, 0, 2);
		return sizeof(struct record_task_time);
	case RECORD_HEAP:
		((struct record_heap *)record)->pad = 0;
		return sizeof(struct record_heap);
	case RECORD_HEAP_SITE:
		return sizeof(struct record_heap_site);
	case RECORD_HEAP_STATE:
		return sizeof(struct record_heap_state);
	case RECORD_HEAP_FLOW:
		return sizeof(struct record_heap_flow);
	case RECORD_HEAP_THREAD:
		return sizeof(struct record_heap_thread);
	case RECORD_HEAP_CLASS:
		return sizeof(struct record_heap_class);
	case RECORD_HEAP_TOTAL:
		((struct record_heap_total *)record)->pad = 0;
		return sizeof(struct record_heap_total);
	case RECORD_MARK:
		memset(((struct record_mark *)record)->pad, 0, 3);
		return sizeof(struct record_mark);
	case RECORD_COUNTER:
		memset(((struct record_counter *)record)->pad, 0, 3);
		return sizeof(struct record_counter);
	case RECORD_COUNTER_VALUE:
		return sizeof(struct record_counter_value);
	case RECORD_COST:
		return sizeof(struct record_cost);
	default:
		return 0;
	}
}

void capture_record(struct capture_writer *w, enum record_type type, void *record, size_t bytes)
{
	if (tidy_record(type, record) != bytes) {
		if (!w->error.code)
			err_set(&w->error, EINVAL, "%s: record type %d cannot have %zu bytes",
				w->name, (int)type, bytes);
		return;
	}
	if (w->window && type == RECORD_MAPPING)
		tables_define_module(w, ((struct record_mapping *)record)->module);
	writer_add_record(w, type, record, bytes, NULL, 0);
}

void capture_meta(struct capture_writer *w, const char *key, const char *value)
{
	if (w->window) {
		window_meta(w, key, value);
		return;
	}

	struct record_meta r = {
		.key = capture_string(w, key),
		.value = capture_string(w, value),
	};

	writer_add_record(w, RECORD_META, &r, sizeof(r), NULL, 0);
}

void capture_symbol(struct capture_writer *w, uint32_t frame, uint8_t reason,
	const struct record_symbol_level *levels, size_t count)
{
	struct record_symbol r = {.frame = frame, .reason = reason};
	struct record_symbol_level kept[CAPTURE_MAX_LEVELS];

	/* The outermost level, the real function, is the one to keep when there are too many. */
	if (count > CAPTURE_MAX_LEVELS) {
		levels += count - CAPTURE_MAX_LEVELS;
		count = CAPTURE_MAX_LEVELS;
	}
	if (count)
		memcpy(kept, levels, count * sizeof(*kept));
	r.level_count = (uint16_t)count;
	writer_add_record(w, RECORD_SYMBOL, &r, sizeof(r), kept, count * sizeof(*kept));
}

void capture_heap_shape(struct capture_writer *w, const struct record_heap_shape *shape, const double *counts)
{
	struct record_heap_shape r = {.time_ns = shape->time_ns, .site = shape->site, .kind = shape->kind};
	unsigned first = 0, end = HEAP_BUCKETS;

	while (end && !counts[end - 1])
		end--;
	while (first < end && !counts[first])
		first++;
	r.first = (uint8_t)first;
	r.buckets = (uint8_t)(end - first);
	writer_add_record(w, RECORD_HEAP_SHAPE, &r, sizeof(r), counts + first, r.buckets * sizeof(*counts));
}

void capture_unnamed(
	struct capture_writer *w, uint32_t frame, uint8_t reason, uint64_t function_start)
{
	struct record_symbol r = {
		.frame = frame, .reason = reason, .function_start = function_start};

	writer_add_record(w, RECORD_SYMBOL, &r, sizeof(r), NULL, 0);
}
