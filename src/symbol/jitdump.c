/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Following a jitdump and finding code in it.
 *
 * The file is a header and records: code loaded, code moved, and, before a load, its lines and its
 * unwind information. Only fixed parts and names are looked at here, a buffer of the file at a time;
 * the rest is read when it is asked for.
 *
 * The index: each load or move puts a piece at a place; each page of memory that a place touches has
 * a list of such places, the latest first. Nothing is ever taken out, so the past can be asked for.
 */
#include "symbol/jitdump.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/cursor.h"
#include "symbol/jitdump_priv.h"

/* jitdump-specification.txt: the header, the record header, and the ids of records. */
#define MAGIC 0x4a695444u /* "DTiJ" as it stands in a little-endian file */
#define HEADER_BYTES 40u
#define RECORD_HEADER_BYTES 16u
#define FLAG_ARCH_TIMESTAMP 1u

enum record_id {
	CODE_LOAD = 0,
	CODE_MOVE = 1,
	CODE_DEBUG_INFO = 2,
	CODE_UNWINDING_INFO = 4,
};

#define LOAD_BYTES (RECORD_HEADER_BYTES + 40u)   /* of a load before its name */
#define DEBUG_BYTES (RECORD_HEADER_BYTES + 16u)  /* of lines before the entries */
#define UNWIND_BYTES (RECORD_HEADER_BYTES + 24u) /* of unwind information before its data */

#define BUFFER_BYTES (64u << 10)
#define NAME_LIMIT 4096u /* longer names are cut by who shows them, and refused here */
#define PREFIX_LIMIT (LOAD_BYTES + NAME_LIMIT + 1u)
#define FOLLOW_BYTES (8u << 20)
#define PIECE_LIMIT (64u << 20)  /* of code; what is larger was not compiled by anyone */
#define LINES_LIMIT (4u << 20)   /* bytes of debug entries of a piece */
#define UNWIND_LIMIT (256u << 10) /* bytes of unwind information of a piece */
#define MAX_PIECES (512u << 10)  /* with places and pages some 64 MB */
#define MAX_PAGE_ENTRIES (1u << 20)
#define PAGE_SHIFT 12
#define SEARCH_LIMIT 1024u /* entries of a page's list that a look-up goes through */

/* V8 adds what it takes for the size of an ELF header to the addresses of its debug entries, and writes
 * this into the unused field of the header. */
#define V8_PAD 0xdeadbeefu
#define V8_LINE_SHIFT 0x40u

/* A clock that is ahead of ours by this is another one. */
#define CLOCK_SLACK_NS (60 * NS_PER_S)

struct place {
	uint64_t start, time_ns;
	uint32_t size, piece;
};

struct page_entry {
	uint32_t place, next; /* next: index + 1 of an earlier entry of the page, 0 = none */
};

/* Lines that wait for their load. */
struct pending_lines {
	uint64_t address, offset;
	uint32_t bytes, count;
};
#define PENDING_LINES 8u

struct jitdump {
	int fd;
	bool untimed;  /* its times are not CLOCK_MONOTONIC */
	bool over;     /* nothing more is read: broken, or too much */
	bool from_v8;
	uint64_t at;   /* where the next record starts; 0: the header was not read yet */
	VEC(struct jit_piece) pieces;
	VEC(struct place) places;
	VEC(struct page_entry) entries;
	struct number_map pages; /* page number + 1 -> index of its latest entry, + 1 */
	struct pending_lines lines[PENDING_LINES];
	unsigned next_line;
	uint64_t unwind_offset; /* that waits for its load */
	uint32_t unwind_bytes, unwind_hdr_bytes;
	uint8_t buffer[BUFFER_BYTES];
};

pid_t jitdump_pid(const char *path)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	uint64_t pid = 0;

	if (strncmp(name, "jit-", 4))
		return 0;
	for (name += 4; *name >= '0' && *name <= '9' && pid <= INT32_MAX; name++)
		pid = 10 * pid + (uint64_t)(*name - '0');
	return pid <= INT32_MAX && !strcmp(name, ".dump") ? (pid_t)pid : 0;
}

static ssize_t read_at(int fd, uint64_t offset, void *buf, size_t len)
{
	size_t got = 0;

	if (offset > INT64_MAX - len)
		return -EINVAL;
	while (got < len) {
		ssize_t n = pread(fd, (char *)buf + got, len - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (!n)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

bool jitdump_read(const struct jitdump *d, uint64_t offset, void *buf, size_t len)
{
	return read_at(d->fd, offset, buf, len) == (ssize_t)len;
}

/* ---- the header ---- */

static uint32_t our_machine(void)
{
#if defined(__aarch64__)
	return EM_AARCH64;
#else
	return EM_X86_64;
#endif
}

static bool read_header(struct jitdump *d)
{
	uint8_t bytes[HEADER_BYTES];
	struct cursor c = cursor_over(bytes, sizeof(bytes));

	if (!jitdump_read(d, 0, bytes, sizeof(bytes)) || cursor_u32(&c) != MAGIC)
		return false;

	uint32_t version = cursor_u32(&c), size = cursor_u32(&c), machine = cursor_u32(&c);

	d->from_v8 = cursor_u32(&c) == V8_PAD;
	cursor_skip(&c, 4 + 8); /* pid; when the file was made, by whatever clock */
	d->untimed = cursor_u64(&c) & FLAG_ARCH_TIMESTAMP;
	d->at = size;
	return version && size >= HEADER_BYTES && size <= BUFFER_BYTES && machine == our_machine();
}

int jitdump_open(int fd, struct jitdump **ret, struct err *err)
{
	struct jitdump *d = calloc(1, sizeof(*d));

	if (!d) {
		close(fd);
		return err_nomem(err);
	}
	d->fd = fd;
	*ret = d;
	return 0;
}

void jitdump_free(struct jitdump *d)
{
	if (!d)
		return;
	close(d->fd);
	vec_release(&d->pieces);
	vec_release(&d->places);
	vec_release(&d->entries);
	number_map_release(&d->pages);
	free(d);
}

uint64_t jitdump_line_shift(const struct jitdump *d)
{
	return d->from_v8 ? V8_LINE_SHIFT : 0;
}

/* ---- the index ---- */

static int add_entry(struct jitdump *d, uint64_t page, uint32_t place)
{
	struct page_entry e = {place, (uint32_t)number_map_get(&d->pages, page + 1)};

	if (d->entries.len >= MAX_PAGE_ENTRIES || vec_push(&d->entries, e))
		return -ENOMEM;
	return number_map_put(&d->pages, page + 1, d->entries.len);
}

static int add_place(struct jitdump *d, uint32_t piece, uint64_t start, uint64_t time_ns)
{
	struct place p = {start, d->untimed ? 0 : time_ns, d->pieces.data[piece].size, piece};
	uint64_t last;

	if (__builtin_add_overflow(start, p.size - 1u, &last))
		return 0;
	if (d->places.len >= MAX_PIECES || vec_push(&d->places, p))
		return -ENOMEM;
	for (uint64_t page = start >> PAGE_SHIFT; page <= last >> PAGE_SHIFT; page++)
		if (add_entry(d, page, (uint32_t)d->places.len - 1))
			return -ENOMEM;
	return 0;
}

static const struct place *find_place(const struct jitdump *d, uint64_t address, uint64_t time_ns)
{
	uint64_t entry = number_map_get(&d->pages, (address >> PAGE_SHIFT) + 1);
	const struct place *later = NULL;

	for (unsigned i = 0; entry && i < SEARCH_LIMIT; i++) {
		const struct page_entry *e = &d->entries.data[entry - 1];
		const struct place *p = &d->places.data[e->place];

		entry = e->next;
		if (address - p->start >= p->size)
			continue;
		if (p->time_ns <= time_ns)
			return p;
		later = p;
	}
	return later;
}

bool jitdump_find(
	const struct jitdump *d, uint64_t address, uint64_t time_ns, struct jitdump_code *ret)
{
	const struct place *p = find_place(d, address, time_ns);
	const struct jit_piece *piece = p ? &d->pieces.data[p->piece] : NULL;

	if (!p)
		return false;
	*ret = (struct jitdump_code){
		.start = p->start,
		.end = p->start + p->size,
		.offset = piece->offset,
		.number = p->piece,
		.unwind_offset = piece->unwind_offset,
		.unwind_bytes = piece->unwind_bytes,
		.unwind_hdr_bytes = piece->unwind_hdr_bytes,
	};
	return true;
}

const struct jit_piece *jitdump_piece_at(const struct jitdump *d, uint64_t offset)
{
	size_t low = 0, high = d->pieces.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (d->pieces.data[mid].offset <= offset)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low || offset - d->pieces.data[low - 1].offset >= d->pieces.data[low - 1].size)
		return NULL;
	return &d->pieces.data[low - 1];
}

/* ---- records ---- */

/* A record as far as it is in the buffer; the cursor stands behind the record header. */
struct record {
	uint64_t at, total, time_ns; /* where it starts in the file, its size */
	struct cursor body;
};

static void take_pending(struct jitdump *d, struct jit_piece *piece)
{
	for (unsigned i = 0; i < PENDING_LINES; i++) {
		struct pending_lines *l = &d->lines[i];

		if (!l->count || l->address != piece->address)
			continue;
		piece->lines_offset = l->offset;
		piece->lines_bytes = l->bytes;
		piece->lines_count = l->count;
		*l = (struct pending_lines){0};
	}
	piece->unwind_offset = d->unwind_offset;
	piece->unwind_bytes = d->unwind_bytes;
	piece->unwind_hdr_bytes = d->unwind_hdr_bytes;
	d->unwind_bytes = 0;
}

/* pid, tid, vma, code_addr, code_size, code_index; name, code */
static int take_load(struct jitdump *d, struct record *r)
{
	struct cursor *c = &r->body;
	struct jit_piece piece = {0};

	cursor_skip(c, 16);
	piece.address = cursor_u64(c);
	uint64_t size = cursor_u64(c);
	cursor_skip(c, 8);
	size_t name_bytes = strlen(cursor_cstr(c));
	if (c->bad || !size || size > PIECE_LIMIT || size > r->total - LOAD_BYTES - name_bytes - 1) {
		d->unwind_bytes = 0;
		return 0;
	}
	piece.size = (uint32_t)size;
	piece.name_bytes = (uint32_t)name_bytes;
	piece.offset = r->at + LOAD_BYTES + name_bytes + 1;
	take_pending(d, &piece);
	if (d->pieces.len >= MAX_PIECES || vec_push(&d->pieces, piece))
		return -ENOMEM;
	return add_place(d, (uint32_t)d->pieces.len - 1, piece.address, r->time_ns);
}

/* pid, tid, vma, old_code_addr, new_code_addr, code_size, code_index */
static int take_move(struct jitdump *d, struct record *r)
{
	struct cursor *c = &r->body;
	const struct place *from;

	cursor_skip(c, 16);
	uint64_t old = cursor_u64(c), new = cursor_u64(c);
	if (c->bad)
		return 0;
	from = find_place(d, old, UINT64_MAX);
	/* The whole piece, for nothing else is ever compiled. */
	if (!from || from->start != old)
		return 0;
	return add_place(d, from->piece, new, r->time_ns);
}

/* code_addr, nr_entry; entries */
static int take_lines(struct jitdump *d, struct record *r)
{
	struct pending_lines l = {.address = cursor_u64(&r->body)};
	uint64_t count = cursor_u64(&r->body);

	if (r->body.bad || r->total - DEBUG_BYTES > LINES_LIMIT || count > LINES_LIMIT)
		return 0;
	l.offset = r->at + DEBUG_BYTES;
	l.bytes = (uint32_t)(r->total - DEBUG_BYTES);
	l.count = (uint32_t)count;
	d->lines[d->next_line++ % PENDING_LINES] = l;
	return 0;
}

/* unwinding_size, eh_frame_hdr_size, mapped_size; data. Data that was not mapped is there only for
 * readers that cannot do without any, and says that frame pointers are kept. */
static int take_unwind(struct jitdump *d, struct record *r)
{
	uint64_t size = cursor_u64(&r->body), hdr = cursor_u64(&r->body), mapped = cursor_u64(&r->body);

	d->unwind_bytes = 0;
	if (r->body.bad || size > UNWIND_LIMIT || size > r->total - UNWIND_BYTES || hdr > size || !mapped)
		return 0;
	d->unwind_offset = r->at + UNWIND_BYTES;
	d->unwind_bytes = (uint32_t)size;
	d->unwind_hdr_bytes = (uint32_t)hdr;
	return 0;
}

static int take_record(struct jitdump *d, uint32_t id, struct record *r)
{
	/* All that is timed has happened. */
	if (d->at <= BUFFER_BYTES && r->time_ns > clock_monotonic_ns() + CLOCK_SLACK_NS)
		d->untimed = true;
	switch (id) {
	case CODE_LOAD:
		return take_load(d, r);
	case CODE_MOVE:
		return take_move(d, r);
	case CODE_DEBUG_INFO:
		return take_lines(d, r);
	case CODE_UNWINDING_INFO:
		return take_unwind(d, r);
	default: /* CLOSE, and what we do not know */
		return 0;
	}
}

/* Takes the whole records that start in the buffer; how many, or -1 when there is no more to read:
 * the file is broken, or larger than we want to know. */
static int take_buffer(struct jitdump *d, size_t len, uint64_t file_bytes)
{
	struct cursor c = cursor_over(d->buffer, len);
	int taken = 0;

	while (cursor_left(&c) >= RECORD_HEADER_BYTES) {
		struct cursor start = c;
		uint32_t id = cursor_u32(&c);
		struct record r = {.at = d->at, .total = cursor_u32(&c)};

		r.time_ns = cursor_u64(&c);
		if (r.total < RECORD_HEADER_BYTES)
			return -1;
		if (r.total > file_bytes - d->at)
			break; /* being written */
		size_t prefix = r.total < PREFIX_LIMIT ? r.total : PREFIX_LIMIT;
		if (prefix > cursor_left(&start))
			break; /* the next buffer has it whole */
		r.body = cursor_over(c.at, prefix - RECORD_HEADER_BYTES);
		if (take_record(d, id, &r))
			return -1;
		taken++;
		d->at += r.total;
		c = start;
		cursor_skip(&c, r.total);
	}
	return taken;
}

bool jitdump_follow(struct jitdump *d)
{
	struct stat st;

	if (d->over || fstat(d->fd, &st) || (!d->at && st.st_size < (off_t)HEADER_BYTES))
		return false;
	if (!d->at && !read_header(d)) {
		d->over = true;
		return false;
	}

	uint64_t limit = d->at + FOLLOW_BYTES;

	while (d->at < (uint64_t)st.st_size) {
		if (d->at >= limit)
			return true;

		ssize_t n = read_at(d->fd, d->at, d->buffer, sizeof(d->buffer));
		int taken = n < 0 ? -1 : take_buffer(d, (size_t)n, (uint64_t)st.st_size);

		d->over = taken < 0;
		if (taken <= 0)
			return false;
	}
	return false;
}
