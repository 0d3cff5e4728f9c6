/* SPDX-License-Identifier: BSD-2-Clause */
/* Recordings of a process 100 whose functions are letters, and the profiles they load as. */
#ifndef SONDE_TESTS_UNIT_LETTERS_H
#define SONDE_TESTS_UNIT_LETTERS_H

#include "base/clock.h"
#include "profile/profile.h"
#include "recording.h"

/* A recording being made; rec_frame(&r, 'a', how) is a frame in function "a". */
struct rec {
	struct capture_writer *w;
	int fd;
	uint32_t module;
	uint64_t now;
};

static inline struct rec rec_start(void)
{
	struct rec r = {.now = 1000};
	struct record_module m = {0};

	r.w = recording_start(&r.fd);
	m.path = capture_string(r.w, "/usr/lib/libfoo.so");
	r.module = capture_module(r.w, &m);
	return r;
}

static inline uint32_t rec_frame(struct rec *r, char name, uint8_t how)
{
	struct record_frame f = {
		.address = (uint64_t)(unsigned char)name << 8,
		.module = r->module,
		.how = how,
		.is_return = how != UNWIND_SAMPLED,
	};

	return capture_frame(r->w, &f);
}

/* The leaf node of a stack given as letters, outermost first; the last one is sampled. */
static inline uint32_t rec_stack(struct rec *r, const char *letters)
{
	uint32_t node = CAPTURE_NONE;

	for (; *letters; letters++)
		node = capture_stack(r->w, node,
			rec_frame(r, *letters, letters[1] ? UNWIND_CFI : UNWIND_SAMPLED));
	return node;
}

static inline void rec_sample(struct rec *r, uint32_t tid, uint32_t stack, uint8_t end)
{
	struct record_sample s = {
		.time_ns = r->now++,
		.weight = 10,
		.pid = 100,
		.tid = tid,
		.stack = stack,
		.end = end,
	};

	capture_record(r->w, RECORD_SAMPLE, &s, sizeof(s));
}

static inline void rec_thread(struct rec *r, uint32_t tid, const char *name)
{
	struct record_thread t = {.time_ns = r->now, .pid = 100, .tid = tid};

	t.name = capture_string(r->w, name);
	capture_record(r->w, RECORD_THREAD, &t, sizeof(t));
}

/* Names every frame by its letter; capital letters also have "inl" inlined into them. */
static inline void rec_names(struct rec *r)
{
	for (uint32_t i = 0; i < capture_frame_count(r->w); i++) {
		char name[2] = {(char)(capture_frame_get(r->w, i).address >> 8)};
		struct record_symbol_level levels[2] = {
			{capture_string(r->w, "inl"), capture_string(r->w, "inl.h"), 7, 0},
			{capture_string(r->w, name), CAPTURE_NONE, (uint32_t)i, 0},
		};
		bool capital = name[0] >= 'A' && name[0] <= 'Z';

		capture_symbol(r->w, i, SYMBOL_OK, levels + !capital, 1 + capital);
	}
}

static inline struct bytes rec_bytes(struct rec *r)
{
	capture_writer_finish(r->w, END_INTERRUPTED, clock_monotonic_ns(), NULL);
	return recording_bytes(r->fd);
}

static inline struct profile *load_bytes(struct bytes b, const struct profile_load_options *options)
{
	struct profile *p = NULL;
	struct err e = {0};

	if (profile_load_memory(b.data, b.len, options, &p, &e)) {
		printf("a profile that had to load did not: %s\n", e.text);
		abort();
	}
	return p;
}

static inline struct profile *rec_load(struct rec *r, const struct profile_load_options *options)
{
	struct bytes b = rec_bytes(r);
	struct profile *p = load_bytes(b, options);

	free(b.data);
	return p;
}

static inline uint32_t function_named(const struct profile *p, const char *name)
{
	for (uint32_t i = 0; i < p->functions.len; i++)
		if (!strcmp(p->functions.data[i].name, name))
			return i;
	return PROFILE_NONE;
}

#endif
