/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording of allocations small enough to know by heart: 60 seconds of a server, a moment a second.
 *
 *	server (pid 100)  remember   4 blocks of 4096 bytes a second, never freed (in server.c:70, by operator new)
 *	                  fill       256 blocks of 4096 bytes a second for 20 seconds, kept: 20 MiB (std::vector, cache.c:20)
 *	                  parse      1000 blocks of 64 bytes a second, each freed at once
 *	                  burst      one block of 32 MiB at 30 s, freed at 31 s: the peak
 *	                  grow       20 reallocs a second of 100 to 200 bytes, 12 of them moved; one block lives
 *	io (tid 101)      parse      10 blocks of 1000 bytes a second, freed by server
 *
 * Sampled: the same numbers with a variance, and intervals around them.
 */
#ifndef SONDE_TESTS_UNIT_SMALL_HEAP_H
#define SONDE_TESTS_UNIT_SMALL_HEAP_H

#include <math.h>

#include "profile/heap.h"
#include "small_profile.h"

#define HEAP_SECONDS 60u
#define HEAP_RATE 65536.0

struct heap_story {
	struct small s;
	bool sampled;
	double live[6], live_bytes[6];
};

enum heap_story_site {
	STORY_REMEMBER,
	STORY_FILL,
	STORY_PARSE,
	STORY_BURST,
	STORY_GROW,
	STORY_HAND,
	STORY_SITES,
};

static inline uint32_t story_stack(struct heap_story *h, const uint32_t *frames, size_t count)
{
	uint32_t node = CAPTURE_NONE;

	for (size_t i = 0; i < count; i++)
		node = capture_stack(h->s.w, node, frames[i]);
	return node;
}
#define STORY_STACK(h, ...)                                                                        \
	story_stack((h), (const uint32_t[]){__VA_ARGS__}, sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

static inline uint32_t story_frame(struct heap_story *h, uint64_t address, const char *name, const char *file, uint32_t line)
{
	uint32_t frame = small_frame(&h->s, h->s.server, address, UNWIND_CFI, true);
	struct record_symbol_level level = small_level(&h->s, name, file, line);

	capture_symbol(h->s.w, frame, SYMBOL_OK, &level, 1);
	return frame;
}

static inline void story_site(struct heap_story *h, uint32_t id, uint32_t tid, uint32_t stack)
{
	struct record_heap_site r = {.id = id, .pid = 100, .tid = tid, .stack = stack};

	capture_record(h->s.w, RECORD_HEAP_SITE, &r, sizeof(r));
}

static inline void story_sites(struct heap_story *h)
{
	struct small *s = &h->s;
	uint32_t remember = story_frame(h, 0x2000, "remember", "server.c", 70);
	uint32_t fill = story_frame(h, 0x2100, "fill", "cache.c", 20);
	uint32_t grow_vector = story_frame(h, 0x2200, "std::vector<int>::_M_realloc_insert(int*)", "vector.tcc", 440);
	uint32_t new = story_frame(h, 0x2300, "operator new(unsigned long)", NULL, 0);
	uint32_t parse = story_frame(h, 0x2400, "parse", "server.c", 90);
	uint32_t burst = story_frame(h, 0x2500, "burst", "server.c", 100);
	uint32_t grow = story_frame(h, 0x2600, "grow", "server.c", 110);
	uint32_t answer = story_frame(h, 0x2700, "answer", "server.c", 40);

	story_site(h, STORY_REMEMBER, 100, STORY_STACK(h, s->start, s->main, answer, remember, new));
	story_site(h, STORY_FILL, 100, STORY_STACK(h, s->start, s->main, fill, grow_vector, new));
	story_site(h, STORY_PARSE, 100, STORY_STACK(h, s->start, s->main, answer, parse));
	story_site(h, STORY_BURST, 100, STORY_STACK(h, s->start, s->main, burst));
	story_site(h, STORY_GROW, 100, STORY_STACK(h, s->start, s->main, grow));
	story_site(h, STORY_HAND, 101, STORY_STACK(h, s->clone, s->worker, parse));
}

/* Of blocks of one size; what is exact has none. */
static inline double story_variance(const struct heap_story *h, double count, double bytes)
{
	double size = count > 0 ? bytes / count : 0, p = 1 - exp(-size / HEAP_RATE);

	return h->sampled && size > 0 ? count * size * size * (1 - p) / p : 0;
}

/* The numbers after so many seconds. */
static inline struct record_heap_state story_state(const struct heap_story *h, uint32_t site, uint32_t t)
{
	static const double per_s[STORY_SITES] = {4, 256, 1000, 0, 20, 10}, size[STORY_SITES] = {4096, 4096, 64, 0, 200, 1000};
	struct record_heap_state r = {.site = site, .samples = t};
	double *n = r.number, count = per_s[site] * (site == STORY_FILL && t > 20 ? 20 : t);

	if (site == STORY_BURST)
		count = t >= 30;
	n[HEAP_ALLOCATED] = count;
	n[HEAP_ALLOCATED_BYTES] = site == STORY_BURST ? count * (32 << 20) : count * size[site];
	if (site == STORY_PARSE || site == STORY_HAND || (site == STORY_BURST && t > 30)) {
		n[HEAP_FREED] = n[HEAP_ALLOCATED];
		n[HEAP_FREED_BYTES] = n[HEAP_ALLOCATED_BYTES];
	}
	if (site == STORY_PARSE) {
		n[HEAP_TEMPORARY] = count;
		n[HEAP_TEMPORARY_BYTES] = count * 64;
		n[HEAP_LIFETIME_NS] = count * 500;
	}
	if (site == STORY_HAND) {
		n[HEAP_CROSS_FREED] = count;
		n[HEAP_CROSS_FREED_BYTES] = count * 1000;
	}
	if (site == STORY_GROW && t) {
		n[HEAP_FREED] = count - 1;
		n[HEAP_FREED_BYTES] = (count - 1) * 200;
		n[HEAP_REALLOCATED] = count - 1;
		n[HEAP_REALLOCATED_BYTES] = (count - 1) * 100;
		n[HEAP_MOVED] = t * 12;
	}
	if (t >= 30 && site <= STORY_BURST && site != STORY_PARSE) {
		static const double peak[] = {120, 5120, 0, 1};

		n[HEAP_PEAK] = peak[site];
		n[HEAP_PEAK_BYTES] = site == STORY_BURST ? 32 << 20 : peak[site] * 4096;
	}
	r.variance[HEAP_VAR_ALLOCATED_BYTES] = story_variance(h, count, n[HEAP_ALLOCATED_BYTES]);
	r.variance[HEAP_VAR_LIVE_BYTES] =
		story_variance(h, count - n[HEAP_FREED], n[HEAP_ALLOCATED_BYTES] - n[HEAP_FREED_BYTES]);
	return r;
}

static inline void story_moment(struct heap_story *h, uint32_t t)
{
	struct record_heap_total total = {.time_ns = SMALL_START_NS + t * NS_PER_S, .with_sites = 1,
		.rss_bytes = (40 << 20) + t * 16384};

	for (uint32_t site = 0; site < STORY_SITES; site++) {
		struct record_heap_state r = story_state(h, site, t);

		r.time_ns = total.time_ns;
		total.live += r.number[HEAP_ALLOCATED] - r.number[HEAP_FREED];
		total.live_bytes += r.number[HEAP_ALLOCATED_BYTES] - r.number[HEAP_FREED_BYTES];
		total.allocated += r.number[HEAP_ALLOCATED];
		total.allocated_bytes += r.number[HEAP_ALLOCATED_BYTES];
		total.temporary += r.number[HEAP_TEMPORARY];
		total.variance_live_bytes += r.variance[HEAP_VAR_LIVE_BYTES];
		total.variance_allocated_bytes += r.variance[HEAP_VAR_ALLOCATED_BYTES];
		/* What has not changed is not written again. */
		if (site == STORY_BURST ? t == 30 || t == 31 : site != STORY_FILL || t <= 20 || t == 30)
			capture_record(h->s.w, RECORD_HEAP_STATE, &r, sizeof(r));
	}
	total.peak_bytes = t < 30 ? total.live_bytes : 30 * 16384 + (20 << 20) + (32 << 20) + 200;
	total.peak_ns = SMALL_START_NS + (t < 30 ? t : 30) * NS_PER_S;
	capture_record(h->s.w, RECORD_HEAP_TOTAL, &total, sizeof(total));
}

static inline void story_shape(struct heap_story *h, uint32_t site, uint16_t kind, unsigned bucket, double count)
{
	struct record_heap_shape r = {.time_ns = SMALL_START_NS + HEAP_SECONDS * NS_PER_S, .site = site, .kind = kind};
	double counts[HEAP_BUCKETS] = {0};

	counts[bucket] = count;
	capture_heap_shape(h->s.w, &r, counts);
}

static inline void story_shapes(struct heap_story *h)
{
	story_shape(h, STORY_REMEMBER, HEAP_SIZES, 13, 240);
	story_shape(h, STORY_FILL, HEAP_SIZES, 13, 5120);
	story_shape(h, STORY_PARSE, HEAP_SIZES, 7, 60000);
	story_shape(h, STORY_PARSE, HEAP_LIFETIMES, 1, 60000);
	story_shape(h, STORY_BURST, HEAP_SIZES, 26, 1);
	story_shape(h, STORY_GROW, HEAP_SIZES, 8, 1200);
	story_shape(h, STORY_HAND, HEAP_SIZES, 10, 600);
	/* fill's are 40 to 60 s old, remember's any age; 2^25 microseconds are 33.6 s, 2^26 are 67.1 s */
	story_shape(h, STORY_FILL, HEAP_AGES, 26, 5120);
	story_shape(h, STORY_FILL, HEAP_LIVE_BYTES_BY_AGE, 26, 5120 * 4096);
	story_shape(h, STORY_REMEMBER, HEAP_AGES, 24, 240);
	story_shape(h, STORY_REMEMBER, HEAP_LIVE_BYTES_BY_AGE, 24, 240 * 4096);
	story_shape(h, STORY_FILL, HEAP_USABLE, 13, 5120 * 8);
}

static inline void story_rest(struct heap_story *h)
{
	uint64_t end = SMALL_START_NS + HEAP_SECONDS * NS_PER_S;
	struct record_heap_flow flow = {.time_ns = end, .site = STORY_HAND, .pid = 100, .tid = 100, .stack = CAPTURE_NONE,
		.count = 600, .bytes = 600000};
	struct record_heap_thread server = {.time_ns = end, .pid = 100, .tid = 100, .allocated = 66561,
		.allocated_bytes = 983040 + 20971520 + 3840000 + 33554432 + 240000, .freed = 61800, .freed_bytes = 38234232,
		.freed_unknown = 3};
	struct record_heap_thread io = {.time_ns = end, .pid = 100, .tid = 101, .allocated = 600, .allocated_bytes = 600000};
	struct record_loss loss = {.time_ns = end, .kind = LOSS_HEAP_EARLY, .count = 7};

	capture_record(h->s.w, RECORD_HEAP_FLOW, &flow, sizeof(flow));
	capture_record(h->s.w, RECORD_HEAP_THREAD, &server, sizeof(server));
	capture_record(h->s.w, RECORD_HEAP_THREAD, &io, sizeof(io));
	capture_record(h->s.w, RECORD_LOSS, &loss, sizeof(loss));
	capture_meta(h->s.w, "command", "server --port 80");
	small_names(&h->s);
}

/* `end`: how the recording ended; with END_TARGET_EXITED the process did. */
static inline struct bytes heap_recording(bool sampled, enum end_reason end)
{
	struct heap_story h = {.sampled = sampled};
	struct record_heap process = {.time_ns = SMALL_START_NS, .pid = 100, .how = HEAP_LAUNCHED,
		.precision = sampled ? HEAP_SAMPLED : HEAP_EXACT, .rate = sampled ? (uint64_t)HEAP_RATE : 0,
		.uncovered = CAPTURE_NONE};
	struct capture_file_header *header;
	struct bytes b;
	int fd;

	h.s.w = recording_start(&fd);
	small_frames(&h.s);
	small_thread(&h.s, 100, "server");
	small_thread(&h.s, 101, "io");
	process.allocator = capture_string(h.s.w, "/lib/libc.so.6");
	capture_record(h.s.w, RECORD_HEAP, &process, sizeof(process));
	story_sites(&h);
	for (uint32_t t = 0; t <= HEAP_SECONDS; t++)
		story_moment(&h, t);
	story_shapes(&h);
	story_rest(&h);
	capture_writer_finish(h.s.w, end, SMALL_START_NS + HEAP_SECONDS * NS_PER_S, NULL);
	b = recording_bytes(fd);
	header = (void *)b.data;
	if (b.len < sizeof(*header))
		return b;
	header->start_monotonic_ns = SMALL_START_NS;
	header->start_realtime_ns = 1700000000000000000;
	header->checksum = hash_bytes(header, 56);
	return b;
}

static inline struct profile *heap_profile_of(bool sampled, enum end_reason end, const struct profile_load_options *options)
{
	struct bytes bytes = heap_recording(sampled, end);
	struct profile_load_options none = {0};
	struct profile *p = NULL;

	profile_load_memory(bytes.data, bytes.len, options ? options : &none, &p, NULL);
	free(bytes.data);
	return p;
}

#endif
