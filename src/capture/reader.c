/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Three layers: a window over the input, blocks found in the window, records found in a block.
 *
 *	input   ....[ window: what is read and not yet used ].............
 *	                 ^ at: a block header, or the place where the search for one goes on
 *
 * The window never needs more than one block of the largest size, so a file of gigabytes and a
 * pipe are read alike. After damage the search goes on byte by byte for the magic of a block; each
 * candidate has to be whole and to have the right checksum before anything in it is believed.
 */
#include "capture/reader.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
#include <zstd.h>

#include "base/cleanup.h"
#include "capture/block.h"

#define READ_BYTES ((size_t)1 << 20)

/* Bytes that may be hashed for nothing before the search gives up looking inside blocks that turned
 * out bad: without a limit, a file made of block headers would cost the square of its size. */
#define WASTE_LIMIT ((uint64_t)64 << 20)

struct capture_reader {
	int fd; /* -1: the window is the whole input, borrowed */
	char *name;
	struct capture_file_header header;
	struct capture_damage damage;

	const uint8_t *window;
	uint8_t *owned; /* the window's memory when fd >= 0 */
	size_t cap, at, end;
	uint64_t read_bytes, wasted_bytes;
	bool input_done;

	ZSTD_DCtx *zstd;
	uint8_t *plain; /* records of the current block */
	size_t plain_cap, plain_at, plain_end;
	uint64_t next_sequence;
	bool end_seen;
};

/* ---- the window ---- */

static int grow_window(struct capture_reader *r, size_t need)
{
	if (r->at)
		memmove(r->owned, r->owned + r->at, r->end - r->at);
	r->end -= r->at;
	r->at = 0;
	if (need <= r->cap)
		return 0;

	uint8_t *grown = realloc(r->owned, need + READ_BYTES);

	if (!grown)
		return -ENOMEM;
	r->window = r->owned = grown;
	r->cap = need + READ_BYTES;
	return 0;
}

/* Tries to have `need` bytes from `at` on; fewer are there only at the end of the input. */
static int fill(struct capture_reader *r, size_t need, struct err *err)
{
	if (r->end - r->at >= need || r->input_done)
		return 0;
	if (grow_window(r, need))
		return err_nomem(err);
	while (r->end < need) {
		ssize_t n = read(r->fd, r->owned + r->end, r->cap - r->end);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(err, errno, "%s: cannot read", r->name);
		if (!n) {
			r->input_done = true;
			return 0;
		}
		r->end += (size_t)n;
		r->read_bytes += (uint64_t)n;
	}
	return 0;
}

static size_t left(const struct capture_reader *r)
{
	return r->end - r->at;
}

static void skip_bytes(struct capture_reader *r, size_t n)
{
	r->at += n;
	r->damage.skipped_bytes += n;
}

/* ---- the file header ---- */

static int check_magic(struct capture_reader *r, struct err *err)
{
	static const char magic[8] = CAPTURE_MAGIC;

	if (!left(r))
		return err_set(err, EINVAL, "%s: is empty", r->name);

	const uint8_t *at = r->window + r->at;

	if (left(r) >= sizeof(magic) && !memcmp(at, magic, sizeof(magic)))
		return 0;
	/* The letters without the bytes around them: high bit stripped, or line ends translated. */
	if (left(r) >= sizeof(magic) && !memcmp(at + 1, magic + 1, 5))
		return err_set(err, EINVAL,
			"%s: is a recording that was changed on its way here, as by a transfer in "
			"text mode; copy it again in binary mode",
			r->name);
	return err_set(err, EINVAL, "%s: is not a recording of sonde", r->name);
}

static int read_file_header(struct capture_reader *r, struct err *err)
{
	struct capture_file_header *h = &r->header;
	int rc = fill(r, sizeof(*h), err);

	if (rc || (rc = check_magic(r, err)))
		return rc;
	if (left(r) < sizeof(*h))
		return err_set(err, EINVAL,
			"%s: is a recording cut off in its header; nothing was recorded", r->name);
	memcpy(h, r->window + r->at, sizeof(*h));
	r->at += sizeof(*h);
	if (h->checksum != file_header_checksum(h)) {
		r->damage.bad_header = true;
		return 0;
	}
	if (h->version > CAPTURE_VERSION)
		return err_set(err, EINVAL,
			"%s: has format version %u and this sonde reads up to version %d; use the "
			"sonde that made it or a newer one",
			r->name, h->version, CAPTURE_VERSION);
	if (!h->version || h->header_bytes < sizeof(*h) || h->header_bytes > READ_BYTES)
		return err_set(err, EINVAL, "%s: has an impossible header", r->name);

	size_t more = h->header_bytes - sizeof(*h);

	rc = fill(r, more, err);
	if (!rc)
		r->at += more < left(r) ? more : left(r);
	return rc;
}

/* ---- blocks ---- */

static bool decode(struct capture_reader *r, const struct capture_block_header *h,
	const uint8_t *stored)
{
	if (h->codec == CAPTURE_PLAIN) {
		if (h->stored_bytes != h->plain_bytes)
			return false;
		memcpy(r->plain, stored, h->plain_bytes);
		return true;
	}
	if (h->codec != CAPTURE_ZSTD)
		return false;
	return ZSTD_decompressDCtx(r->zstd, r->plain, h->plain_bytes, stored, h->stored_bytes) ==
		h->plain_bytes;
}

static int reserve_plain(struct capture_reader *r, size_t need)
{
	if (need <= r->plain_cap && r->plain)
		return 0;

	uint8_t *grown = realloc(r->plain, need ? need : 1);

	if (!grown)
		return -ENOMEM;
	r->plain = grown;
	r->plain_cap = need;
	return 0;
}

/* The block whose header stands at `at` and whose stored bytes are in the window. 1: its records
 * are in `plain`; 0: it is damaged. */
static int take_block(
	struct capture_reader *r, const struct capture_block_header *h, struct err *err)
{
	const uint8_t *stored = r->window + r->at + sizeof(*h);

	if (block_checksum(h, stored) != h->checksum || h->sequence < r->next_sequence)
		return 0;
	if (reserve_plain(r, h->plain_bytes))
		return err_nomem(err);
	if (!decode(r, h, stored))
		return 0;
	r->plain_at = 0;
	r->plain_end = h->plain_bytes;
	r->at += sizeof(*h) + h->stored_bytes;
	r->damage.missing_blocks += h->sequence - r->next_sequence;
	r->damage.truncated = false;
	r->next_sequence = h->sequence + 1;
	return 1;
}

/* Past a block that is damaged: behind it when another one (or the end) stands there, else only
 * past its magic, because its size may be what is damaged. */
static int pass_bad_block(
	struct capture_reader *r, const struct capture_block_header *h, struct err *err)
{
	size_t whole = sizeof(*h) + h->stored_bytes;
	uint32_t magic;
	int rc = fill(r, whole + sizeof(magic), err);

	if (rc)
		return rc;
	r->damage.bad_blocks++;
	r->wasted_bytes += whole;

	bool chained = left(r) == whole;

	if (left(r) >= whole + sizeof(magic)) {
		memcpy(&magic, r->window + r->at + whole, sizeof(magic));
		chained = magic == CAPTURE_BLOCK_MAGIC;
	}
	skip_bytes(r, chained || r->wasted_bytes > WASTE_LIMIT ? whole : sizeof(magic));
	return 0;
}

/* To the next byte that may begin a magic. At least one byte on. */
static void seek_magic(struct capture_reader *r)
{
	const uint8_t *from = r->window + r->at + 1;
	const uint8_t *found = memchr(from, CAPTURE_BLOCK_MAGIC & 0xff, left(r) - 1);

	skip_bytes(r, found ? (size_t)(found - from) + 1 : left(r));
}

/* One step of the search: 1 a block was taken, 0 something was skipped, 2 the end of the input. */
static int try_block(struct capture_reader *r, struct err *err)
{
	struct capture_block_header h;
	int rc = fill(r, sizeof(h), err);

	if (rc)
		return rc;
	if (!left(r))
		return 2;
	if (left(r) < sizeof(h)) {
		r->damage.truncated = true;
		skip_bytes(r, left(r));
		return 0;
	}
	memcpy(&h, r->window + r->at, sizeof(h));
	if (h.magic != CAPTURE_BLOCK_MAGIC || h.stored_bytes > CAPTURE_MAX_BLOCK_BYTES ||
		h.plain_bytes > CAPTURE_MAX_BLOCK_BYTES) {
		seek_magic(r);
		return 0;
	}
	rc = fill(r, sizeof(h) + h.stored_bytes, err);
	if (rc)
		return rc;
	if (left(r) < sizeof(h) + h.stored_bytes) {
		r->damage.truncated = true;
		skip_bytes(r, sizeof(h.magic));
		return 0;
	}
	rc = take_block(r, &h, err);
	if (!rc)
		rc = pass_bad_block(r, &h, err);
	return rc;
}

/* ---- records ---- */

static const uint16_t least_bytes[] = {
	[RECORD_META] = sizeof(struct record_meta),
	[RECORD_STRING] = sizeof(struct record_string),
	[RECORD_MODULE] = sizeof(struct record_module),
	[RECORD_PROCESS] = sizeof(struct record_process),
	[RECORD_THREAD] = sizeof(struct record_thread),
	[RECORD_EXIT] = sizeof(struct record_exit),
	[RECORD_MAPPING] = sizeof(struct record_mapping),
	[RECORD_FRAME] = sizeof(struct record_frame),
	[RECORD_STACK] = sizeof(struct record_stack),
	[RECORD_SAMPLE] = sizeof(struct record_sample),
	[RECORD_LOSS] = sizeof(struct record_loss),
	[RECORD_SYMBOL] = sizeof(struct record_symbol),
	[RECORD_COST] = sizeof(struct record_cost),
	[RECORD_END] = sizeof(struct record_end),
	[RECORD_OFF_CPU] = sizeof(struct record_off_cpu),
	[RECORD_THREAD_TIMES] = sizeof(struct record_thread_times),
	[RECORD_TASK_TIME] = sizeof(struct record_task_time),
	[RECORD_HEAP] = sizeof(struct record_heap),
	[RECORD_HEAP_SITE] = sizeof(struct record_heap_site),
	[RECORD_HEAP_STATE] = sizeof(struct record_heap_state),
	[RECORD_HEAP_SHAPE] = sizeof(struct record_heap_shape),
	[RECORD_HEAP_FLOW] = sizeof(struct record_heap_flow),
	[RECORD_HEAP_THREAD] = sizeof(struct record_heap_thread),
	[RECORD_HEAP_TOTAL] = sizeof(struct record_heap_total),
	[RECORD_HEAP_CLASS] = sizeof(struct record_heap_class),
	[RECORD_MARK] = sizeof(struct record_mark),
	[RECORD_COUNTER] = sizeof(struct record_counter),
	[RECORD_COUNTER_VALUE] = sizeof(struct record_counter_value),
};
#define KNOWN_TYPES (sizeof(least_bytes) / sizeof(least_bytes[0]))

static bool known(const struct record_header *h)
{
	return h->type < KNOWN_TYPES && least_bytes[h->type];
}

/* Whether a record of a known type holds all that its fields say it holds. */
static bool complete(const struct record_header *h)
{
	if (h->bytes < least_bytes[h->type])
		return false;
	switch (h->type) {
	case RECORD_STRING:
		return ((const struct record_string *)h)->len <=
			h->bytes - sizeof(struct record_string);
	case RECORD_SYMBOL:
		return ((const struct record_symbol *)h)->level_count <=
			(h->bytes - sizeof(struct record_symbol)) /
				sizeof(struct record_symbol_level);
	case RECORD_HEAP_SHAPE: {
		const struct record_heap_shape *shape = (const void *)h;

		return shape->buckets <= (h->bytes - sizeof(*shape)) / sizeof(double) &&
			shape->first + shape->buckets <= HEAP_BUCKETS;
	}
	case RECORD_MODULE:
		return ((const struct record_module *)h)->build_id_bytes <=
			sizeof(((const struct record_module *)h)->build_id);
	default:
		return true;
	}
}

/* The next record of the current block, NULL at its end. */
static const struct record_header *next_in_block(struct capture_reader *r)
{
	while (r->plain_at < r->plain_end) {
		const struct record_header *h = (const void *)(r->plain + r->plain_at);
		size_t rest = r->plain_end - r->plain_at;

		if (rest < sizeof(*h) || h->bytes < sizeof(*h) || h->bytes % 8 || h->bytes > rest) {
			r->damage.bad_records++;
			r->plain_at = r->plain_end;
			return NULL;
		}
		r->plain_at += h->bytes;
		if (!known(h)) {
			r->damage.unknown_records++;
			return h;
		}
		if (complete(h)) {
			r->end_seen |= h->type == RECORD_END;
			return h;
		}
		r->damage.bad_records++;
	}
	return NULL;
}

int capture_reader_next(struct capture_reader *r, const struct record_header **ret, struct err *err)
{
	for (;;) {
		const struct record_header *h = next_in_block(r);

		if (h) {
			*ret = h;
			return 1;
		}

		int rc = try_block(r, err);

		if (rc < 0)
			return rc;
		if (rc == 2) {
			r->damage.no_end = !r->end_seen;
			return 0;
		}
	}
}

/* ---- life ---- */

static int reader_new(const char *name, struct capture_reader **ret)
{
	struct capture_reader *r = calloc(1, sizeof(*r));

	if (!r)
		return -ENOMEM;
	r->fd = -1;
	r->name = strdup(name);
	r->zstd = ZSTD_createDCtx();
	if (!r->name || !r->zstd) {
		capture_reader_free(r);
		return -ENOMEM;
	}
	*ret = r;
	return 0;
}

static int finish_open(struct capture_reader *r, struct capture_reader **ret, struct err *err)
{
	int rc = read_file_header(r, err);

	if (rc)
		capture_reader_free(r);
	else
		*ret = r;
	return rc;
}

int capture_reader_open(const char *path, struct capture_reader **ret, struct err *err)
{
	autoclose int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
	struct capture_reader *r;

	if (fd < 0)
		return err_errno(err, errno, "%s: cannot open the recording", path);
	if (reader_new(path, &r))
		return err_nomem(err);
	r->fd = take_fd(fd);
	return finish_open(r, ret, err);
}

int capture_reader_open_memory(
	const void *bytes, size_t size, struct capture_reader **ret, struct err *err)
{
	struct capture_reader *r;

	if (reader_new("recording in memory", &r))
		return err_nomem(err);
	r->window = bytes;
	r->end = size;
	r->read_bytes = size;
	r->input_done = true;
	return finish_open(r, ret, err);
}

void capture_reader_free(struct capture_reader *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	free(r->name);
	free(r->owned);
	free(r->plain);
	ZSTD_freeDCtx(r->zstd);
	free(r);
}

const struct capture_file_header *capture_reader_header(const struct capture_reader *r)
{
	return &r->header;
}

uint64_t capture_reader_bytes(const struct capture_reader *r)
{
	return r->read_bytes;
}

const struct capture_damage *capture_reader_damage(const struct capture_reader *r)
{
	return &r->damage;
}
