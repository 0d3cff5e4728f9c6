/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Records gather in `block`; when that is full it is compressed and goes to the file with one
 * write, so that a kill loses at most the block being filled. Whatever fails first stays in
 * `error` and turns every later call into a no-op that only hands out ids.
 *
 * Four interning tables: strings, modules, frames and stack nodes. Only the stack nodes grow with
 * the length of a recording, so they alone are forgotten from time to time (FORGET_NODES).
 */
#include "capture/writer.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/intern.h"
#include "base/vec.h"
#include "capture/block.h"
#include "capture/id_table.h"
#include "capture/output.h"

#define BLOCK_BYTES ((size_t)256 * 1024)
#define FORGET_NODES ((size_t)2 << 20)
#define ZSTD_LEVEL 3

struct node {
	uint32_t parent, frame;
};

struct capture_writer {
	int fd;
	char *name;
	struct err error;
	uint64_t written, sequence;

	struct buf block; /* plain records */
	ZSTD_CCtx *zstd;
	uint8_t *stored; /* block header and compressed payload */
	size_t stored_cap;

	struct intern strings;
	VEC(struct record_module) modules;
	struct id_table module_ids;
	VEC(struct record_frame) frames;
	struct id_table frame_ids;
	VEC(struct node) nodes; /* those not forgotten: ids from first_node on */
	struct id_table node_ids; /* indices of `nodes` */
	uint32_t first_node;
};

/* ---- bytes ---- */

static void put(struct capture_writer *w, const void *bytes, size_t len)
{
	if (w->error.code)
		return;
	if (!output_write(w->fd, w->name, bytes, len, &w->error))
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

void capture_writer_flush(struct capture_writer *w)
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

/* One record of a fixed part, a tail and padding. Both together are far below a block's limit:
 * the longest are strings of CAPTURE_MAX_STRING_BYTES. */
static void add_record(struct capture_writer *w, enum record_type type, void *fixed,
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
		capture_writer_flush(w);
}

static uint32_t no_memory(struct capture_writer *w)
{
	if (!w->error.code)
		err_nomem(&w->error);
	return CAPTURE_NONE;
}

/* ---- life ---- */

static void put_file_header(struct capture_writer *w)
{
	struct capture_file_header h = {
		.magic = CAPTURE_MAGIC,
		.version = CAPTURE_VERSION,
		.header_bytes = sizeof(h),
		.start_monotonic_ns = clock_monotonic_ns(),
		.start_realtime_ns = clock_read_ns(CLOCK_REALTIME),
	};

	h.checksum = file_header_checksum(&h);
	put(w, &h, sizeof(h));
}

static void writer_free(struct capture_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	free(w->name);
	buf_release(&w->block);
	ZSTD_freeCCtx(w->zstd);
	free(w->stored);
	intern_release(&w->strings);
	vec_release(&w->modules);
	id_table_release(&w->module_ids);
	vec_release(&w->frames);
	id_table_release(&w->frame_ids);
	vec_release(&w->nodes);
	id_table_release(&w->node_ids);
	free(w);
}

int capture_writer_to_fd(int fd, const char *name, struct capture_writer **ret, struct err *err)
{
	struct capture_writer *w = calloc(1, sizeof(*w));

	if (!w) {
		close(fd);
		return err_nomem(err);
	}
	w->fd = fd;
	w->name = strdup(name);
	w->zstd = ZSTD_createCCtx();
	if (!w->name || !w->zstd || reserve_stored(w, BLOCK_BYTES + BLOCK_BYTES / 4)) {
		writer_free(w);
		return err_nomem(err);
	}
	put_file_header(w);

	int rc = capture_writer_error(w, err);

	if (rc) {
		writer_free(w);
		return rc;
	}
	*ret = w;
	return 0;
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
	add_record(w, RECORD_END, &end, sizeof(end), NULL, 0);
	capture_writer_flush(w);

	/* Network filesystems tell only here that the disk was full. */
	if (close(take_fd(w->fd)) && errno != EINTR && !w->error.code)
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

/* ---- interned things ---- */

uint32_t capture_string_bytes(struct capture_writer *w, const char *bytes, size_t len)
{
	size_t kept = len < CAPTURE_MAX_STRING_BYTES ? len : CAPTURE_MAX_STRING_BYTES;
	size_t before = intern_count(&w->strings);
	uint32_t id = intern_add(&w->strings, bytes, kept);

	if (id == INTERN_NONE)
		return no_memory(w);
	if (id == before) {
		struct record_string r = {.id = id, .len = (uint32_t)kept};
		add_record(w, RECORD_STRING, &r, sizeof(r), bytes, kept);
	}
	return id;
}

uint32_t capture_string(struct capture_writer *w, const char *s)
{
	return s ? capture_string_bytes(w, s, strlen(s)) : CAPTURE_NONE;
}

/* All of a module but its header and id. */
#define MODULE_KEY offsetof(struct record_module, path)
#define MODULE_KEY_BYTES (sizeof(struct record_module) - MODULE_KEY)

static uint64_t module_hash(const struct record_module *m)
{
	return hash_bytes((const uint8_t *)m + MODULE_KEY, MODULE_KEY_BYTES);
}

static uint64_t module_hash_of(const void *ctx, uint32_t id)
{
	const struct capture_writer *w = ctx;

	return module_hash(&w->modules.data[id]);
}

uint32_t capture_module(struct capture_writer *w, const struct record_module *module)
{
	struct record_module m = *module;

	m.id = (uint32_t)w->modules.len;
	memset(m.pad, 0, sizeof(m.pad));
	if (m.build_id_bytes > sizeof(m.build_id))
		m.build_id_bytes = sizeof(m.build_id);
	memset(m.build_id + m.build_id_bytes, 0, sizeof(m.build_id) - m.build_id_bytes);

	uint64_t hash = module_hash(&m);
	struct id_probe probe = id_probe_start(&w->module_ids, hash);

	while (id_probe_next(&w->module_ids, &probe)) {
		const struct record_module *known = &w->modules.data[probe.id];
		if (!memcmp((const uint8_t *)known + MODULE_KEY, (const uint8_t *)&m + MODULE_KEY,
			    MODULE_KEY_BYTES))
			return probe.id;
	}
	if (id_table_reserve(&w->module_ids, module_hash_of, w) || vec_push(&w->modules, m))
		return no_memory(w);
	id_table_add(&w->module_ids, hash, m.id);
	add_record(w, RECORD_MODULE, &m, sizeof(m), NULL, 0);
	return m.id;
}

static uint64_t frame_hash(const struct record_frame *f)
{
	uint64_t flags = (uint64_t)f->kind | (uint64_t)f->how << 8 | (uint64_t)f->source << 16 |
		(uint64_t)f->is_return << 24;

	return hash_pair(f->address, (uint64_t)f->module << 32 | flags);
}

static uint64_t frame_hash_of(const void *ctx, uint32_t id)
{
	const struct capture_writer *w = ctx;

	return frame_hash(&w->frames.data[id]);
}

static bool frame_same(const struct record_frame *a, const struct record_frame *b)
{
	return a->address == b->address && a->module == b->module && a->kind == b->kind &&
		a->how == b->how && a->source == b->source && a->is_return == b->is_return;
}

uint32_t capture_frame(struct capture_writer *w, const struct record_frame *frame)
{
	uint64_t hash = frame_hash(frame);
	struct id_probe probe = id_probe_start(&w->frame_ids, hash);
	struct record_frame f = *frame;

	while (id_probe_next(&w->frame_ids, &probe))
		if (frame_same(&w->frames.data[probe.id], frame))
			return probe.id;
	f.header = (struct record_header){0};
	f.id = (uint32_t)w->frames.len;
	f.pad = 0;
	if (f.id >= CAPTURE_NONE - 1 || id_table_reserve(&w->frame_ids, frame_hash_of, w) ||
		vec_push(&w->frames, f))
		return no_memory(w);
	id_table_add(&w->frame_ids, hash, f.id);
	add_record(w, RECORD_FRAME, &f, sizeof(f), NULL, 0);
	return f.id;
}

size_t capture_frame_count(const struct capture_writer *w)
{
	return w->frames.len;
}

struct record_frame capture_frame_get(const struct capture_writer *w, uint32_t id)
{
	return w->frames.data[id];
}

static uint64_t node_hash_of(const void *ctx, uint32_t index)
{
	const struct capture_writer *w = ctx;
	const struct node *n = &w->nodes.data[index];

	return hash_pair(n->parent, n->frame);
}

static void forget_nodes(struct capture_writer *w)
{
	w->first_node += (uint32_t)w->nodes.len;
	w->nodes.len = 0;
	w->node_ids.used = 0;
	memset(w->node_ids.slots, 0, w->node_ids.slot_count * sizeof(*w->node_ids.slots));
}

uint32_t capture_stack(struct capture_writer *w, uint32_t parent, uint32_t frame)
{
	uint64_t hash = hash_pair(parent, frame);
	struct id_probe probe = id_probe_start(&w->node_ids, hash);
	struct node n = {.parent = parent, .frame = frame};

	while (id_probe_next(&w->node_ids, &probe)) {
		const struct node *known = &w->nodes.data[probe.id];
		if (known->parent == parent && known->frame == frame)
			return w->first_node + probe.id;
	}
	if (w->nodes.len >= FORGET_NODES)
		forget_nodes(w);

	uint32_t index = (uint32_t)w->nodes.len;
	struct record_stack r = {.id = w->first_node + index, .parent = parent, .frame = frame};

	if (w->first_node >= CAPTURE_NONE - FORGET_NODES - 1 ||
		id_table_reserve(&w->node_ids, node_hash_of, w) || vec_push(&w->nodes, n))
		return no_memory(w);
	id_table_add(&w->node_ids, hash, index);
	add_record(w, RECORD_STACK, &r, sizeof(r), NULL, 0);
	return r.id;
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
		((struct record_sample *)record)->pad = 0;
		return sizeof(struct record_sample);
	case RECORD_LOSS:
		((struct record_loss *)record)->pad = 0;
		return sizeof(struct record_loss);
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
	add_record(w, type, record, bytes, NULL, 0);
}

void capture_meta(struct capture_writer *w, const char *key, const char *value)
{
	struct record_meta r = {
		.key = capture_string(w, key),
		.value = capture_string(w, value),
	};

	add_record(w, RECORD_META, &r, sizeof(r), NULL, 0);
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
	for (size_t i = 0; i < count; i++) {
		kept[i] = levels[i];
		kept[i].pad = 0;
	}
	r.level_count = (uint16_t)count;
	add_record(w, RECORD_SYMBOL, &r, sizeof(r), kept, count * sizeof(*kept));
}

void capture_unnamed(
	struct capture_writer *w, uint32_t frame, uint8_t reason, uint64_t function_start)
{
	struct record_symbol r = {
		.frame = frame, .reason = reason, .function_start = function_start};

	add_record(w, RECORD_SYMBOL, &r, sizeof(r), NULL, 0);
}
