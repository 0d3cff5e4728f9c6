/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Tasks of processes whose memory was kept: tests/fuzz/corpus/python/tasks-*, which make-python-seeds has made of a
 * program with known tasks. And of the same memory with lies in it.
 */
#include "test.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "python/greenlets.h"
#include "python/python_priv.h"
#include "python/tasks.h"

#define PAGE 4096ULL

/* check() that tells, too. */
static bool holds(bool what, int line)
{
	if (!what)
		printf("line %d: ", line);
	check(what);
	return what;
}
#define require(what) holds(what, __LINE__)

struct span {
	uint64_t addr;
	uint32_t len;
	const uint8_t *bytes;
};

struct kept {
	struct buf file;
	struct python_place place;
	VEC(struct span) spans; /* ascending */
	uint64_t lie_at, lie;      /* another word stands there */
};

static bool is_mapped(const struct kept *k, uint64_t page)
{
	vec_each(&k->spans, s)
		if (s->addr < page + PAGE && page < s->addr + s->len)
			return true;
	return false;
}

/* Pages that hold nothing that was kept cannot be read, and the rest of the others is zero. */
static bool read_kept(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct kept *k = (struct kept *)ctx;

	for (uint64_t page = addr & ~(PAGE - 1); page < addr + len; page += PAGE)
		if (!is_mapped(k, page))
			return false;
	memset(buf, 0, len);
	vec_each(&k->spans, s) {
		uint64_t from = s->addr > addr ? s->addr : addr;
		uint64_t to = s->addr + s->len < addr + len ? s->addr + s->len : addr + len;

		if (from < to)
			memcpy((uint8_t *)buf + (from - addr), s->bytes + (from - s->addr), to - from);
	}
	if (k->lie_at >= addr && k->lie_at + 8 <= addr + len)
		memcpy((uint8_t *)buf + (k->lie_at - addr), &k->lie, 8);
	return true;
}

static bool load(struct kept *ret, const char *name)
{
	char path[512];
	FILE *file;
	struct cursor c;

	*ret = (struct kept){0};
	snprintf(path, sizeof(path), "%s/tests/fuzz/corpus/python/%s", SOURCE_ROOT, name);
	file = fopen(path, "rb");
	if (!file)
		return false;
	while (buf_reserve(&ret->file, 1 << 16)) {
		size_t got = fread(ret->file.data + ret->file.len, 1, 1 << 16, file);

		ret->file.len += got;
		if (!got)
			break;
	}
	fclose(file);
	c = cursor_over(ret->file.data, ret->file.len);
	ret->place = (struct python_place){.runtime = cursor_u64(&c), .version_at = cursor_u64(&c)};
	cursor_skip(&c, 16);
	ret->place.minor = cursor_u32(&c);
	cursor_skip(&c, 4);
	while (cursor_left(&c)) {
		struct span s = {.addr = cursor_u64(&c), .len = cursor_u32(&c)};

		s.bytes = cursor_bytes(&c, s.len);
		if (!s.bytes || vec_push(&ret->spans, s))
			return false;
	}
	return !c.bad;
}

struct world {
	struct kept kept;
	struct python *p;
	struct python_threads threads;
	struct python_tasks tasks;
};

static void look(struct world *w)
{
	struct err err = {0};

	vec_release(&w->threads);
	python_tasks_release(&w->tasks);
	python_refresh(w->p);
	(void)python_threads(w->p, NULL, 0, &w->threads, NULL);
	check(!python_tasks(w->p, &w->threads, &w->tasks, &err));
}

static bool open_world(struct world *w, const char *name)
{
	struct err err = {0};

	*w = (struct world){0};
	if (!require(load(&w->kept, name)) ||
		!require(!python_new(&(struct python_memory){&w->kept, read_kept}, &w->kept.place, &w->p, &err)))
		return false;
	look(w);
	return true;
}

static void close_world(struct world *w)
{
	python_tasks_release(&w->tasks);
	vec_release(&w->threads);
	python_free(w->p);
	vec_release(&w->kept.spans);
	buf_release(&w->kept.file);
}

/* The task with that number. */
static const struct python_task *named(const struct world *w, const char *name)
{
	vec_each(&w->tasks.tasks, t)
		if (!strcmp(t->name, name))
			return t;
	return NULL;
}

static const char *bare(const struct world *w, const struct python_task *t, size_t frame)
{
	const char *name, *dot;

	if (frame >= t->frame_count)
		return "";
	name = w->tasks.frames.data[t->first_frame + frame].code->name;
	dot = strrchr(name, '.');
	return dot ? dot + 1 : name;
}

static bool awaits(const struct world *w, const char *from, const char *to)
{
	const struct python_task *a = named(w, from), *b = named(w, to);
	bool there = false, back = false;

	vec_each(&a->waits_for, i)
		there |= &w->tasks.tasks.data[*i] == b;
	vec_each(&b->awaited_by, i)
		back |= &w->tasks.tasks.data[*i] == a;
	check(there == back);
	return there;
}

static const char *const images[] = {"tasks-3.8", "tasks-3.11", "tasks-3.13t", "tasks-3.14"};

static void check_tree(const struct world *w)
{
	const struct python_task *main = named(w, "Task-1"), *nested = named(w, "Task-2");
	const struct python_task *over = named(w, "Task-3"), *holder = named(w, "Task-4");
	const struct python_task *queue = named(w, "Task-6");

	if (!require(main && nested && over && holder && queue))
		return;
	check(main->state == PYTHON_TASK_RUNS && !strcmp(bare(w, main, main->frame_count - 1), "main"));
	check(nested->state == PYTHON_TASK_WAITS && nested->wait.kind == PYTHON_WAIT_FUTURE);
	check(nested->frame_count == 2 && !strcmp(bare(w, nested, 1), "leaf"));
	check(over->wait.kind == PYTHON_WAIT_SLEEP && over->wait.until_ns && over->frame_count == 3);
	check(!strcmp(bare(w, over, 0), "sleep") && !strcmp(bare(w, over, 1), "numbers") &&
		!strcmp(bare(w, over, 2), "over"));
	check(queue->wait.kind == PYTHON_WAIT_QUEUE && !strcmp(queue->wait.words, "asyncio.Queue.get(), empty"));
	check(w->tasks.loops.len == 1 && w->tasks.loops.data[0].thread == w->threads.data[0].address);
	check(!w->tasks.torn && !w->tasks.lost && !w->tasks.incomplete && w->tasks.asyncio);
}

static void check_lock(const struct world *w)
{
	const struct python_task *holder = named(w, "Task-4"), *wants = named(w, "Task-5");
	const struct python_hold *hold;
	size_t count;

	if (!require(holder && wants && wants->wait.kind == PYTHON_WAIT_LOCK))
		return;
	hold = python_tasks_holds(&w->tasks, wants->wait.object, &count);
	if (require(count == 1 && hold && &w->tasks.tasks.data[hold->task] == holder))
		check(hold->frame == holder->first_frame);
	check(!python_tasks_holds(&w->tasks, wants->wait.object + 8, &count) && !count);
	check(w->tasks.holds.len == 1);
}

/* The last one awaits a gather() of the first two. */
static void check_gather(const struct world *w)
{
	unsigned gatherers = 0;

	vec_each(&w->tasks.tasks, t) {
		if (strncmp(t->wait.words, "asyncio.gather()", 16) != 0)
			continue;
		gatherers++;
		check(awaits(w, t->name, "Task-2") && awaits(w, t->name, "Task-3") && t->waits_for.len == 2);
	}
	check_u64(gatherers, 1);
}

TEST(tasks_of_every_layout)
{
	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		struct world w;

		if (!open_world(&w, images[i]))
			return;
		check_tree(&w);
		check_lock(&w);
		check_gather(&w);
		close_world(&w);
	}
}

/* A task whose coroutine was freed is there, with what is known of it. */
TEST(a_coroutine_that_is_none)
{
	for (size_t i = 0; i < sizeof(images) / sizeof(images[0]); i++) {
		struct world w;
		uint64_t coroutine;

		if (!open_world(&w, images[i]))
			return;
		coroutine = named(&w, "Task-2")->coroutine;
		w.kept.lie_at = coroutine + w.p->layout.object.type;
		w.kept.lie = coroutine;
		look(&w);
		if (require(named(&w, "Task-2")))
			check(named(&w, "Task-2")->torn && w.tasks.torn && !named(&w, "Task-2")->frame_count);
		close_world(&w);
	}
}

/* A chain of awaits that leads back to where it was ends by its bound. */
TEST(a_circle_of_awaits_ends)
{
	struct world w;
	const struct python_task *t;

	if (!open_world(&w, "tasks-3.11"))
		return;
	t = named(&w, "Task-2");
	/* The inner frame awaits the outer coroutine: the top of its value stack is behind its only variable. */
	w.kept.lie_at = w.tasks.frames.data[t->first_frame].at + w.p->layout.frame.locals + 8;
	w.kept.lie = t->coroutine;
	look(&w);
	t = named(&w, "Task-2");
	if (require(t))
		check(t->torn == PYTHON_CUT && t->frame_count <= PYTHON_MOST_AWAITS + 1);
	close_world(&w);
}

/* _asyncio.Task of another size: nothing is guessed. */
TEST(a_task_of_another_size_is_refused)
{
	struct world w;
	struct err err = {0};

	if (!open_world(&w, "tasks-3.14"))
		return;
	w.kept.lie_at = named(&w, "Task-2")->type->address + w.p->layout.type.basic_bytes;
	w.kept.lie = 1000;
	python_refresh(w.p);
	python_tasks_release(&w.tasks);
	check(python_tasks(w.p, &w.threads, &w.tasks, &err) == -EOPNOTSUPP && strstr(err.text, "1000 bytes"));
	check(!w.tasks.tasks.len);
	close_world(&w);
}

/* The ring of 3.14 that leads elsewhere is no ring. */
TEST(a_ring_that_leads_elsewhere)
{
	struct world w;

	if (!open_world(&w, "tasks-3.14"))
		return;
	w.kept.lie_at = w.threads.data[0].address + w.p->layout.thread.tasks;
	w.kept.lie = w.threads.data[0].address + 8;
	look(&w);
	check(w.tasks.incomplete && !named(&w, "Task-2"));
	close_world(&w);
}

/* Objects that a frame refers to, of which one is a greenlet that is switched out. */
static void find_greenlet(struct world *w, struct python_greenlets *ret)
{
	static struct python_link links[64];
	struct python_chain chain = {.links = links, .limit = 64};
	struct python_frames frames = {0};
	uint64_t word;

	python_chain_read(w->p, w->threads.data[0].address, &chain);
	check(!python_frames(w->p, &chain, &frames));
	vec_each(&frames, f)
		for (uint64_t i = 0; i < 16 && !ret->greenlets.len; i++)
			if (python_read_u64(w->p, f->at + w->p->layout.frame.locals + i * 8, &word))
				check(!python_greenlet(w->p, &w->threads, word, ret));
	vec_release(&frames);
}

TEST(greenlets_of_three_releases)
{
	static const char *const names[] = {
		"greenlet-3.8-greenlet-before-2", "greenlet-3.11-greenlet-before-3", "greenlet-3.13-gevent"};
	static const char *const expected[] = {"compare", "inner"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		struct python_greenlets found = {0};
		struct world w;

		if (!open_world(&w, names[i]))
			return;
		check(!w.tasks.asyncio && !w.tasks.tasks.len);
		find_greenlet(&w, &found);
		if (require(found.greenlets.len == 1)) {
			const struct python_greenlet *g = &found.greenlets.data[0];

			check(g->frame_count == 2 && g->torn == PYTHON_WHOLE && !found.unknown);
			for (size_t k = 0; k < 2 && k < g->frame_count; k++)
				check(!strcmp(found.frames.data[g->first_frame + k].code->name, expected[k]));
			check(g->thread == w.threads.data[0].address);
		}
		python_greenlets_release(&found);
		close_world(&w);
	}
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(tasks_of_every_layout), T(a_coroutine_that_is_none), T(a_circle_of_awaits_ends),
		T(a_task_of_another_size_is_refused), T(a_ring_that_leads_elsewhere), T(greenlets_of_three_releases));
}
