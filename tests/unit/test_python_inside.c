/* SPDX-License-Identifier: BSD-2-Clause */
/* Which `with` statements frames are inside of, which locks threads want, tasks in a circle: on memory that never was. */
#include "python/inside.h"
#include "python/locks.h"
#include "python_heap_image.h"
#include "test.h"
#include "wait/task_circle.h"

/* ---- exception tables ---- */

/* Numbers below 64 are a byte; bit 7 marks an entry's first. In units: from 4, 3 long, handler at 20, depth 2. */
#define ENTRY(start, count, target, depth, lasti) 0x80 | (start), (count), (target), (depth) << 1 | (lasti)

TEST(handlers_are_found)
{
	static const uint8_t table[] = {ENTRY(4, 3, 20, 2, 0), ENTRY(20, 2, 30, 4, 1), 0xc1, 0x02, 1, 50, 2};
	struct python_handler h = {0};

	check(!python_handler_find(table, sizeof(table), 7, &h));
	check(python_handler_find(table, sizeof(table), 8, &h));
	check_u64(h.start, 8);
	check_u64(h.end, 14);
	check_u64(h.target, 40);
	check_u64(h.depth, 2);
	check(python_handler_find(table, sizeof(table), 13, &h));
	check(!python_handler_find(table, sizeof(table), 14, &h));
	check(python_handler_find(table, sizeof(table), 42, &h));
	check_u64(h.depth, 4);
	/* 1 << 6 | 2 units */
	check(python_handler_find(table, sizeof(table), 132, &h));
	check_u64(h.target, 100);
	check_u64(h.depth, 1);
}

TEST(handlers_of_nonsense)
{
	static const uint8_t cut[] = {0x84, 3, 20}, endless[] = {0xc0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 1, 1, 1, 1};
	static const uint8_t large[] = {0xbf | 0x40, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f, 0x7f, 0x7f, 0x7f, 0x7f, 0x7f, 0x3f, 1, 1};
	struct python_handler h = {.depth = 77};

	check(!python_handler_find(cut, sizeof(cut), 8, &h));
	check(!python_handler_find(endless, sizeof(endless), 0, &h));
	check(!python_handler_find(large, sizeof(large), UINT32_MAX, &h));
	check(!python_handler_find(NULL, 0, 0, &h));
	check_u64(h.depth, 77);
}

TEST(setups_are_found)
{
	/* NOP; SETUP_FINALLY 2; SETUP_WITH 4 (to 10); EXTENDED_ARG 1, SETUP_ASYNC_WITH 2 (to 268 of 258 + 10) */
	static const uint8_t code[] = {9, 0, 122, 2, 143, 4, 144, 1, 154, 2, 9, 0, 143};
	uint32_t at = 99;

	check(python_setup_with_find(code, sizeof(code), 1, 10, &at));
	check_u64(at, 4);
	check(python_setup_with_find(code, sizeof(code), 1, 268, &at));
	check_u64(at, 8);
	check(python_setup_with_find(code, sizeof(code), 2, 14, &at));
	check_u64(at, 4);
	at = 99;
	check(!python_setup_with_find(code, sizeof(code), 1, 6, &at));
	check(!python_setup_with_find(NULL, 0, 1, 0, &at));
	check_u64(at, 99);
}

/* ---- frames ---- */

struct world {
	struct image *im;
	struct heap_image h;
	struct python *p;
	uint64_t lock_type, rlock_type, builtin_type, descriptor_type;
};

static void begin(size_t v, struct world *w)
{
	const struct python_layout *l;

	*w = (struct world){.im = image_new(versions[v].version, versions[v].free_threaded)};
	l = &w->im->layout;
	heap_init(&w->h, w->im, 0);
	w->lock_type = heap_type(&w->h, "_thread.lock", l->object.bytes + (w->im->minor >= 14 ? 8 : 24), 0);
	w->rlock_type = heap_type(&w->h, "_thread.RLock", l->object.bytes + 32, 0);
	w->builtin_type = heap_type(&w->h, "builtin_function_or_method", 64, 0);
	w->descriptor_type = heap_type(&w->h, "method_descriptor", 64, 0);
}

static void open_world(size_t v, struct world *w)
{
	struct err err = {0};
	int bad = image_open(w->im, versions[v].version, &w->p, &err);

	if (bad)
		printf("version %x: %s\n", versions[v].version, err.text);
	check(!bad);
}

static void end(struct world *w)
{
	python_free(w->p);
	image_free(w->im);
}

static uint64_t make_lock(struct world *w, uint64_t word, bool locked)
{
	uint64_t at = heap_object(&w->h, w->lock_type, 64);
	uint32_t field = w->im->layout.object.bytes;

	if (w->im->minor >= 14) {
		image_u8(w->im, at, field, locked);
	} else {
		image_u64(w->im, at, field, word);
		image_u8(w->im, at, field + 16, locked);
	}
	return at;
}

/* A bound C method; of 3.14 what is in the slot below the object. */
static uint64_t method_of(struct world *w, uint64_t self, const char *name)
{
	const struct python_layout *l = &w->im->layout;
	bool old = w->im->minor < 14;
	uint64_t at = heap_object(&w->h, old ? w->builtin_type : w->descriptor_type, 64);
	uint64_t definition = image_take(w->im, 32), text = image_take(w->im, 16);

	if (!old) {
		image_u64(w->im, at, l->descriptor.name, image_str(w->im, name));
		return at;
	}
	image_put(w->im, text, name, strlen(name) + 1);
	image_u64(w->im, definition, 0, text);
	image_u64(w->im, at, l->builtin.definition, definition);
	image_u64(w->im, at, l->builtin.self, self);
	return at;
}

/* Instructions [16, 60) are inside of a with, of which 40 is inside of a try of the same depth; 62 is its handler. */
static uint64_t make_code(struct world *w, unsigned depth)
{
	const struct python_layout *l = &w->im->layout;
	uint64_t at = image_code(w->im, "work", 10);
	uint8_t table[] = {ENTRY(8, 12, 31, depth, 0), ENTRY(20, 2, 35, depth, 0), ENTRY(22, 8, 31, depth, 0),
		ENTRY(31, 2, 40, depth + 2, 1), ENTRY(35, 2, 31, depth, 0)};
	uint8_t bytecode[100] = {0};

	image_u32(w->im, at, l->code.stack_slots, 8);
	image_u32(w->im, at, l->code.local_count, 2);
	if (w->im->minor >= 11) {
		image_u64(w->im, at, l->code.exceptions, image_bytes(w->im, table, sizeof(table)));
		return at;
	}
	/* SETUP_WITH at 14, to 62; SETUP_FINALLY at 38, to 70. */
	bytecode[14] = 143;
	bytecode[15] = (62 - 16) / (w->im->minor == 10 ? 2 : 1);
	bytecode[38] = 122;
	image_u64(w->im, at, l->code.code, image_bytes(w->im, bytecode, sizeof(bytecode)));
	return at;
}

struct block {
	uint32_t type, handler, level;
};

static void make_block(struct world *w, uint64_t frame, unsigned index, uint32_t handler, uint32_t level)
{
	struct block b = {122, handler / (w->im->minor == 10 ? 2 : 1), level};

	if (w->im->minor >= 11)
		return;
	image_put(w->im, frame + w->im->layout.frame.blocks + index * sizeof(b), &b, sizeof(b));
	image_u32(w->im, frame, w->im->layout.frame.block_count, index + 1);
}

/* A frame with two locals and these slots. */
static uint64_t make_frame(struct world *w, uint64_t code, int offset, const uint64_t *slots, unsigned count)
{
	const struct python_layout *l = &w->im->layout;
	uint64_t at = image_frame(w->im, code, offset, 0), stack = image_take(w->im, 256);

	if (w->im->minor <= 10)
		image_u64(w->im, at, l->frame.value_stack, stack);
	else
		stack = at + l->frame.locals + 2 * 8;
	for (unsigned i = 0; i < count; i++)
		image_set(w->im, stack + i * 8, slots[i] | (w->im->minor >= 14));
	image_enter(w->im, w->im->main_thread, at);
	return at;
}

static struct python_frames frames_of(struct world *w)
{
	struct python_link links[4];
	struct python_chain chain = {.links = links, .limit = 4};
	struct python_frames frames = {0};

	python_chain_read(w->p, w->im->main_thread, &chain);
	check(!python_frames(w->p, &chain, &frames));
	check_u64(frames.len, 1);
	return frames;
}

/* What the frame is inside of at `offset`, when its slots are an iterator, then the lock's __exit__, then another
 * lock's, which is stale. */
static size_t inside_at(size_t v, struct world *w, int offset, uint64_t *ret_lock, struct python_inside *ret)
{
	uint64_t slots[6], other;
	bool pairs;
	unsigned n = 0, depth;
	struct python_frames frames;
	size_t count = 0;
	uint64_t frame;

	begin(v, w);
	pairs = w->im->minor >= 14;
	depth = pairs ? 3 : 2;
	*ret_lock = make_lock(w, 0x1000, true);
	other = make_lock(w, 0x2000, true);
	slots[n++] = w->h.list;
	slots[n++] = method_of(w, *ret_lock, "__exit__");
	if (pairs)
		slots[n++] = *ret_lock;
	slots[n++] = method_of(w, other, "__exit__");
	if (pairs)
		slots[n++] = other;
	frame = make_frame(w, make_code(w, depth), offset, slots, n);
	if (offset >= 16 && offset < 60)
		make_block(w, frame, 0, 62, depth);
	if (offset >= 40 && offset < 44)
		make_block(w, frame, 1, 70, depth);
	open_world(v, w);
	frames = frames_of(w);
	if (frames.len)
		count = python_inside(w->p, frames.data, ret, PYTHON_MOST_INSIDE);
	vec_release(&frames);
	return count;
}

TEST(what_a_frame_is_inside_of)
{
	static const struct {
		int offset;
		size_t inside;
	} places[] = {{14, 0}, {16, 1}, {30, 1}, {40, 1}, {50, 1}, {62, 0}, {90, 0}};

	EACH_VERSION(v)
		for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
			struct python_inside inside[PYTHON_MOST_INSIDE] = {{0}};
			struct world w;
			uint64_t lock;
			size_t count = inside_at(v, &w, places[i].offset, &lock, inside);

			/* The handler's own cleanup keeps more than is there while the handler does not run. */
			if (w.im->minor >= 11 && places[i].offset == 62) {
				end(&w);
				continue;
			}
			check_u64(count, places[i].inside);
			if (count) {
				check_u64(inside[0].object, lock);
				/* Of the handler at 62, or the SETUP_WITH at 14. */
				check_u64(inside[0].line, w.im->minor >= 11 ? 13 : 10);
			}
			end(&w);
		}
}

TEST(other_methods_are_no_exits)
{
	EACH_VERSION(v)
	{
		struct python_inside inside[PYTHON_MOST_INSIDE];
		struct python_frames frames;
		struct world w;
		uint64_t slots[3], lock, frame;

		begin(v, &w);
		lock = make_lock(&w, 0x1000, true);
		slots[0] = method_of(&w, lock, "__exit_");
		slots[1] = w.im->minor >= 14 ? lock : method_of(&w, lock, "acquire");
		frame = make_frame(&w, make_code(&w, 2), 30, slots, 2);
		make_block(&w, frame, 0, 62, 1);
		make_block(&w, frame, 1, 62, 2);
		open_world(v, &w);
		frames = frames_of(&w);
		if (frames.len)
			check_u64(python_inside(w.p, frames.data, inside, PYTHON_MOST_INSIDE), 0);
		vec_release(&frames);
		end(&w);
	}
}

/* Levels, counts and tables that cannot be. */
TEST(frames_that_make_no_sense)
{
	EACH_VERSION(v)
	{
		const struct python_layout *l;
		struct python_inside inside[PYTHON_MOST_INSIDE];
		struct python_frames frames;
		struct world w;
		uint64_t code, frame;

		begin(v, &w);
		l = &w.im->layout;
		code = make_code(&w, 31);
		frame = make_frame(&w, code, 30, NULL, 0);
		make_block(&w, frame, 0, 62, UINT32_MAX);
		make_block(&w, frame, 1, 62, 1u << 30);
		make_block(&w, frame, 2, UINT32_MAX, 1);
		open_world(v, &w);
		frames = frames_of(&w);
		check_u64(python_inside(w.p, frames.data, inside, PYTHON_MOST_INSIDE), 0);
		image_u32(w.im, frame, l->frame.block_count, UINT32_MAX);
		image_u32(w.im, code, l->code.local_count, UINT32_MAX);
		image_u64(w.im, frame, l->frame.value_stack, 0x1234);
		python_refresh(w.p);
		check_u64(python_inside(w.p, frames.data, inside, PYTHON_MOST_INSIDE), 0);
		vec_release(&frames);
		end(&w);
	}
}

/* ---- locks ---- */

TEST(locks_and_what_their_waiters_wait_on)
{
	EACH_VERSION(v)
	{
		struct python_lock got = {0};
		struct world w;
		uint64_t lock, free_lock, rlock, field;
		bool mutex;

		begin(v, &w);
		field = w.im->layout.object.bytes;
		mutex = w.im->minor >= 14;
		lock = make_lock(&w, 0x1000, true);
		free_lock = make_lock(&w, 0x1000, false);
		rlock = heap_object(&w.h, w.rlock_type, 64);
		image_set(w.im, rlock + field, mutex ? 1 : 0x3000);
		image_set(w.im, rlock + field + 8, 0x7777);
		image_set(w.im, rlock + field + 16, 2);
		open_world(v, &w);
		check(python_lock_look(w.p, lock, &got));
		check_u64(got.kind, PYTHON_LOCK);
		check(got.locked);
		check_u64(got.word, mutex ? lock + field : 0x1000);
		check_u64(got.owner, 0);
		check(python_lock_look(w.p, free_lock, &got) && !got.locked);
		check(python_lock_look(w.p, rlock, &got));
		check_u64(got.kind, PYTHON_RLOCK);
		check_u64(got.owner, 0x7777);
		check_u64(got.depth, mutex ? 3 : 2);
		check(!python_lock_look(w.p, w.h.list, &got));
		check(!python_lock_look(w.p, 0x1234, &got));
		check(!python_lock_look(w.p, 0, &got));
		end(&w);
	}
}

/* The lock is in the slot of a method that is called, beside another one. */
TEST(the_lock_that_a_thread_wants)
{
	EACH_VERSION(v)
	{
		struct python_lock got = {0};
		struct python_frames frames;
		struct world w;
		uint64_t slots[2], lock, waiter;

		begin(v, &w);
		lock = make_lock(&w, 0x10001000, true);
		slots[0] = make_lock(&w, 0x10002000, true);
		slots[1] = w.im->minor >= 14 ? lock : method_of(&w, lock, "acquire");
		/* {void *; address; the semaphore that is waited on} */
		waiter = image_take(w.im, 64);
		image_set(w.im, waiter + 8, lock + w.im->layout.object.bytes);
		make_frame(&w, make_code(&w, 0), 30, slots, 2);
		open_world(v, &w);
		frames = frames_of(&w);
		check(python_lock_wanted(w.p, w.im->minor >= 14 ? waiter + 16 : 0x10001000, frames.data, 1, &got));
		check_u64(got.object, lock);
		check(!python_lock_wanted(w.p, 0x10003000, frames.data, 1, &got));
		check(!python_lock_wanted(w.p, 0, frames.data, 1, &got));
		vec_release(&frames);
		end(&w);
	}
}

/* ---- tasks ---- */

static struct python_tasks some_tasks(struct python_task *tasks, size_t count)
{
	struct python_tasks t = {0};

	t.tasks.data = tasks;
	t.tasks.len = count;
	for (size_t i = 0; i < count; i++) {
		tasks[i].address = (i + 1) * 64;
		tasks[i].state = PYTHON_TASK_WAITS;
	}
	return t;
}

TEST(tasks_in_a_circle)
{
	struct python_task tasks[4] = {0};
	uint32_t next[] = {1, 2, 3, 1};
	struct python_tasks t = some_tasks(tasks, 4);
	struct task_link links[4];

	for (size_t i = 0; i < 4; i++)
		tasks[i].waits_for = (struct python_task_numbers){&next[i], 1, 0};
	check_u64(task_circle(&t, links, 4), 3);
	check_u64(links[0].task, 1);
	check_u64(links[1].task, 2);
	check_u64(links[2].task, 3);
	check_u64(task_circle(&t, links, 1), 3);
	tasks[2].state = PYTHON_TASK_READY;
	check_u64(task_circle(&t, links, 4), 0);
	tasks[2].state = PYTHON_TASK_WAITS;
	next[3] = 77;
	check_u64(task_circle(&t, links, 4), 0);
}

TEST(tasks_that_hold_locks)
{
	struct python_task tasks[2] = {0};
	struct python_hold holds[] = {{0x1000, 1, 5}, {0x2000, 0, 6}};
	struct python_tasks t = some_tasks(tasks, 2);
	struct task_link links[4];

	t.holds.data = holds;
	t.holds.len = 2;
	tasks[0].wait = (struct python_task_wait){.kind = PYTHON_WAIT_LOCK, .object = 0x1000};
	tasks[1].wait = (struct python_task_wait){.kind = PYTHON_WAIT_LOCK, .object = 0x2000};
	check_u64(task_circle(&t, links, 4), 2);
	check_u64(links[0].lock, 0x1000);
	check_u64(links[0].frame, 5);
	check_u64(links[1].lock, 0x2000);
	/* It wants what it has. */
	holds[0].task = 0;
	check_u64(task_circle(&t, links, 4), 1);
	tasks[0].wait.kind = PYTHON_WAIT_SLEEP;
	tasks[1].wait.object = 0x3000;
	check_u64(task_circle(&t, links, 4), 0);
	t = (struct python_tasks){0};
	check_u64(task_circle(&t, links, 4), 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(handlers_are_found), T(handlers_of_nonsense), T(setups_are_found),
		T(what_a_frame_is_inside_of), T(other_methods_are_no_exits), T(frames_that_make_no_sense),
		T(locks_and_what_their_waiters_wait_on), T(the_lock_that_a_thread_wants), T(tasks_in_a_circle),
		T(tasks_that_hold_locks));
}
