/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording small enough to know by heart, for the tests of views and formats: ten samples of
 * 5 ms, in 100 ms.
 *
 *	server (pid 100)  6  _start; main; serve; parse<int; char> (inlined into serve)
 *	                  2  _start; main; serve; memcpy
 *	io     (tid 101)  1  clone; worker; ksys_read [kernel]
 *	                  1  (truncated) a guess without a name; serve
 */
#ifndef SONDE_TESTS_UNIT_SMALL_PROFILE_H
#define SONDE_TESTS_UNIT_SMALL_PROFILE_H

#include <string.h>

#include "base/clock.h"
#include "profile/profile.h"
#include "recording.h"

#define SMALL_START_NS 1000000000ull
#define SMALL_WEIGHT_NS 5000000ull

struct small {
	struct capture_writer *w;
	uint32_t server, libc, kernel;
	uint32_t start, main, parse, copy, clone, worker, read, hole, serve; /* frames */
	uint64_t now;
};

static inline uint32_t small_module(struct small *s, const char *path, uint32_t kind, uint8_t id)
{
	struct record_module m = {.path = capture_string(s->w, path), .kind = kind, .inode = id,
		.build_id_bytes = kind == MODULE_FILE ? 4 : 0};

	if (m.build_id_bytes)
		memset(m.build_id, id, 4);
	return capture_module(s->w, &m);
}

static inline void small_mapping(struct small *s, uint32_t module, uint64_t start)
{
	struct record_mapping m = {.time_ns = SMALL_START_NS, .start = start,
		.end = start + 0x10000, .bias = start, .pid = 100, .module = module};

	capture_record(s->w, RECORD_MAPPING, &m, sizeof(m));
}

static inline uint32_t small_frame(
	struct small *s, uint32_t module, uint64_t address, uint8_t how, bool is_return)
{
	struct record_frame f = {.address = address, .module = module, .how = how,
		.is_return = is_return, .kind = module == s->kernel ? FRAME_KERNEL : FRAME_USER};

	return capture_frame(s->w, &f);
}

static inline struct record_symbol_level small_level(
	struct small *s, const char *name, const char *file, uint32_t line)
{
	return (struct record_symbol_level){.name = capture_string(s->w, name),
		.file = file ? capture_string(s->w, file) : CAPTURE_NONE, .line = line};
}

static inline void small_name(struct small *s, uint32_t frame, const char *name, uint32_t line)
{
	struct record_symbol_level level = small_level(s, name, line ? "server.c" : NULL, line);

	capture_symbol(s->w, frame, SYMBOL_OK, &level, 1);
}

static inline void small_thread(struct small *s, uint32_t tid, const char *name)
{
	struct record_thread t = {.time_ns = SMALL_START_NS, .pid = 100, .tid = tid,
		.name = capture_string(s->w, name)};

	capture_record(s->w, RECORD_THREAD, &t, sizeof(t));
}

static inline void small_samples(
	struct small *s, unsigned count, uint32_t tid, uint32_t stack, uint8_t end)
{
	for (; count; count--) {
		struct record_sample r = {.time_ns = s->now += SMALL_WEIGHT_NS,
			.weight = SMALL_WEIGHT_NS, .pid = 100, .tid = tid, .stack = stack,
			.end = end, .used_bytes = 640};

		capture_record(s->w, RECORD_SAMPLE, &r, sizeof(r));
	}
}

static inline void small_frames(struct small *s)
{
	s->server = small_module(s, "/usr/bin/server", MODULE_FILE, 0xaa);
	s->libc = small_module(s, "/lib/libc.so.6", MODULE_FILE, 0xbb);
	s->kernel = small_module(s, "[kernel]", MODULE_KERNEL, 0);
	small_mapping(s, s->server, 0x400000);
	small_mapping(s, s->libc, 0x7f0000000000);
	s->start = small_frame(s, s->server, 0x1010, UNWIND_CFI, true);
	s->main = small_frame(s, s->server, 0x1120, UNWIND_CFI, true);
	s->parse = small_frame(s, s->server, 0x1230, UNWIND_SAMPLED, false);
	s->serve = small_frame(s, s->server, 0x1260, UNWIND_CFI, true);
	s->copy = small_frame(s, s->libc, 0x2000, UNWIND_SAMPLED, false);
	s->clone = small_frame(s, s->libc, 0x2100, UNWIND_CFI, true);
	s->worker = small_frame(s, s->server, 0x1340, UNWIND_CFI, true);
	s->read = small_frame(s, s->kernel, 0xffffffff81000000, UNWIND_SAMPLED, false);
	s->hole = small_frame(s, s->libc, 0x2fff, UNWIND_SCAN, true);
}

static inline void small_names(struct small *s)
{
	struct record_symbol_level chain[] = {small_level(s, "parse<int; char>", "parse.h", 7),
		small_level(s, "serve", "server.c", 30)};

	small_name(s, s->start, "_start", 0);
	small_name(s, s->main, "main", 12);
	capture_symbol(s->w, s->parse, SYMBOL_OK, chain, 2);
	small_name(s, s->serve, "serve", 31);
	small_name(s, s->copy, "memcpy", 0);
	small_name(s, s->clone, "clone", 0);
	small_name(s, s->worker, "worker", 50);
	small_name(s, s->read, "ksys_read", 0);
	capture_symbol(s->w, s->hole, SYMBOL_NO_SYMBOLS, NULL, 0);
}

static inline void small_facts(struct small *s)
{
	struct record_loss loss = {.time_ns = s->now, .kind = LOSS_RING, .count = 3};
	struct record_cost cost = {.sampler_cpu_ns = 1200000, .symbol_cpu_ns = 3400000,
		.wakeups = 5, .ring_bytes = 6000};

	capture_meta(s->w, "command", "server --port 80 <&\">");
	capture_meta(s->w, "event", "cpu-clock");
	capture_meta(s->w, "frequency_hz", "200");
	capture_meta(s->w, "stack_bytes", "8192");
	capture_record(s->w, RECORD_LOSS, &loss, sizeof(loss));
	capture_record(s->w, RECORD_COST, &cost, sizeof(cost));
}

static inline void small_write(struct small *s)
{
	uint32_t root, serve;

	s->now = SMALL_START_NS;
	small_frames(s);
	small_thread(s, 100, "server");
	small_thread(s, 101, "io");
	root = capture_stack(s->w, capture_stack(s->w, CAPTURE_NONE, s->start), s->main);
	small_samples(s, 6, 100, capture_stack(s->w, root, s->parse), UNWIND_ROOT);
	serve = capture_stack(s->w, root, s->serve);
	small_samples(s, 2, 100, capture_stack(s->w, serve, s->copy), UNWIND_ROOT);
	root = capture_stack(s->w, capture_stack(s->w, CAPTURE_NONE, s->clone), s->worker);
	small_samples(s, 1, 101, capture_stack(s->w, root, s->read), UNWIND_ROOT);
	root = capture_stack(s->w, CAPTURE_NONE, s->hole);
	small_samples(s, 1, 101, capture_stack(s->w, root, s->parse), UNWIND_TRUNCATED);
	small_names(s);
	small_facts(s);
}

static inline struct bytes small_recording(void)
{
	struct small s = {0};
	int fd;

	s.w = recording_start(&fd);
	small_write(&s);
	capture_writer_finish(s.w, END_TARGET_EXITED, clock_monotonic_ns(), NULL);
	return recording_bytes(fd);
}

/* Loaded back, with the times of day and sizes that differ from run to run set to known ones. NULL
 * when that failed. The caller frees it with profile_free(). */
static inline struct profile *small_profile(const struct profile_load_options *options)
{
	struct bytes bytes = small_recording();
	struct profile_load_options none = {0};
	struct profile *p = NULL;

	profile_load_memory(bytes.data, bytes.len, options ? options : &none, &p, NULL);
	free(bytes.data);
	if (p) {
		p->start_ns = SMALL_START_NS;
		p->end_ns = SMALL_START_NS + 100000000;
		p->start_realtime_ns = 1700000000000000000;
		p->file_bytes = 910;
	}
	return p;
}

#endif
