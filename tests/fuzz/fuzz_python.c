/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Any bytes as the memory of a CPython process: all that src/python makes of it, in two looks of which the second
 * sees other bytes. The input is what make-python-seeds writes:
 *
 *	u64 _PyRuntime, u64 Py_Version, u64 data start, u64 data end, u32 minor, u32 bit 0: aarch64
 *	spans: u64 address, u32 length, bytes
 *
 * What is between spans on a page that has one is zero; pages without any cannot be read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "python/alive.h"
#include "python/census.h"
#include "python/greenlets.h"
#include "python/inside.h"
#include "python/layout.h"
#include "python/locks.h"
#include "python/object.h"
#include "python/python.h"
#include "python/tasks.h"
#include "tests/unit/python_everything.h"

#define PAGE 4096u
#define MOST_SPANS 8192
#define MOST_LINKS 300

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct span {
	uint64_t addr;
	uint32_t len;
	const uint8_t *bytes;
};

struct memory {
	struct span spans[MOST_SPANS]; /* by address */
	size_t count;
	uint8_t flip; /* put on every byte: the second look */
	unsigned long reads;
};

static int by_address(const void *a, const void *b)
{
	const struct span *x = (const struct span *)a, *y = (const struct span *)b;

	return (x->addr > y->addr) - (x->addr < y->addr);
}

/* The first span that ends behind `addr`, as far as they do not overlap. */
static size_t first_span(const struct memory *m, uint64_t addr)
{
	size_t low = 0, high = m->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (m->spans[middle].addr + m->spans[middle].len <= addr)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_mapped(const struct memory *m, uint64_t page)
{
	size_t i = first_span(m, page);

	return i < m->count && m->spans[i].addr < page + PAGE;
}

static bool read_span(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct memory *m = (struct memory *)ctx;
	uint8_t *to = (uint8_t *)buf;

	m->reads++;
	if (addr + len < addr || addr + len > 1ULL << 62)
		return false;
	for (uint64_t page = addr & ~(uint64_t)(PAGE - 1); page < addr + len; page += PAGE)
		if (!is_mapped(m, page))
			return false;
	memset(buf, 0, len);
	for (size_t i = first_span(m, addr); i < m->count && m->spans[i].addr < addr + len; i++) {
		const struct span *s = &m->spans[i];
		uint64_t from = s->addr > addr ? s->addr : addr;
		uint64_t to_end = s->addr + s->len < addr + len ? s->addr + s->len : addr + len;

		if (from < to_end)
			memcpy(to + (from - addr), s->bytes + (from - s->addr), to_end - from);
	}
	if (m->flip && len)
		to[addr % len] ^= m->flip;
	return true;
}

static void read_spans(struct cursor *c, struct memory *m)
{
	while (m->count < MOST_SPANS && cursor_left(c)) {
		struct span s = {.addr = cursor_u64(c), .len = cursor_u32(c)};

		s.bytes = cursor_bytes(c, s.len);
		if (c->bad)
			break;
		if (s.len && s.addr < 1ULL << 60)
			m->spans[m->count++] = s;
	}
	qsort(m->spans, m->count, sizeof(m->spans[0]), by_address);
}

/* What points into a list of frames points to some that are there. */
static void check_part(const struct python_frames *frames, size_t first, size_t count)
{
	if (first > frames->len || count > frames->len - first)
		abort();
}

static void check_tasks(const struct python_tasks *t)
{
	vec_each(&t->tasks, task)
	{
		check_part(&t->frames, task->first_frame, task->frame_count);
		if (!task->type || !task->name || !task->wait.words ||
			(task->loop != PYTHON_NO_LOOP && task->loop >= t->loops.len))
			abort();
		vec_each(&task->waits_for, other)
			if (*other >= t->tasks.len)
				abort();
		if (python_tasks_find(t, task->address) != task - t->tasks.data)
			abort();
	}
	vec_each(&t->holds, hold)
		if (hold->task >= t->tasks.len || hold->frame >= t->frames.len)
			abort();
}

static void look_at_tasks(struct python *p, const struct python_threads *threads)
{
	struct python_tasks tasks = {0};
	struct err err = {0};

	if (python_tasks(p, threads, &tasks, &err) && !*err.text)
		abort();
	check_tasks(&tasks);
	python_tasks_release(&tasks);
}

static void look_at_greenlet(struct python *p, uint64_t object)
{
	struct python_greenlets greenlets = {0};
	struct python_threads none = {0};

	if (python_greenlet(p, &none, object, &greenlets))
		abort();
	vec_each(&greenlets.greenlets, g)
		check_part(&greenlets.frames, g->first_frame, g->frame_count);
	python_greenlets_release(&greenlets);
}

static void show_object(struct python *p, uint64_t object, struct buf *text)
{
	python_show(p, object, 100, 2, text);
	look_at_greenlet(p, object);
}

static void show_frame(struct python *p, uint64_t at)
{
	struct buf text = {0};
	uint64_t word;

	for (uint64_t i = 0; i < 16; i++)
		if (python_read_u64(p, at + python_layout(p)->frame.locals + i * 8, &word))
			show_object(p, word & ~3ULL, &text);
	buf_release(&text);
}

struct slots {
	struct python *p;
	size_t count;
};

static bool look_at_slot(void *ctx, uint64_t object)
{
	struct slots *s = (struct slots *)ctx;
	struct python_frame frame;
	struct python_lock lock;

	(void)python_lock_look(s->p, object, &lock);
	(void)python_method_self(s->p, object);
	if (python_generator_frame(s->p, object, &frame) && !frame.code)
		abort();
	return ++s->count > 100;
}

/* What it is inside of, and which lock its thread would want that waits for the first word of its stack. */
static void look_inside(struct python *p, const struct python_frame *f)
{
	struct python_inside inside[PYTHON_MOST_INSIDE];
	size_t count = python_inside(p, f, inside, PYTHON_MOST_INSIDE);
	struct slots slots = {.p = p};
	struct python_lock lock;

	for (size_t i = 0; i < count; i++)
		if (!inside[i].object)
			abort();
	if (count > PYTHON_MOST_INSIDE || python_inside(p, f, inside, 0))
		abort();
	(void)python_slots_each(p, f, look_at_slot, &slots);
	if (python_lock_wanted(p, f->at, f, 1, &lock) && !lock.object)
		abort();
}

/* The same bytes as the tables that are in code objects. */
static void look_at_tables(const uint8_t *data, size_t size)
{
	struct python_handler h;
	uint32_t at;

	for (uint32_t offset = 0; offset < 300; offset += 2) {
		if (python_handler_find(data, size, offset, &h) && (offset < h.start || offset >= h.end))
			abort();
		if (python_setup_with_find(data, size, 1 + (offset & 2) / 2, offset, &at) && at >= size)
			abort();
	}
}

static void look_at_thread(struct python *p, const struct python_thread *t)
{
	static struct python_link links[MOST_LINKS];
	static uint64_t cframes[MOST_LINKS];
	struct python_chain chain = {
		.links = links, .limit = MOST_LINKS, .cframes = cframes, .cframe_limit = MOST_LINKS};
	struct python_frames frames = {0};
	struct python_gil gil;
	size_t sum = 0;

	(void)python_gil(p, t, &gil, NULL);
	python_chain_read(p, t->address, &chain);
	if (chain.count > MOST_LINKS || chain.cframe_count > MOST_LINKS)
		abort();
	if (!python_frames(p, &chain, &frames) && frames.len > chain.count)
		abort();
	vec_each(&frames, f)
	{
		if (!f->code)
			abort();
		sum += strlen(f->code->name) + strlen(f->code->file) + f->position.line;
		if (f < frames.data + 4)
			show_frame(p, f->at);
		if (f < frames.data + 16)
			look_inside(p, f);
	}
	if (sum == SIZE_MAX)
		abort();
	if (frames.len)
		everything_of_frames(p, frames.data, frames.len);
	vec_release(&frames);
}

/* Why the objects of some type are alive. */
static void ask_why(struct python *p, const struct python_census *census, size_t row)
{
	struct python_alive_options options = {.most_ways = 3};
	struct python_alive alive = {0};
	uint64_t instances = 0;

	if (row >= census->rows.len)
		return;
	options.type = census->rows.data[row].name;
	if (python_alive(p, &options, &alive, NULL))
		return;
	vec_each(&alive.ways, way)
	{
		instances += way->instances;
		vec_each(&way->steps, step)
			if (!step->reference || !step->type)
				abort();
	}
	/* Beside those that were asked for: held unseen, and held by an interpreter, without a chain. */
	if (alive.ways.len > options.most_ways + 2 || !alive.type || (!instances && alive.ways.len))
		abort();
	python_alive_release(&alive);
}

static void look(struct python *p)
{
	const uint32_t tids[] = {100, 101, 102};
	const struct python_census_options options = {.loose = true, .most_objects = 2000};
	struct python_threads threads = {0};
	struct python_census census = {0};

	(void)python_threads(p, tids, 3, &threads, NULL);
	for (size_t i = 0; i < threads.len && i < 8; i++)
		look_at_thread(p, &threads.data[i]);
	if (threads.len)
		(void)python_module(p, threads.data[0].interpreter, "threading");
	everything_of_threads(p, &threads);
	look_at_tasks(p, &threads);
	if (!python_census(p, &options, &census, NULL))
		for (size_t row = 0; row < 3; row++)
			ask_why(p, &census, row * census.rows.len / 3);
	python_census_release(&census);
	vec_release(&threads);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct memory m;
	struct cursor c = cursor_over(data, size);
	struct python_place place = {.runtime = cursor_u64(&c), .version_at = cursor_u64(&c),
		.data_start = cursor_u64(&c), .data_end = cursor_u64(&c), .minor = cursor_u32(&c)};
	struct python_memory memory = {.ctx = &m, .read = read_span};
	struct python *p = NULL;
	struct err err = {0};

	look_at_tables(data, size < 256 ? size : 256);
	m.count = 0;
	m.flip = 0;
	place.aarch64 = cursor_u32(&c) & 1;
	if (place.data_end - place.data_start > 1 << 20)
		place.data_end = place.data_start;
	read_spans(&c, &m);
	if (python_new(&memory, &place, &p, &err)) {
		if (!*err.text)
			abort();
		return 0;
	}
	look(p);
	m.flip = size ? data[size / 2] : 0;
	python_refresh(p);
	look(p);
	python_free(p);
	return 0;
}
