/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A wall clock recording small enough to know by heart: 100 ms of a server.
 *
 *	server (pid 100)  50 ms computing (10 samples in main; serve; parse), 28 ms asleep, 2 ms in a
 *	                  system call without a stack, 18 ms waiting for a lock in 4 intervals: 3 of
 *	                  them ended by holder, 1 by a client; 2 ms in the run queue
 *	holder (tid 101)  20 ms computing (4 samples), 80 ms reading, not over at the end
 *	bio_a, bio_b, bio_c (tids 102-104)  100 ms waiting for work, all the time
 *	client (pid 200)  only woke the server
 *
 * Measured times are those above, but for holder, which has none.
 */
#ifndef SONDE_TESTS_UNIT_SMALL_WALL_H
#define SONDE_TESTS_UNIT_SMALL_WALL_H

#include "small_profile.h"

#define WALL_MS 1000000ull

struct wall {
	struct small s;
	uint32_t sleep, lock, futex, unlock, bio, post, schedule; /* frames */
	uint32_t holder_stack, client_stack;
};

static inline void wall_frames(struct wall *w)
{
	struct small *s = &w->s;

	small_frames(s);
	w->sleep = small_frame(s, s->libc, 0x3000, UNWIND_SAMPLED, false);
	w->lock = small_frame(s, s->libc, 0x3100, UNWIND_CFI, true);
	w->futex = small_frame(s, s->kernel, 0xffffffff81001000, UNWIND_SAMPLED, false);
	w->schedule = small_frame(s, s->kernel, 0xffffffff81002000, UNWIND_SAMPLED, false);
	w->unlock = small_frame(s, s->libc, 0x3200, UNWIND_CFI, true);
	w->bio = small_frame(s, s->server, 0x1500, UNWIND_CFI, true);
	w->post = small_frame(s, s->server, 0x1600, UNWIND_CFI, true);
}

static inline void wall_names(struct wall *w)
{
	struct small *s = &w->s;

	small_names(s);
	small_name(s, w->sleep, "clock_nanosleep", 0);
	small_name(s, w->lock, "pthread_mutex_lock", 0);
	small_name(s, w->futex, "do_futex", 0);
	small_name(s, w->schedule, "schedule", 0);
	small_name(s, w->unlock, "pthread_mutex_unlock", 0);
	small_name(s, w->bio, "bio_wait", 90);
	small_name(s, w->post, "post_request", 95);
}

static inline uint32_t wall_stack(struct wall *w, const uint32_t *frames, size_t count)
{
	uint32_t node = CAPTURE_NONE;

	for (size_t i = 0; i < count; i++)
		node = capture_stack(w->s.w, node, frames[i]);
	return node;
}
#define WALL_STACK(w, ...)                                                                         \
	wall_stack((w), (const uint32_t[]){__VA_ARGS__},                                           \
		sizeof((const uint32_t[]){__VA_ARGS__}) / sizeof(uint32_t))

/* An interval that starts now and is followed by what comes next. */
static inline struct record_off_cpu wall_interval(struct wall *w, uint32_t tid, uint8_t state,
	uint32_t stack, uint64_t blocked_ns, uint64_t queued_ns)
{
	struct record_off_cpu r = {.start_ns = w->s.now, .duration_ns = blocked_ns + queued_ns,
		.blocked_ns = blocked_ns, .queued_ns = queued_ns, .pid = 100, .tid = tid,
		.stack = stack, .syscall = -1, .syscall_name = CAPTURE_NONE,
		.waker_stack = CAPTURE_NONE, .state = state};

	w->s.now += r.duration_ns;
	return r;
}

static inline void wall_write(struct wall *w, struct record_off_cpu *r)
{
	capture_record(w->s.w, RECORD_OFF_CPU, r, sizeof(*r));
}

static inline void wall_times(struct wall *w, uint32_t tid, const uint64_t *ms)
{
	struct record_thread_times t = {.since_ns = SMALL_START_NS,
		.until_ns = SMALL_START_NS + 100 * WALL_MS, .pid = 100, .tid = tid};

	for (size_t i = 0; i < STATE_COUNT; i++)
		t.ns[i] = ms[i] * WALL_MS;
	capture_record(w->s.w, RECORD_THREAD_TIMES, &t, sizeof(t));
}
#define WALL_TIMES(w, tid, ...)                                                                    \
	wall_times((w), (tid), (const uint64_t[STATE_COUNT]){__VA_ARGS__})

static inline void wall_server(struct wall *w)
{
	struct small *s = &w->s;
	uint32_t lock = WALL_STACK(w, s->start, s->main, w->lock, w->futex, w->schedule);
	struct record_off_cpu r;

	small_samples(s, 6, 100, WALL_STACK(w, s->start, s->main, s->parse), UNWIND_ROOT);
	r = wall_interval(w, 100, STATE_SYSCALL,
		WALL_STACK(w, s->start, s->main, w->sleep), 28 * WALL_MS, WALL_MS / 2);
	r.syscall = 230;
	r.syscall_name = capture_string(w->s.w, "clock_nanosleep");
	r.waker = WAKER_INTERRUPT;
	r.waker_pid = r.waker_tid = 101;
	wall_write(w, &r);
	for (unsigned i = 0; i < 4; i++) {
		r = wall_interval(w, 100, STATE_FUTEX, lock, i ? 5 * WALL_MS : 3 * WALL_MS, 0);
		r.syscall = 202;
		r.syscall_name = capture_string(w->s.w, "futex");
		r.waker = WAKER_THREAD;
		r.waker_pid = i ? 100 : 200;
		r.waker_tid = i ? 101 : 200;
		r.waker_stack = i ? w->holder_stack : w->client_stack;
		wall_write(w, &r);
	}
	r = wall_interval(w, 100, STATE_SYSCALL, CAPTURE_NONE, 2 * WALL_MS, 0);
	r.syscall = 7;
	r.syscall_name = capture_string(w->s.w, "poll");
	r.end = UNWIND_NO_REGS;
	wall_write(w, &r);
	r = wall_interval(w, 100, STATE_RUN_QUEUE,
		WALL_STACK(w, s->start, s->main, s->parse), 0, 3 * WALL_MS / 2);
	wall_write(w, &r);
	small_samples(s, 4, 100, WALL_STACK(w, s->start, s->main, s->parse), UNWIND_ROOT);
	WALL_TIMES(w, 100, 50, 2, 0, 18, 30);
}

static inline void wall_others(struct wall *w)
{
	struct small *s = &w->s;
	struct record_off_cpu r;

	s->now = SMALL_START_NS;
	small_samples(s, 4, 101, WALL_STACK(w, s->clone, s->worker, s->copy), UNWIND_ROOT);
	r = wall_interval(w, 101, STATE_SYSCALL,
		WALL_STACK(w, s->clone, s->worker, s->read), 80 * WALL_MS, 0);
	r.syscall = 0;
	r.syscall_name = capture_string(w->s.w, "read");
	r.open = 2;
	wall_write(w, &r);
	for (uint32_t tid = 102; tid <= 104; tid++) {
		s->now = SMALL_START_NS;
		r = wall_interval(w, tid, STATE_FUTEX,
			WALL_STACK(w, s->clone, w->bio, w->futex), 100 * WALL_MS, 0);
		r.open = 3;
		wall_write(w, &r);
		WALL_TIMES(w, tid, 0, 0, 0, 100);
	}
}

static inline void wall_facts(struct wall *w)
{
	struct record_cost cost = {.sampler_cpu_ns = 1200000, .symbol_cpu_ns = 3400000};

	capture_meta(w->s.w, "command", "server --port 80");
	capture_meta(w->s.w, "arch", "x86_64");
	capture_meta(w->s.w, "event", "cpu-clock");
	capture_meta(w->s.w, "frequency_hz", "200");
	capture_meta(w->s.w, "mode", "wall");
	capture_meta(w->s.w, "min_block_ns", "0");
	capture_record(w->s.w, RECORD_COST, &cost, sizeof(cost));
}

/* With the times of day of the story, not of the test. */
static inline struct bytes wall_bytes(int fd)
{
	struct bytes b = recording_bytes(fd);
	struct capture_file_header *h = (void *)b.data;

	if (b.len < sizeof(*h))
		return b;
	h->start_monotonic_ns = SMALL_START_NS;
	h->start_realtime_ns = 1700000000000000000;
	h->checksum = hash_bytes(h, 56);
	return b;
}

static inline struct bytes wall_recording(void)
{
	struct wall w = {.s.now = SMALL_START_NS};
	struct small *s = &w.s;
	struct record_thread client = {.time_ns = SMALL_START_NS, .pid = 200, .tid = 200};
	int fd;

	s->w = recording_start(&fd);
	wall_frames(&w);
	small_thread(s, 100, "server");
	small_thread(s, 101, "holder");
	small_thread(s, 102, "bio_a");
	small_thread(s, 103, "bio_b");
	small_thread(s, 104, "bio_c");
	client.name = capture_string(s->w, "client");
	capture_record(s->w, RECORD_THREAD, &client, sizeof(client));
	w.holder_stack = WALL_STACK(&w, s->clone, s->worker, w.unlock, w.futex);
	w.client_stack = WALL_STACK(&w, s->start, w.post, w.unlock);
	wall_server(&w);
	wall_others(&w);
	wall_names(&w);
	wall_facts(&w);
	capture_writer_finish(s->w, END_DURATION, SMALL_START_NS + 100 * WALL_MS, NULL);
	return wall_bytes(fd);
}

static inline struct profile *wall_profile(const struct profile_load_options *options)
{
	struct bytes bytes = wall_recording();
	struct profile_load_options none = {0};
	struct profile *p = NULL;

	profile_load_memory(bytes.data, bytes.len, options ? options : &none, &p, NULL);
	free(bytes.data);
	if (p)
		p->file_bytes = 910;
	return p;
}

#endif
