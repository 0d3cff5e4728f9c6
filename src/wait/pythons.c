/* SPDX-License-Identifier: BSD-2-Clause */
#include "wait/pythons.h"

#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "python/inside.h"
#include "python/locals.h"
#include "python/object.h"
#include "wait/pythons_priv.h"
#include "wait/world.h"

#define MOST_LINKS 4096u
#define MOST_INSIDES 65536u

/* Generators that are context managers, inside of each other. */
#define MOST_NESTED 4u

/* ---- life ---- */

static void free_look(struct python_look *look)
{
	vec_each(&look->threads, t)
		vec_release(&t->frames);
	vec_release(&look->threads);
	vec_release(&look->gils);
	vec_release(&look->insides);
	vec_each(&look->texts, text)
		free(*text);
	vec_release(&look->texts);
	vec_release(&look->names);
	free(look->links);
	free(look);
}

void wait_pythons_forget(struct table *pythons)
{
	for (struct table_node *n; (n = table_next(pythons, NULL));) {
		table_remove(pythons, n);
		free_look((struct python_look *)n);
	}
	table_release(pythons);
}

static void take_threads(struct python_look *look, const struct known_python_thread *threads, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (vec_push(&look->threads,
			    (struct look_thread_state){.tid = threads[i].tid, .thread = threads[i].thread}))
			return;
}

static void take_gil(struct python_look *look, const struct look_thread_state *t)
{
	struct look_gil gil = {.interpreter_id = t->thread.interpreter_id};

	if (python_gil(look->python, &t->thread, &gil.now, NULL) || gil.now.off)
		return;
	vec_each(&look->gils, g)
		if (g->now.address == gil.now.address)
			return;
	(void)vec_push(&look->gils, gil);
}

struct python_look *wait_python_of(struct wait_world *world, struct snapshot *s, struct snapshot_process *p)
{
	struct table *pythons = wait_world_pythons(world);
	struct python_look *look = (struct python_look *)table_find(pythons, (uint64_t)p->pid);
	const struct known_python_thread *threads;
	size_t count;

	if (look || p->refused)
		return look && look->python ? look : NULL;
	look = calloc(1, sizeof(*look));
	if (!look || table_add(pythons, &look->by_pid, (uint64_t)p->pid)) {
		free(look);
		return NULL;
	}
	look->process = p;
	look->python = snapshot_python(s, p, NULL);
	if (!look->python)
		return NULL;
	count = snapshot_python_threads(s, p, &threads);
	take_threads(look, threads, count);
	vec_each(&look->threads, t)
		take_gil(look, t);
	return look;
}

struct python_look *wait_python(struct wait_look *l)
{
	return wait_python_of(l->world, l->snapshot, l->process);
}

struct python *look_python(const struct python_look *look)
{
	return look->python;
}

/* ---- threads ---- */

static const struct python_frames *look_frames_of(struct python_look *look, const struct look_thread_state *state);

pid_t look_tid(const struct python_look *look, uint64_t pthread)
{
	vec_each(&look->threads, t)
		if (t->thread.pthread == pthread && pthread)
			return t->tid;
	return 0;
}

pid_t look_thread(const struct python_look *look, size_t index)
{
	return index < look->threads.len ? look->threads.data[index].tid : 0;
}

void look_copy_threads(const struct python_look *look, struct python_threads *ret)
{
	vec_each(&look->threads, t)
		if (vec_push(ret, t->thread))
			return;
}

/* Whether two addresses are of the same mapping, such as a thread's stack, which has its pthread_t as well. */
static bool is_same_mapping(struct python_look *look, uint64_t a, uint64_t b)
{
	const struct snapshot_mapping *m = snapshot_mapping(look->process, a);

	return m && b >= m->start && b < m->end;
}

/*
 * An interpreter that was made by one thread may be run by another, with the state that the first one made: that still
 * has the first one's ids. Whose stack the interpreter's calls are on tells who runs it.
 */
static pid_t runner_of(struct python_look *look, const struct look_thread_state *state)
{
	const struct python_frames *frames = look_frames_of(look, state);
	uint64_t marker = frames->len ? frames->data[frames->len - 1].marker : 0;

	if (!state->thread.interpreter_id || !marker)
		return state->tid;
	vec_each(&look->threads, t)
		if (t->thread.pthread && is_same_mapping(look, marker, t->thread.pthread))
			return t->tid;
	return state->tid;
}

static pid_t tid_of_state(struct python_look *look, uint64_t address)
{
	vec_each(&look->threads, t)
		if (t->thread.address == address)
			return runner_of(look, t);
	return 0;
}

/* What a moment later is as it was is not in the middle of being handed over. */
static void find_holder(struct python_look *look, struct look_gil *gil)
{
	struct python_thread any = {0};
	struct python_gil before = gil->now;

	vec_each(&look->threads, t)
		if (t->thread.interpreter_id == gil->interpreter_id)
			any = t->thread;
	python_refresh(look->python);
	if (!any.address || python_gil(look->python, &any, &gil->now, NULL))
		gil->now = before;
	gil->sure = gil->now.locked && before.locked && before.holder == gil->now.holder;
	gil->holder = tid_of_state(look, gil->now.holder);
}

/*
 * musl's condition variables: who waits does so on a word of its own stack, in a struct {prev, next, int state,
 * barrier, ...} of a list whose first is the newest (src/thread/pthread_cond_timedwait.c). The condition has its head.
 */
#define MUSL_BARRIER 20u
#define MOST_MUSL_WAITERS 4096u
#define MOST_GIL_BYTES 512u

static bool is_in_list_of(struct python_look *look, const struct python_gil *gil, uint64_t futex)
{
	uint64_t node = futex - MUSL_BARRIER, previous, words[MOST_GIL_BYTES / 8];

	if (futex < MUSL_BARRIER || node % 8 || gil->bytes > MOST_GIL_BYTES)
		return false;
	for (unsigned i = 0; i < MOST_MUSL_WAITERS; i++) {
		if (!python_read_u64(look->python, node, &previous))
			return false;
		if (!previous)
			break;
		node = previous;
	}
	if (!python_read(look->python, gil->address, words, gil->bytes & ~7u))
		return false;
	for (size_t i = 0; i < gil->bytes / 8; i++)
		if (words[i] == node)
			return true;
	return false;
}

static bool is_waited_on(struct python_look *look, const struct python_gil *gil, uint64_t futex)
{
	return (futex >= gil->address && futex - gil->address < gil->bytes) || is_in_list_of(look, gil, futex);
}

struct look_gil *look_gil_at(struct python_look *look, uint64_t futex)
{
	vec_each(&look->gils, g) {
		if (!is_waited_on(look, &g->now, futex))
			continue;
		if (!g->holder)
			find_holder(look, g);
		return g;
	}
	return NULL;
}

bool look_gil_is_held(struct python_look *look, pid_t tid)
{
	vec_each(&look->threads, t) {
		if (t->tid != tid)
			continue;
		vec_each(&look->gils, g) {
			if (g->interpreter_id != t->thread.interpreter_id && look->gils.len > 1)
				continue;
			if (!g->holder)
				find_holder(look, g);
			return g->sure && g->holder != tid;
		}
	}
	return false;
}

bool look_takes_time(struct python_look *look, unsigned most)
{
	return look->asked++ < most;
}

static void read_frames(struct python_look *look, struct look_thread_state *t)
{
	struct python_chain chain = {.limit = MOST_LINKS};

	t->read = true;
	if (!look->links)
		look->links = calloc(MOST_LINKS, sizeof(*look->links));
	chain.links = look->links;
	if (!chain.links)
		return;
	python_chain_read(look->python, t->thread.address, &chain);
	(void)python_frames(look->python, &chain, &t->frames);
}

static const struct python_frames *look_frames_of(struct python_look *look, const struct look_thread_state *state)
{
	struct look_thread_state *t = &look->threads.data[state - look->threads.data];

	if (!t->read)
		read_frames(look, t);
	return &t->frames;
}

const struct python_frames *look_frames(struct python_look *look, pid_t tid)
{
	static const struct python_frames none;
	const struct python_frames *best = &none;

	vec_each(&look->threads, t) {
		if (t->tid != tid)
			continue;
		if (!t->read)
			read_frames(look, t);
		if (t->frames.len > best->len)
			best = &t->frames;
	}
	return best;
}

/* ---- frames ---- */

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

const char *look_keep(struct python_look *look, struct buf *text)
{
	char *data = text->data;

	if (text->failed || !data || vec_push(&look->texts, data)) {
		buf_release(text);
		return "";
	}
	wait_make_printable(data);
	return data;
}

static const char *place_at(struct python_look *look, const struct python_code *code, uint32_t line)
{
	struct buf text = {0};

	if (!line || !*code->file)
		return "";
	buf_printf(&text, "%.60s:%u", base_name(code->file), line);
	return look_keep(look, &text);
}

const char *look_place(struct python_look *look, const struct python_frame *frame)
{
	return place_at(look, frame->code, frame->position.line);
}

static bool ends_with(const char *text, const char *end)
{
	size_t len = strlen(text), end_len = strlen(end);

	return len >= end_len && !strcmp(text + len - end_len, end);
}

bool look_is_in(const struct python_frame *frame, const char *file, const char *function)
{
	const char *dot = strrchr(frame->code->name, '.');

	return !strcmp(dot ? dot + 1 : frame->code->name, function) && ends_with(frame->code->file, file);
}

struct local_search {
	const char *name;
	uint64_t found;
};

static bool is_local(void *ctx, const struct python_local *local)
{
	struct local_search *s = ctx;

	if (strcmp(local->name, s->name) != 0)
		return false;
	s->found = local->value;
	return true;
}

uint64_t look_local(struct python_look *look, const struct python_frame *frame, const char *name)
{
	struct local_search s = {.name = name};

	python_locals_each(look->python, frame, is_local, &s);
	return s.found;
}

/* ---- with ---- */

static void add_insides(struct python_look *look, pid_t tid, size_t index, const struct python_frame *frame,
	unsigned nested);

/* A generator with a decorator that makes it a context manager is inside of something itself. */
static void add_generator(struct python_look *look, pid_t tid, size_t index, uint64_t object, unsigned nested)
{
	struct python_frame frame;

	if (nested == MOST_NESTED || (!python_is(look->python, object, "_GeneratorContextManager") &&
					     !python_is(look->python, object, "_AsyncGeneratorContextManager")))
		return;
	if (python_generator_frame(look->python, python_attribute(look->python, object, "gen"), &frame))
		add_insides(look, tid, index, &frame, nested + 1);
}

static void add_insides(struct python_look *look, pid_t tid, size_t index, const struct python_frame *frame,
	unsigned nested)
{
	struct python_inside insides[PYTHON_MOST_INSIDE];
	size_t count = python_inside(look->python, frame, insides, PYTHON_MOST_INSIDE);

	for (size_t i = 0; i < count && look->insides.len < MOST_INSIDES; i++) {
		struct look_inside inside = {insides[i].object, tid,
			place_at(look, frame->code, insides[i].line), index};

		if (vec_push(&look->insides, inside))
			return;
		add_generator(look, tid, index, inside.object, nested);
	}
}

size_t look_insides(struct python_look *look, const struct look_inside **ret)
{
	if (!look->insides_read) {
		look->insides_read = true;
		vec_each(&look->threads, t) {
			const struct python_frames *frames = look_frames(look, t->tid);

			/* The thread is there once for each interpreter it was in; one of them runs. */
			if (&t->frames != frames)
				continue;
			for (size_t i = 0; i < frames->len; i++)
				add_insides(look, t->tid, i, &frames->data[i], 0);
		}
	}
	*ret = look->insides.data;
	return look->insides.len;
}
