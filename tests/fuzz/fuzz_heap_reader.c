/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Memory that a watched program shares, in which it writes anything at any time: bytes of the input are commands that write events
 * in order, or words anywhere, or have it read; what comes is added up and written to a recording that goes to /dev/null.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/cursor.h"
#include "capture/writer.h"
#include "heap/model.h"
#include "heap/reader.h"
#include "tests/unit/heap_writer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define RINGS 3u
#define CHUNKS 8u
#define MOST_EVENTS 20000u

static volatile uint64_t touched; /* keeps the compiler from leaving the reads out */

struct run {
	struct heap_readers *set;
	struct heap_model *model;
	struct capture_writer *w;
	uint32_t number;
	uint64_t last_ns;
};

static void want(bool it)
{
	if (!it)
		abort();
}

static void look_at_more(const struct heap_event_more *more)
{
	for (unsigned i = 0; i < 3; i++) {
		want(more->text[i][more->text_bytes[i]] == '\0');
		for (uint32_t k = 0; k < more->text_bytes[i]; k++)
			touched += (uint8_t)more->text[i][k];
	}
	for (uint64_t i = 0; more->raw && i < more->raw->stack_bytes; i++)
		touched += more->raw_stack[i];
	touched += more->cpu_ns + more->calls + more->value;
}

static void walk(const struct run *r, uint32_t node)
{
	struct heap_node at;

	while (heap_readers_node(r->set, r->number, node, &at)) {
		want(at.parent < node);
		touched += at.pc + at.detail;
		node = at.parent;
	}
}

static void take(void *ctx, const struct heap_event *events, size_t count)
{
	struct run *r = ctx;

	want(count >= 1 && count <= HEAP_BATCH);
	for (size_t i = 0; i < count; i++)
		heap_model_prefetch(r->model, &events[i]);
	for (size_t i = 0; i < count; i++) {
		const struct heap_event *e = &events[i];
		uint64_t gone;

		want(e->time_ns >= r->last_ns && e->process == r->number);
		want(e->node < SHARE_NODES || e->node == SHARE_STACK_UNSAMPLED);
		r->last_ns = e->time_ns;
		if (e->more)
			look_at_more(e->more);
		walk(r, e->node);
		gone = heap_model_take(r->model, e, e->node % 5);
		if (gone)
			heap_readers_unfilter(r->set, r->number, gone);
	}
}

/* A word anywhere that is looked at. */
static void write_word(struct shared *s, struct cursor *c)
{
	uint8_t where = cursor_u8(c);
	uint64_t at = cursor_u16(c), base;

	if (where % 8 == 0)
		base = at % 256;
	else if (where % 8 == 1)
		base = SHARE_RINGS_AT + at % (4 * sizeof(struct share_ring));
	else if (where % 8 == 2)
		base = SHARE_NODES_AT + at % (16 * sizeof(struct share_node));
	else
		base = SHARE_CHUNKS_AT + (where / 8 % CHUNKS) * (uint64_t)SHARE_CHUNK_BYTES +
			at % (where % 8 == 3 ? 8 : SHARE_CHUNK_BYTES - 8);
	uint64_t value = cursor_u64(c);

	memcpy(s->memory + base, &value, sizeof(value));
}

/* An event of whatever type, behind the others of a ring. */
static void write_event(struct writer *writers, struct cursor *c)
{
	uint8_t what = cursor_u8(c), count = cursor_u8(c);
	struct writer *w = &writers[what % RINGS];
	uint64_t words[64] = {cursor_u16(c), SHARE_WORD(cursor_u8(c) % 40, cursor_u16(c) % 64)};
	uint32_t n = 2;

	while (n < 2u + count % 62 && cursor_left(c))
		words[n++] = what & 0x80 ? cursor_u64(c) : cursor_u8(c);
	if (w->used + n * 8 <= SHARE_CHUNK_ROOM || (w->s->header->chunk_count < CHUNKS && !(uint32_t)w->s->header->free_chunks))
		writer_put(w, words, n);
}

static void play(struct run *r, struct shared *s, struct cursor *c)
{
	struct writer writers[RINGS];

	for (uint32_t i = 0; i < RINGS; i++)
		writers[i] = writer_claim(s, 10 + i);
	for (unsigned i = 0; cursor_left(c) && i < 2000; i++) {
		switch (cursor_u8(c) % 8) {
		case 0:
			write_word(s, c);
			break;
		case 1:
			heap_readers_drain(r->set, 1 + cursor_u8(c));
			break;
		case 2:
			heap_readers_thread_gone(r->set, r->number, cursor_u8(c));
			heap_readers_set_chunks(r->set, r->number, cursor_u8(c));
			break;
		case 3:
			heap_model_write(r->model, r->w, i, 0, cursor_u8(c) & 1);
			break;
		default:
			write_event(writers, c);
		}
	}
	heap_readers_drain(r->set, MOST_EVENTS);
}

static void start(struct run *r, struct shared *s, uint8_t first)
{
	static const struct heap_reader_ops ops = {.events = take};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	s->header->mode = 1 + (first & 1);
	s->header->clock = first >> 1 & 1;
	s->header->rate = 512;
	want(!heap_readers_new(&ops, r, &r->set, NULL));
	want(!heap_model_new(&r->model, NULL));
	want(!capture_writer_to_fd(null, "null", &r->w, NULL));
	want(!heap_readers_add(r->set, dup(s->fd), 1, &r->number, NULL));
	want(!heap_model_process(r->model, r->number, 1, first & 1 ? HEAP_SAMPLED : HEAP_EXACT, NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct cursor c = cursor_over(data, size);
	struct shared s = shared_new(SHARE_EXACT, SHARE_CLOCK_MONOTONIC);
	struct run r = {0};
	struct heap_losses losses;
	struct heap_totals totals;

	start(&r, &s, cursor_u8(&c));
	play(&r, &s, &c);
	heap_readers_losses(r.set, r.number, &losses);
	heap_model_totals(r.model, &totals);
	want(totals.total.live_bytes >= 0 && totals.total.live_bytes <= totals.total.allocated_bytes * (1 + 1e-9));
	heap_model_process_ended(r.model, r.w, r.number, 0);
	heap_model_write(r.model, r.w, 0, 0, true);
	heap_model_free(r.model);
	heap_readers_free(r.set);
	capture_writer_abandon(r.w);
	shared_free(&s);
	return 0;
}
