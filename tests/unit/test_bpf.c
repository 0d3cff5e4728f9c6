/* SPDX-License-Identifier: BSD-2-Clause */
/* The BPF sampler: its ring, its decoder, and what the verifier says about its program. */
#include "test.h"

#include <bpf/libbpf.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "sample/bpf/bpf_priv.h"

#include "bpf/snapshot.h"

#include <off_cpu.skel.h>
#include <python.skel.h>
#include <snapshot.skel.h>

/* ---- the ring ---- */

#define RING_BYTES 64u

struct ring_world {
	uint64_t consumer, producer;
	uint8_t data[2 * RING_BYTES]; /* the second half is the first one again */
	struct bpf_ring ring;
};

static void ring_init(struct ring_world *w)
{
	memset(w, 0, sizeof(*w));
	w->ring = (struct bpf_ring){
		.consumer = &w->consumer,
		.producer = &w->producer,
		.data = w->data,
		.data_bytes = RING_BYTES,
	};
}

/* As the kernel does: a header of length and flags, the record, padding to 8. */
static void ring_put(struct ring_world *w, uint32_t bytes, uint32_t flags, uint64_t value)
{
	uint64_t at = w->producer % RING_BYTES;
	uint32_t header[2] = {bytes | flags, 0};
	uint8_t record[16] = {0};

	memcpy(record, header, 8);
	memcpy(record + 8, &value, 8);
	for (size_t i = 0; i < sizeof(record); i++)
		w->data[(at + i) % RING_BYTES] = w->data[(at + i) % RING_BYTES + RING_BYTES] = record[i];
	w->producer += (8 + (uint64_t)bytes + 7) & ~7ull;
}

#define BUSY 0x80000000u
#define DISCARD 0x40000000u

static uint64_t ring_take(struct ring_world *w)
{
	size_t bytes = 0;
	const void *record = bpf_ring_peek(&w->ring, &bytes);
	uint64_t value = 0;

	if (!record)
		return 0;
	memcpy(&value, record, bytes < 8 ? bytes : 8);
	bpf_ring_pop(&w->ring);
	return value;
}

TEST(ring_in_order_and_around)
{
	struct ring_world w;

	ring_init(&w);
	check(!ring_take(&w));
	for (uint64_t i = 1; i < 100; i++) {
		ring_put(&w, 8, 0, 2 * i);
		ring_put(&w, 5, 0, 2 * i + 1);
		check_u64(ring_take(&w), 2 * i);
		check_u64(ring_take(&w), 2 * i + 1);
		check(!ring_take(&w));
		check_u64(w.consumer, w.producer);
	}
}

TEST(ring_waits_for_what_is_being_written)
{
	struct ring_world w;

	ring_init(&w);
	ring_put(&w, 8, DISCARD, 1);
	ring_put(&w, 8, BUSY, 2);
	ring_put(&w, 8, 0, 3);
	check(!ring_take(&w));
	check_u64(w.consumer, 16); /* what was discarded is passed */
	w.data[19] = 0;            /* committed */
	check_u64(ring_take(&w), 2);
	check_u64(ring_take(&w), 3);
}

TEST(ring_with_a_length_that_cannot_be)
{
	struct ring_world w;

	ring_init(&w);
	ring_put(&w, 8, 0x1000, 1);
	check(!ring_take(&w));
}

/* ---- the decoder ---- */

struct decoder_world {
	struct bpf_sampler *s;
	struct capture_writer *writer;
	struct thread_selection selection;
	struct off_cpu_event *event; /* valid, of a thread that is none of this machine */
};

#define NOBODY 0x40000001u

static void decoder_init(struct decoder_world *w)
{
	memset(w, 0, sizeof(*w));
	w->s = calloc(1, sizeof(*w->s));
	w->s->threads = calloc(OFF_CPU_THREADS, sizeof(*w->s->threads));
	w->s->kernel_names_refused = -1;
	check(!capture_writer_to_fd(dup(fileno(tmpfile())), "tmp", &w->writer, NULL));
	check(!session_new(w->writer, &w->selection, &w->s->session, NULL));
	w->event = calloc(1, sizeof(*w->event));
	w->event->head = (struct off_cpu_head){
		.kind = OFF_CPU_INTERVAL, .tid = NOBODY, .tgid = NOBODY, .seq = 7, .time_ns = 5000};
	w->event->start_ns = 1000;
	w->event->blocked_ns = 3000;
	w->event->queued_ns = 1000;
	w->event->state = STATE_FUTEX;
}

static struct session_stats decoder_end(struct decoder_world *w)
{
	struct session_stats stats;

	bpf_settle(w->s, UINT64_MAX);
	session_flush(w->s->session, 1);
	session_stats(w->s->session, &stats);
	session_free(w->s->session);
	capture_writer_abandon(w->writer);
	vec_release(&w->s->finished);
	free(w->s->threads);
	free(w->s);
	free(w->event);
	return stats;
}

#define HEAD_BYTES offsetof(struct off_cpu_event, bytes)

TEST(an_interval_without_a_stack)
{
	struct decoder_world w;
	struct session_stats stats;

	decoder_init(&w);
	bpf_decode(w.s, w.event, HEAD_BYTES);
	stats = decoder_end(&w);
	check_u64(stats.off_cpu, 1);
	check_u64(stats.off_cpu_ns, 4000);
	check_u64(stats.losses[LOSS_OFF_CPU_STACK], 1);
	check_u64(stats.losses[LOSS_MALFORMED], 0);
}

TEST(a_waker_belongs_to_its_interval_alone)
{
	struct decoder_world w;

	decoder_init(&w);
	w.event->head.kind = OFF_CPU_WAKER;
	w.event->waker_tid = w.event->waker_tgid = NOBODY + 1;
	bpf_decode(w.s, w.event, HEAD_BYTES);
	w.event->head.kind = OFF_CPU_INTERVAL;
	bpf_decode(w.s, w.event, HEAD_BYTES);
	w.event->head.seq += 2;
	bpf_decode(w.s, w.event, HEAD_BYTES);
	check_u64(w.s->finished.len, 2);
	check_u64(w.s->finished.data[0].waker, WAKER_THREAD);
	check_u64(w.s->finished.data[0].waker_tid, NOBODY + 1);
	check_u64(w.s->finished.data[1].waker, WAKER_UNKNOWN);
	check_u64(decoder_end(&w).off_cpu, 2);
}

TEST(intervals_in_the_order_of_their_ends)
{
	struct decoder_world w;

	decoder_init(&w);
	for (uint64_t end = 9000; end > 4000; end -= 1000) {
		w.event->head.time_ns = end;
		bpf_decode(w.s, w.event, HEAD_BYTES);
	}
	bpf_settle(w.s, 6000);
	check_u64(w.s->finished.len, 3);
	check_u64(w.s->finished.data[0].duration_ns, 6000);
	check_u64(decoder_end(&w).off_cpu, 5);
}

TEST(events_that_make_no_sense)
{
	struct decoder_world w;
	struct off_cpu_event good;
	uint64_t bad = 0;

	decoder_init(&w);
	good = *w.event;
	for (size_t bytes = 0; bytes < HEAD_BYTES; bytes += 8, bad++)
		bpf_decode(w.s, w.event, bytes);
	w.event->head.slot = OFF_CPU_THREADS;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;
	*w.event = good;
	w.event->kernel_count = OFF_CPU_KERNEL_FRAMES + 1;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;
	*w.event = good;
	w.event->stack_bytes = 1;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;
	*w.event = good;
	w.event->state = STATE_COUNT;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;
	w.event->state = STATE_ON_CPU;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;
	*w.event = good;
	w.event->start_ns = w.event->head.time_ns + 1;
	bpf_decode(w.s, w.event, HEAD_BYTES), bad++;

	struct session_stats stats = decoder_end(&w);

	check_u64(stats.losses[LOSS_MALFORMED], bad);
	check_u64(stats.off_cpu, 0);
}

/* ---- the program ---- */

/* Far below the million at which the verifier gives up: a new kernel may count otherwise. */
#define MOST_INSTRUCTIONS 50000ul

static int silent(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

#define MOST_PROGRAMS 6
#define LOG_BYTES (1 << 16)

/* Says how many instructions the verifier has looked at for each program of a skeleton. */
static void check_instructions(
	struct bpf_object *object, int (*load)(void *skeleton), void *skeleton, size_t programs)
{
	struct bpf_program *program;
	char *logs = calloc(MOST_PROGRAMS, LOG_BYTES), *log = logs;
	int rc;

	bpf_object__for_each_program(program, object) {
		bpf_program__set_log_level(program, 4); /* statistics alone */
		bpf_program__set_log_buf(program, log, LOG_BYTES);
		log += LOG_BYTES;
	}
	check_u64((uint64_t)(log - logs), programs * LOG_BYTES);
	rc = load(skeleton);
	if (rc == -EPERM) {
		skip("BPF is refused here");
		free(logs);
		return;
	}
	check(!rc);
	log = logs;
	bpf_object__for_each_program(program, object) {
		char *last = strstr(log, "processed ");

		printf("%-12s %.*s\n", bpf_program__name(program),
			last && !rc ? (int)strcspn(last, "(") : 2000, last && !rc ? last : log);
		check(rc || (last && strtoul(last + 10, NULL, 10) <= MOST_INSTRUCTIONS));
		log += LOG_BYTES;
	}
	free(logs);
}

static int load_off_cpu(void *skeleton)
{
	return off_cpu_bpf__load(skeleton);
}

static int load_snapshot(void *skeleton)
{
	return snapshot_bpf__load(skeleton);
}

static int load_python(void *skeleton)
{
	return python_bpf__load(skeleton);
}

TEST(the_verifier_takes_python)
{
	struct python_bpf *skeleton;

	libbpf_set_print(silent);
	skeleton = python_bpf__open();
	check(skeleton);
	if (skeleton)
		check_instructions(skeleton->obj, load_python, skeleton, 1);
	python_bpf__destroy(skeleton);
}

TEST(the_verifier_takes_off_cpu)
{
	struct off_cpu_bpf *skeleton;

	libbpf_set_print(silent);
	skeleton = off_cpu_bpf__open();
	check(skeleton);
	if (skeleton)
		check_instructions(skeleton->obj, load_off_cpu, skeleton, 6);
	off_cpu_bpf__destroy(skeleton);
}

TEST(the_verifier_takes_snapshot)
{
	struct snapshot_bpf *skeleton;

	libbpf_set_print(silent);
	skeleton = snapshot_bpf__open();
	check(skeleton);
	if (skeleton)
		check_instructions(skeleton->obj, load_snapshot, skeleton, 1);
	snapshot_bpf__destroy(skeleton);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(ring_in_order_and_around),
		T(ring_waits_for_what_is_being_written), T(ring_with_a_length_that_cannot_be),
		T(an_interval_without_a_stack), T(a_waker_belongs_to_its_interval_alone),
		T(intervals_in_the_order_of_their_ends), T(events_that_make_no_sense),
		T(the_verifier_takes_off_cpu), T(the_verifier_takes_python),
		T(the_verifier_takes_snapshot));
}
