/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "alloc_fail.h"
#include "capture/reader.h"
#include "recording.h"

/* ---- helpers ---- */

#define ENDED_NS 12345678u /* what the writer is told is what the file says */

/* One record of every type. Unknown fields and padding are filled with 0xaa on purpose. */
static void write_every_type(struct capture_writer *w)
{
	struct record_module m;
	struct record_frame f;
	struct record_process p;
	struct record_thread t;
	struct record_exit x;
	struct record_mapping map;
	struct record_sample s;
	struct record_loss l;
	struct record_cost c;

	capture_meta(w, "host", "here");
	memset(&m, 0xaa, sizeof(m));
	m.path = capture_string(w, "/bin/true");
	m.kind = MODULE_FILE;
	m.pid = 0;
	m.inode = 11;
	m.device = 12;
	m.build_id_bytes = 3;
	memcpy(m.build_id, "\1\2\3", 3);
	uint32_t module = capture_module(w, &m);
	memset(&p, 0xaa, sizeof(p));
	p.time_ns = 100, p.pid = 7, p.ppid = 1, p.command = capture_string(w, "true --not");
	capture_record(w, RECORD_PROCESS, &p, sizeof(p));
	memset(&t, 0xaa, sizeof(t));
	t.time_ns = 101, t.pid = 7, t.tid = 8, t.name = capture_string(w, "worker");
	capture_record(w, RECORD_THREAD, &t, sizeof(t));
	memset(&map, 0xaa, sizeof(map));
	map.time_ns = 102, map.start = 0x1000, map.end = 0x2000, map.bias = 0x800, map.pid = 7;
	map.module = module;
	capture_record(w, RECORD_MAPPING, &map, sizeof(map));
	memset(&f, 0xaa, sizeof(f));
	f.address = 0x900, f.module = module, f.kind = FRAME_USER, f.how = 1, f.source = 0;
	f.is_return = 1, f.role = 2;
	uint32_t outer = capture_frame(w, &f);
	f.address = 0x950, f.how = 0, f.is_return = 0;
	uint32_t inner = capture_frame(w, &f);
	uint32_t leaf = capture_stack(w, capture_stack(w, CAPTURE_NONE, outer), inner);
	memset(&s, 0xaa, sizeof(s));
	s.time_ns = 103, s.weight = 5000, s.pid = 7, s.tid = 8, s.stack = leaf;
	s.cpu = 3, s.end = 0, s.used_bytes = 640, s.python = 5;
	capture_record(w, RECORD_SAMPLE, &s, sizeof(s));
	memset(&l, 0xaa, sizeof(l));
	l.time_ns = 104, l.count = 9, l.kind = LOSS_THROTTLE;
	capture_record(w, RECORD_LOSS, &l, sizeof(l));
	x.time_ns = 105, x.pid = 7, x.tid = 8;
	capture_record(w, RECORD_EXIT, &x, sizeof(x));
	struct record_symbol_level levels[2] = {
		{capture_string(w, "inlined"), capture_string(w, "a.h"), 5, 3},
		{capture_string(w, "main"), CAPTURE_NONE, 0, 0xaaaaaaaa},
	};
	capture_symbol(w, outer, 1, levels, 2);
	capture_symbol(w, inner, 2, NULL, 0);
	c.sampler_cpu_ns = 1, c.symbol_cpu_ns = 2, c.wakeups = 3, c.ring_bytes = 4;
	capture_record(w, RECORD_COST, &c, sizeof(c));
}

static struct bytes small_recording(bool finish)
{
	int fd;
	struct capture_writer *w = recording_start(&fd);

	write_every_type(w);
	if (finish) {
		check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	} else {
		capture_writer_flush(w);
		capture_writer_abandon(w);
	}
	return recording_bytes(fd);
}

struct seen {
	uint64_t records, by_type[64];
	uint8_t xor; /* of all bytes, so that they are all read */
	struct capture_damage damage;
	int rc;
};

/* Reads all there is, touching every byte of every record. */
static struct seen read_memory(const void *bytes, size_t len)
{
	struct seen seen = {0};
	struct capture_reader *r;
	const struct record_header *h;

	seen.rc = capture_reader_open_memory(bytes, len, &r, NULL);
	if (seen.rc)
		return seen;
	while ((seen.rc = capture_reader_next(r, &h, NULL)) > 0) {
		seen.records++;
		seen.by_type[h->type & 63]++;
		for (size_t i = 0; i < h->bytes; i++)
			seen.xor ^= ((const uint8_t *)h)[i];
	}
	seen.damage = *capture_reader_damage(r);
	capture_reader_free(r);
	return seen;
}

static struct seen read_buf(struct buf *b)
{
	struct seen seen = read_memory(b->data, b->len);

	buf_release(b);
	return seen;
}

static bool damaged(const struct capture_damage *d)
{
	return d->bad_blocks || d->missing_blocks || d->skipped_bytes || d->bad_records ||
		d->unknown_records || d->bad_header || d->truncated || d->no_end;
}

static int open_words(const void *bytes, size_t len, struct err *err)
{
	struct capture_reader *r;
	int rc = capture_reader_open_memory(bytes, len, &r, err);

	if (!rc)
		capture_reader_free(r);
	return rc;
}

/* A path in a fresh directory of its own. */
static char test_dir[64], test_path[96];

static void fresh_path(void)
{
	snprintf(test_dir, sizeof(test_dir), "/tmp/sonde-capture-XXXXXX");
	check(mkdtemp(test_dir));
	snprintf(test_path, sizeof(test_path), "%s/file", test_dir);
}

static void drop_path(void)
{
	unlink(test_path);
	check(!rmdir(test_dir));
}

/* ---- round trips ---- */

#define NEXT(type_, struct_)                                                                       \
	({                                                                                         \
		check(capture_reader_next(r, &h, NULL) == 1);                                      \
		check_u64(h->type, type_);                                                         \
		check_u64(h->flags, 0);                                                            \
		(const struct struct_ *)(const void *)h;                                           \
	})

static void next_string(struct capture_reader *r, uint32_t id, const char *want)
{
	const struct record_header *h;
	const struct record_string *s = NEXT(RECORD_STRING, record_string);

	check_u64(s->id, id);
	check_u64(s->len, strlen(want));
	check(!memcmp(s + 1, want, s->len));
}

static void check_things(struct capture_reader *r)
{
	const struct record_header *h;

	next_string(r, 0, "host");
	next_string(r, 1, "here");
	const struct record_meta *meta = NEXT(RECORD_META, record_meta);
	check(meta->key == 0 && meta->value == 1);
	next_string(r, 2, "/bin/true");
	const struct record_module *m = NEXT(RECORD_MODULE, record_module);
	check(m->id == 0 && m->path == 2 && m->kind == MODULE_FILE && m->pid == 0);
	check(m->inode == 11 && m->device == 12 && m->build_id_bytes == 3);
	check(!memcmp(m->build_id, "\1\2\3\0\0", 5));
	next_string(r, 3, "true --not");
	const struct record_process *p = NEXT(RECORD_PROCESS, record_process);
	check(p->time_ns == 100 && p->pid == 7 && p->ppid == 1 && p->command == 3 && !p->pad);
	next_string(r, 4, "worker");
	const struct record_thread *t = NEXT(RECORD_THREAD, record_thread);
	check(t->time_ns == 101 && t->pid == 7 && t->tid == 8 && t->name == 4 && !t->pad);
	const struct record_mapping *map = NEXT(RECORD_MAPPING, record_mapping);
	check(map->time_ns == 102 && map->start == 0x1000 && map->end == 0x2000);
	check(map->bias == 0x800 && map->pid == 7 && map->module == 0);
}

static void check_stacks(struct capture_reader *r)
{
	const struct record_header *h;

	const struct record_frame *f = NEXT(RECORD_FRAME, record_frame);
	check(f->id == 0 && f->address == 0x900 && f->module == 0 && f->how == 1 && f->role == 2 &&
		!f->pad[0]);
	check(f->is_return == 1 && f->kind == FRAME_USER && f->source == 0);
	f = NEXT(RECORD_FRAME, record_frame);
	check(f->id == 1 && f->address == 0x950 && f->how == 0 && f->is_return == 0);
	const struct record_stack *k = NEXT(RECORD_STACK, record_stack);
	check(k->id == 0 && k->parent == CAPTURE_NONE && k->frame == 0 && !k->pad);
	k = NEXT(RECORD_STACK, record_stack);
	check(k->id == 1 && k->parent == 0 && k->frame == 1);
	const struct record_sample *s = NEXT(RECORD_SAMPLE, record_sample);
	check(s->time_ns == 103 && s->weight == 5000 && s->pid == 7 && s->tid == 8);
	check(s->stack == 1 && s->cpu == 3 && s->end == 0 && s->used_bytes == 640);
	check(s->python == 5);
	const struct record_loss *l = NEXT(RECORD_LOSS, record_loss);
	check(l->time_ns == 104 && l->count == 9 && l->kind == LOSS_THROTTLE && !l->pad);
	const struct record_exit *x = NEXT(RECORD_EXIT, record_exit);
	check(x->time_ns == 105 && x->pid == 7 && x->tid == 8);
}

TEST(round_trip)
{
	struct bytes b = small_recording(true);
	const struct record_header *h;
	struct capture_reader *r;

	check(!capture_reader_open_memory(b.data, b.len, &r, NULL));
	check_u64(capture_reader_header(r)->version, CAPTURE_VERSION);
	check(capture_reader_header(r)->start_monotonic_ns);
	check_things(r);
	check_stacks(r);
	next_string(r, 5, "inlined");
	next_string(r, 6, "a.h");
	next_string(r, 7, "main");
	const struct record_symbol *y = NEXT(RECORD_SYMBOL, record_symbol);
	const struct record_symbol_level *level = (const void *)(y + 1);
	check(y->frame == 0 && y->level_count == 2 && y->reason == 1 && !y->pad);
	check(level[0].name == 5 && level[0].file == 6 && level[0].line == 5 && level[0].column == 3);
	check(level[1].name == 7 && level[1].file == CAPTURE_NONE && !level[1].line);
	y = NEXT(RECORD_SYMBOL, record_symbol);
	check(y->frame == 1 && y->level_count == 0 && y->reason == 2);
	const struct record_cost *c = NEXT(RECORD_COST, record_cost);
	check(c->sampler_cpu_ns == 1 && c->symbol_cpu_ns == 2 && c->wakeups == 3);
	check_u64(c->ring_bytes, 4);
	const struct record_end *e = NEXT(RECORD_END, record_end);
	check(e->reason == END_DURATION && e->time_ns == ENDED_NS && !e->pad);
	check(capture_reader_next(r, &h, NULL) == 0);
	check(!damaged(capture_reader_damage(r)));
	check_u64(capture_reader_bytes(r), b.len);
	capture_reader_free(r);
	free(b.data);
}

TEST(same_calls_same_bytes)
{
	struct bytes a = small_recording(false), b = small_recording(false);

	check_u64(a.len, b.len);
	check(a.len > 64 && !memcmp(a.data + 64, b.data + 64, a.len - 64));
	free(a.data);
	free(b.data);
}

TEST(interning)
{
	int fd;
	struct capture_writer *w = recording_start(&fd);
	struct record_module m = {.path = capture_string(w, "a")};
	struct record_frame f = {.address = 1, .module = CAPTURE_NONE};

	check_u64(capture_string(w, "a"), 0);
	check_u64(capture_string_bytes(w, "a\0b", 3), 1);
	check_u64(capture_string(w, NULL), CAPTURE_NONE);
	check_u64(capture_module(w, &m), 0);
	m.pad[3] = 9;
	check_u64(capture_module(w, &m), 0);
	m.inode = 1;
	check_u64(capture_module(w, &m), 1);
	for (uint32_t i = 0; i < 1000; i++) {
		f.address = i;
		check_u64(capture_frame(w, &f), i);
		check_u64(capture_stack(w, i ? i - 1 : CAPTURE_NONE, i), i);
	}
	f.address = 500, f.pad[0] = 7;
	check_u64(capture_frame(w, &f), 500);
	f.how = 3;
	check_u64(capture_frame(w, &f), 1000);
	check_u64(capture_stack(w, 499, 500), 500);
	check_u64(capture_stack(w, 499, 501), 1000);
	check_u64(capture_frame_count(w), 1001);
	check_u64(capture_frame_get(w, 500).address, 500);
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));

	struct bytes b = recording_bytes(fd);
	struct seen seen = read_memory(b.data, b.len);

	check_u64(seen.by_type[RECORD_STRING], 2);
	check_u64(seen.by_type[RECORD_MODULE], 2);
	check_u64(seen.by_type[RECORD_FRAME], 1001);
	check_u64(seen.by_type[RECORD_STACK], 1001);
	free(b.data);
}

/* More stack nodes than the writer remembers: ids go on ascending, without a gap. */
TEST(stack_nodes_forgotten)
{
	int fd;
	struct capture_writer *w = recording_start(&fd);
	uint32_t id = 0;

	for (uint32_t i = 0; i < (2u << 20) + 10; i++)
		id = capture_stack(w, CAPTURE_NONE, i);
	check_u64(id, (2u << 20) + 9);
	check_u64(capture_stack(w, CAPTURE_NONE, (2u << 20) + 9), id);
	check_u64(capture_stack(w, CAPTURE_NONE, 5), id + 1);
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));

	struct bytes b = recording_bytes(fd);

	check_u64(read_memory(b.data, b.len).by_type[RECORD_STACK], (2u << 20) + 11);
	free(b.data);
}

TEST(long_things)
{
	int fd;
	struct capture_writer *w = recording_start(&fd);
	size_t len = CAPTURE_MAX_STRING_BYTES + 100;
	char *noise = malloc(len);
	struct record_symbol_level levels[CAPTURE_MAX_LEVELS + 4] = {{0}};
	uint64_t x = 1;

	for (size_t i = 0; i < len; i++) {
		x = hash_u64(x);
		noise[i] = (char)x;
	}
	levels[CAPTURE_MAX_LEVELS + 3].line = 77;
	check_u64(capture_string_bytes(w, noise, len), 0);
	check_u64(capture_string_bytes(w, noise, len - 1), 0); /* equal after the cut */
	capture_symbol(w, 0, 0, levels, CAPTURE_MAX_LEVELS + 4);
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));

	struct bytes b = recording_bytes(fd);
	struct capture_reader *r;
	const struct record_header *h;

	/* Noise does not compress: the block is stored plain, hence little more than the string. */
	check(b.len < CAPTURE_MAX_STRING_BYTES + 8192);
	check(!capture_reader_open_memory(b.data, b.len, &r, NULL));
	const struct record_string *s = NEXT(RECORD_STRING, record_string);
	check_u64(s->len, CAPTURE_MAX_STRING_BYTES);
	check(!memcmp(s + 1, noise, s->len));
	const struct record_symbol *y = NEXT(RECORD_SYMBOL, record_symbol);
	const struct record_symbol_level *level = (const void *)(y + 1);
	check_u64(y->level_count, CAPTURE_MAX_LEVELS);
	check_u64(level[CAPTURE_MAX_LEVELS - 1].line, 77);
	capture_reader_free(r);
	free(noise);
	free(b.data);
}

/* ---- damage ---- */

TEST(cut_anywhere)
{
	struct bytes b = small_recording(true);
	struct seen whole = read_memory(b.data, b.len);

	for (size_t len = 0; len < b.len; len++) {
		uint8_t *exact = malloc(len + 1); /* so that ASan sees a read past the cut */
		memcpy(exact, b.data, len);
		exact = realloc(exact, len ? len : 1);
		struct seen seen = read_memory(exact, len);

		if (len < 64) {
			check(seen.rc == -EINVAL);
		} else {
			check(!seen.rc && seen.damage.no_end && seen.records < whole.records);
			check(seen.damage.truncated == (len > 64));
			check_u64(seen.damage.skipped_bytes, len - 64);
		}
		free(exact);
	}
	free(b.data);
}

/* Cut at each offset of three blocks: the whole ones before the cut are read. */
TEST(whole_blocks_survive)
{
	struct buf b = {0};
	struct record_cost c = {.wakeups = 1};
	size_t ends[4];

	raw_header(&b);
	ends[0] = b.len;
	for (uint64_t i = 0; i < 3; i++) {
		struct buf payload = {0};
		raw_record(&payload, RECORD_COST, &c, sizeof(c));
		raw_block(&b, i, payload.data, payload.len);
		ends[i + 1] = b.len;
		buf_release(&payload);
	}
	for (size_t len = ends[0]; len <= b.len; len++) {
		struct seen seen = read_memory(b.data, len);
		uint64_t whole = 0;
		while (whole < 3 && ends[whole + 1] <= len)
			whole++;

		check_u64(seen.records, whole);
		check(seen.damage.truncated == (len != ends[whole]));
		check_u64(seen.damage.skipped_bytes, len - ends[whole]);
	}
	buf_release(&b);
}

TEST(every_bit_counts)
{
	struct bytes b = small_recording(true);

	for (size_t bit = 0; bit < b.len * 8; bit++) {
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		struct seen seen = read_memory(b.data, b.len);
		check(seen.rc == -EINVAL || (!seen.rc && damaged(&seen.damage)));
		b.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	check(!damaged(&(struct capture_damage){0}));
	free(b.data);
}

static void cost_block(struct buf *b, uint64_t sequence)
{
	struct record_cost c = {.wakeups = sequence};
	struct buf payload = {0};

	raw_record(&payload, RECORD_COST, &c, sizeof(c));
	raw_block(b, sequence, payload.data, payload.len);
	buf_release(&payload);
}

TEST(search_after_damage)
{
	struct buf b = {0};

	/* A block that claims to be longer than the file, junk with half a magic, a good one. */
	raw_header(&b);
	cost_block(&b, 0);
	size_t second = b.len;
	cost_block(&b, 1);
	((struct capture_block_header *)(b.data + second))->stored_bytes = 1u << 20;
	buf_add(&b, "SSBLSBL", 7);
	cost_block(&b, 2);
	struct seen seen = read_buf(&b);
	check_u64(seen.records, 2);
	check_u64(seen.damage.missing_blocks, 1);
	check_u64(seen.damage.skipped_bytes, 32 + 40 + 7);
	check(!seen.damage.truncated);
}

TEST(bad_blocks_counted)
{
	struct buf b = {0}, payload = {0};
	struct record_cost c = {0};

	raw_record(&payload, RECORD_COST, &c, sizeof(c));
	raw_header(&b);
	cost_block(&b, 0);
	cost_block(&b, 0);                                       /* twice */
	raw_block_codec(&b, 1, payload.data, payload.len, 9, 40); /* of a later version */
	raw_block_codec(&b, 2, payload.data, payload.len, CAPTURE_ZSTD, 40);
	raw_block_codec(&b, 3, payload.data, payload.len, CAPTURE_PLAIN, 48);
	cost_block(&b, 4);
	struct seen seen = read_buf(&b);
	check_u64(seen.records, 2);
	check_u64(seen.damage.bad_blocks, 4);
	check_u64(seen.damage.missing_blocks, 3);
	check_u64(seen.damage.skipped_bytes, 4 * (32 + 40));
	buf_release(&payload);
}

TEST(bad_records_counted)
{
	struct buf b = {0}, payload = {0};
	struct record_string s = {.len = 9};
	struct record_symbol y = {.level_count = 1};
	struct record_module m = {.build_id_bytes = 65};
	struct record_cost c = {0};

	raw_record(&payload, RECORD_COST, &c, sizeof(c) - 8); /* too short */
	raw_record(&payload, RECORD_STRING, &s, sizeof(s));   /* tails that are not there */
	raw_record(&payload, RECORD_SYMBOL, &y, sizeof(y));
	raw_record(&payload, RECORD_MODULE, &m, sizeof(m));
	raw_record(&payload, RECORD_COST, &c, sizeof(c));
	raw_header(&b);
	raw_block(&b, 0, payload.data, payload.len);
	buf_clear(&payload);
	raw_record(&payload, RECORD_COST, &c, sizeof(c));
	raw_record(&payload, RECORD_COST, &c, sizeof(c));
	((struct record_cost *)(payload.data + 40))->header.bytes = 48; /* over the end */
	raw_block(&b, 1, payload.data, payload.len);
	((struct record_cost *)(payload.data + 40))->header.bytes = 4;
	raw_block(&b, 2, payload.data, payload.len);
	((struct record_cost *)(payload.data + 40))->header.bytes = 12;
	raw_block(&b, 3, payload.data, payload.len);
	struct seen seen = read_buf(&b);
	check_u64(seen.records, 4);
	check_u64(seen.damage.bad_records, 7);
	check_u64(seen.damage.bad_blocks, 0);
	buf_release(&payload);
}

/* What a later version may do: new types, longer records, a longer file header. */
TEST(room_to_grow)
{
	struct buf b = {0}, payload = {0};
	struct {
		struct record_cost c;
		uint64_t new_field;
	} grown = {.c = {.wakeups = 5}, .new_field = 6};
	struct record_header unknown = {0};
	struct record_end end = {.time_ns = 5};

	raw_record(&payload, 999, &unknown, sizeof(unknown));
	raw_record(&payload, RECORD_COST, &grown, sizeof(grown));
	raw_record(&payload, RECORD_END, &end, sizeof(end));
	raw_header(&b);
	struct capture_file_header *h = (void *)b.data;
	h->header_bytes = 80;
	h->checksum = hash_bytes(h, 56);
	buf_add(&b, "16 bytes of more", 16);
	raw_block(&b, 0, payload.data, payload.len);
	buf_release(&payload);
	struct seen seen = read_buf(&b);
	check_u64(seen.records, 3);
	check_u64(seen.by_type[RECORD_COST], 1);
	check_u64(seen.damage.unknown_records, 1);
	check(!seen.damage.bad_records && !seen.damage.skipped_bytes && !seen.damage.no_end);
}

/* A megabyte of block headers that all claim the rest of the file has to end soon. */
TEST(search_is_bounded)
{
	size_t count = 1 << 15;
	struct capture_file_header *file = calloc(count + 2, 32);
	struct capture_block_header *h = (void *)(file + 1);
	struct buf start = {0};

	raw_header(&start);
	memcpy(file, start.data, 64);
	for (size_t i = 0; i < count; i++)
		h[i] = (struct capture_block_header){
			.magic = CAPTURE_BLOCK_MAGIC,
			.stored_bytes = (uint32_t)((count - i - 1) * 32),
		};
	struct seen seen = read_memory(file, (count + 2) * 32);
	check(!seen.rc && !seen.records);
	check(seen.damage.bad_blocks && seen.damage.bad_blocks < 200);
	check_u64(seen.damage.skipped_bytes, count * 32);
	buf_release(&start);
	free(file);
}

/* ---- opening ---- */

TEST(not_recordings)
{
	struct buf b = {0};
	struct err e = {0};

	check(open_words(NULL, 0, &e) == -EINVAL && strstr(e.text, "empty"));
	check(open_words("PERFILE2aaaaaaaa", 16, &e) == -EINVAL);
	check(strstr(e.text, "not a recording") != NULL);
	check(open_words("S", 1, &e) == -EINVAL && strstr(e.text, "not a recording"));
	raw_header(&b);
	check(open_words(b.data, 63, &e) == -EINVAL && strstr(e.text, "cut off"));
	b.data[0] &= 0x7f;
	check(open_words(b.data, b.len, &e) == -EINVAL && strstr(e.text, "text mode"));
	buf_clear(&b);
	raw_header(&b);
	memmove(b.data + 6, b.data + 7, 57); /* \r\n became \n */
	check(open_words(b.data, b.len, &e) == -EINVAL && strstr(e.text, "text mode"));
	buf_clear(&b);
	raw_header(&b);
	struct capture_file_header *h = (void *)b.data;
	h->version = 3;
	h->checksum = hash_bytes(h, 56);
	check(open_words(b.data, b.len, &e) == -EINVAL && strstr(e.text, "version 3"));
	check(strstr(e.text, "up to version 1") != NULL);
	h->version = 1;
	h->header_bytes = 8;
	h->checksum = hash_bytes(h, 56);
	check(open_words(b.data, b.len, &e) == -EINVAL && strstr(e.text, "impossible"));
	buf_release(&b);

	struct capture_reader *r;
	check(capture_reader_open("/nonexistent/x", &r, &e) == -ENOENT);
	check(strstr(e.text, "/nonexistent/x") != NULL);
	check(capture_reader_open("/tmp", &r, &e) == -EISDIR && strstr(e.text, "/tmp"));
}

/* The blocks of a file with a damaged header are read all the same. */
TEST(bad_header_is_survived)
{
	struct buf b = {0};

	raw_header(&b);
	((struct capture_file_header *)b.data)->version = 1000;
	((struct capture_file_header *)b.data)->header_bytes = 1u << 30;
	cost_block(&b, 0);
	struct seen seen = read_buf(&b);
	check(!seen.rc && seen.damage.bad_header);
	check_u64(seen.records, 1);
}

/* Blocks larger than a pipe, in short reads. */
TEST(reads_from_pipes)
{
	struct bytes b = small_recording(true);
	struct capture_reader *r;
	const struct record_header *h;
	char path[32];
	int fds[2], count = 0;

	check(!pipe(fds));
	pid_t child = fork();
	if (!child) {
		for (size_t i = 0; i < b.len; i += 100)
			if (write(fds[1], b.data + i, b.len - i < 100 ? b.len - i : 100) < 0)
				_exit(1);
		_exit(0);
	}
	close(fds[1]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fds[0]);
	check(!capture_reader_open(path, &r, NULL));
	while (capture_reader_next(r, &h, NULL) > 0)
		count++;
	check_u64(count, read_memory(b.data, b.len).records);
	check_u64(capture_reader_bytes(r), b.len);
	check(!damaged(capture_reader_damage(r)));
	capture_reader_free(r);
	close(fds[0]);
	waitpid(child, NULL, 0);
	free(b.data);
}

/* ---- files ---- */

TEST(mode_and_replacing)
{
	struct capture_writer *w;
	struct stat st;
	char other[128];
	mode_t old = umask(0777);

	fresh_path();
	check(!capture_writer_create(test_path, &w, NULL));
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	check(!stat(test_path, &st) && (st.st_mode & 07777) == 0600);
	umask(0);
	snprintf(other, sizeof(other), "%s/hardlink", test_dir);
	check(!link(test_path, other) && !truncate(other, 5) && !chmod(other, 0644));
	check(!capture_writer_create(test_path, &w, NULL));
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	umask(old);
	check(!stat(test_path, &st) && (st.st_mode & 07777) == 0600 && st.st_size > 64);
	check(!stat(other, &st) && st.st_size == 5 && (st.st_mode & 07777) == 0644);
	unlink(other);
	drop_path();
}

TEST(refused_paths)
{
	struct capture_writer *w;
	struct stat st;
	struct err e = {0};
	char target[128];

	fresh_path();
	snprintf(target, sizeof(target), "%s/target", test_dir);
	close(open(target, O_CREAT | O_WRONLY, 0600));
	check(!truncate(target, 9) && !symlink(target, test_path));
	check(capture_writer_create(test_path, &w, &e) == -EINVAL);
	check(strstr(e.text, test_path) && strstr(e.text, "symbolic link"));
	check(!stat(target, &st) && st.st_size == 9);
	unlink(target);
	check(capture_writer_create(test_path, &w, &e) == -EINVAL); /* dangling */
	check(capture_writer_create(test_dir, &w, &e) == -EISDIR && strstr(e.text, "directory"));
	check(capture_writer_create("/nonexistent/x", &w, &e) == -ENOENT);
	check(strstr(e.text, "/nonexistent/x") != NULL);
	drop_path();
}

TEST(file_of_another_user)
{
	struct capture_writer *w;
	struct stat st;
	struct err e = {0};

	if (geteuid()) {
		skip("only root can make a file of another user");
		return;
	}
	fresh_path();
	close(open(test_path, O_CREAT | O_WRONLY, 0600));
	check(!chown(test_path, 12345, 12345));
	check(capture_writer_create(test_path, &w, &e) == -EPERM && strstr(e.text, "12345"));
	check(!stat(test_path, &st) && st.st_uid == 12345);
	drop_path();
}

TEST(fifo_and_descriptor)
{
	struct capture_writer *w;
	char buf[256], path[32];
	int fds[2];

	fresh_path();
	check(!mkfifo(test_path, 0600));
	int reader = open(test_path, O_RDONLY | O_NONBLOCK);
	check(!capture_writer_create(test_path, &w, NULL));
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	check(read(reader, buf, sizeof(buf)) > 64 && !memcmp(buf, CAPTURE_MAGIC, 8));
	close(reader);
	drop_path();

	check(!pipe(fds));
	snprintf(path, sizeof(path), "/dev/fd/%d", fds[1]);
	check(!capture_writer_create(path, &w, NULL));
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	check(read(fds[0], buf, sizeof(buf)) > 64 && !memcmp(buf, CAPTURE_MAGIC, 8));
	close(fds[0]);
	close(fds[1]);
}

/* A pipe that is not emptied in time, set to give up instead of waiting. */
TEST(slow_pipe)
{
	struct capture_writer *w;
	int fds[2];

	check(!pipe(fds));
	fcntl(fds[1], F_SETFL, O_NONBLOCK);
	fcntl(fds[1], F_SETPIPE_SZ, 4096);
	pid_t child = fork();
	if (!child) {
		char buf[1000];
		ssize_t n;
		uint64_t total = 0;
		close(fds[1]);
		while ((n = read(fds[0], buf, sizeof(buf))) > 0)
			total += (uint64_t)n;
		_exit(total > 50000 ? 0 : 1);
	}
	close(fds[0]);
	check(!capture_writer_to_fd(fds[1], "pipe", &w, NULL));
	for (uint32_t i = 0; i < 40000; i++) {
		struct record_frame f = {.address = hash_u64(i)};
		capture_frame(w, &f);
	}
	check(!capture_writer_finish(w, END_DURATION, ENDED_NS, NULL));
	int status;
	waitpid(child, &status, 0);
	check(WIFEXITED(status) && !WEXITSTATUS(status));
}

TEST(disk_full)
{
	struct capture_writer *w;
	struct err e = {0};

	if (access("/dev/full", W_OK)) {
		skip("no /dev/full");
		return;
	}
	/* The header is written at once. */
	check(capture_writer_create("/dev/full", &w, &e) == -ENOSPC);
	check(strstr(e.text, "/dev/full") && strstr(e.text, "disk is full"));
}

TEST(file_limit)
{
	struct rlimit before, small;
	struct capture_writer *w;
	struct err e = {0};
	uint32_t id = 0;

	fresh_path();
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	small = before;
	small.rlim_cur = 20000;
	setrlimit(RLIMIT_FSIZE, &small);
	check(!capture_writer_create(test_path, &w, NULL));
	for (uint32_t i = 0; i < 100000; i++) {
		struct record_frame f = {.address = hash_u64(i)};
		id = capture_frame(w, &f);
	}
	check_u64(id, 99999); /* ids are still handed out */
	check_u64(capture_writer_bytes(w), 64);
	check(capture_writer_error(w, &e) == -EFBIG && strstr(e.text, test_path));
	setrlimit(RLIMIT_FSIZE, &before);
	capture_writer_flush(w); /* must not come back to life */
	check_u64(capture_writer_bytes(w), 64);
	e = (struct err){0};
	check(capture_writer_finish(w, END_DURATION, ENDED_NS, &e) == -EFBIG && strstr(e.text, "ulimit"));
	drop_path();
}

TEST(wrong_record_size)
{
	int fd;
	struct capture_writer *w = recording_start(&fd);
	struct record_cost c = {0};

	capture_record(w, RECORD_COST, &c, sizeof(c) - 8);
	check(capture_writer_error(w, NULL) == -EINVAL);
	check(capture_writer_finish(w, END_DURATION, ENDED_NS, NULL) == -EINVAL);
	close(fd);
	check(!capture_writer_finish(NULL, END_DURATION, ENDED_NS, NULL));
	capture_writer_abandon(NULL);
	capture_reader_free(NULL);
}

/* ---- out of memory ---- */

static int write_in_memory(void)
{
	struct capture_writer *w;
	int rc = capture_writer_to_fd(memfd_create("x", 0), "memory", &w, NULL);

	if (rc)
		return rc;
	write_every_type(w);
	return capture_writer_finish(w, END_DURATION, ENDED_NS, NULL);
}

TEST(no_memory_to_write)
{
	uint64_t n = 0;

	for (;; n++) {
		alloc_fail_begin(n);
		int rc = write_in_memory();
		bool hit = alloc_fail_end();
		check(rc == (hit ? -ENOMEM : 0));
		if (!hit)
			break;
	}
	check(n > 8);
}

TEST(no_memory_to_read)
{
	struct bytes b = small_recording(true);
	uint64_t n = 0;

	for (;; n++) {
		alloc_fail_begin(n);
		struct seen seen = read_memory(b.data, b.len);
		bool hit = alloc_fail_end();
		check(seen.rc == (hit ? -ENOMEM : 0));
		if (!hit)
			break;
	}
	check(n >= 2);
	free(b.data);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(round_trip), T(same_calls_same_bytes), T(interning),
		T(stack_nodes_forgotten), T(long_things), T(cut_anywhere), T(whole_blocks_survive),
		T(every_bit_counts), T(search_after_damage), T(bad_blocks_counted),
		T(bad_records_counted), T(room_to_grow), T(search_is_bounded), T(not_recordings),
		T(bad_header_is_survived), T(reads_from_pipes), T(mode_and_replacing),
		T(refused_paths), T(file_of_another_user), T(fifo_and_descriptor), T(slow_pipe),
		T(disk_full), T(file_limit), T(wrong_record_size), T(no_memory_to_write),
		T(no_memory_to_read));
}
