/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/copier.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/table.h"
#include "python/layout.h"
#include "sample/python/known.h"
#include "sample/python/slot.h"

/* Threads of a process whose surroundings are looked at, to find or to check the slot. */
#define MOST_LOOKED_AT 64u

struct copied_process {
	struct table_node node; /* by pid */
	struct python_copy_process layout;
	bool unknown; /* there are too many of them */
	VEC(struct known_python_thread) threads; /* ascending by tid */
	VEC(uint64_t) looked_at;                 /* states of the threads that were */
	struct python_slots slots;
	struct pid_vec told;                     /* tids in the map, ascending */
};

struct python_copier {
	struct python_copier_maps maps;
	struct table processes;
};

int python_copier_new(const struct python_copier_maps *maps, struct python_copier **ret, struct err *err)
{
	struct python_copier *c = calloc(1, sizeof(*c));

	if (!c)
		return err_nomem(err);
	c->maps = *maps;
	*ret = c;
	return 0;
}

static void process_free(struct copied_process *p)
{
	vec_release(&p->threads);
	vec_release(&p->looked_at);
	vec_release(&p->told);
	python_slots_release(&p->slots);
	free(p);
}

void python_copier_free(struct python_copier *c)
{
	struct table_node *node;

	if (!c)
		return;
	while ((node = table_next(&c->processes, NULL))) {
		table_remove(&c->processes, node);
		process_free((struct copied_process *)node);
	}
	table_release(&c->processes);
	free(c);
}

static struct copied_process *find(const struct python_copier *c, pid_t pid)
{
	return (struct copied_process *)table_find(&c->processes, (uint64_t)pid);
}

/* ---- what the program knows ---- */

static void count_processes(struct python_copier *c)
{
	__atomic_store_n(c->maps.process_count, (uint32_t)c->processes.count, __ATOMIC_RELAXED);
}

static void tell_process(struct python_copier *c, struct copied_process *p)
{
	uint32_t tgid = (uint32_t)p->node.key;

	p->unknown = c->maps.update(c->maps.ctx, c->maps.processes, &tgid, &p->layout);
}

static void untell_threads(struct python_copier *c, struct copied_process *p)
{
	vec_each(&p->told, tid) {
		uint32_t key = (uint32_t)*tid;

		c->maps.remove(c->maps.ctx, c->maps.threads, &key);
	}
	p->told.len = 0;
}

static void forget(struct python_copier *c, struct copied_process *p)
{
	uint32_t tgid = (uint32_t)p->node.key;

	c->maps.remove(c->maps.ctx, c->maps.processes, &tgid);
	untell_threads(c, p);
	table_remove(&c->processes, &p->node);
	process_free(p);
	count_processes(c);
}

static struct copied_process *add(struct python_copier *c, pid_t pid)
{
	struct copied_process *p = find(c, pid);

	if (p)
		forget(c, p);
	p = calloc(1, sizeof(*p));
	if (!p || table_add(&c->processes, &p->node, (uint64_t)pid)) {
		free(p);
		return NULL;
	}
	return p;
}

/* Where the word is that says who has the lock of the thread's interpreter; 0: it has none. */
static uint64_t gil_of(struct python *python, const struct python_thread *thread)
{
	struct python_gil gil;

	if (python_gil(python, thread, &gil, NULL) || gil.off)
		return 0;
	return gil.address + python_layout(python)->gil.holder;
}

static struct python_copy_process layout_of(struct python *python)
{
	const struct python_chain_layout *c = python_chain_layout(python);
	const struct python_layout *l = python_layout(python);

	return (struct python_copy_process){
		.entry = c->entry,
		.cframe_entry = c->cframe_entry,
		.cframe_frame = c->cframe_frame,
		.cframe_previous = c->cframe_previous,
		.previous = c->previous,
		.code = c->code,
		.position = c->position,
		.marks = c->marks,
		.bytes = c->bytes,
		.by_cframe = c->by_cframe,
		.cframes = c->cframes,
		.gil_locked = (int32_t)l->gil.locked - (int32_t)l->gil.holder,
	};
}

/* ---- what the session tells ---- */

static void update_layout(struct copied_process *p, struct python_copy_process layout)
{
	layout.slot = p->layout.slot;
	layout.has_slot = p->layout.has_slot;
	layout.gil = p->layout.gil;
	p->layout = layout;
}

static void on_process(void *ctx, pid_t pid, struct python *python)
{
	struct python_copier *c = ctx;
	struct copied_process *p;

	if (python_chain_layout(python)->bytes > PYTHON_COPY_FRAME_BYTES)
		return;
	p = find(c, pid);
	if (p) { /* as was expected when it was forked */
		update_layout(p, layout_of(python));
		tell_process(c, p);
		return;
	}
	p = add(c, pid);
	if (!p)
		return;
	p->layout = layout_of(python);
	tell_process(c, p);
	count_processes(c);
}

/* The states of the thread that begins at `i`; where the next one does. */
static size_t tell_thread(struct python_copier *c, struct copied_process *p, struct python *python,
	const struct known_python_thread *threads, size_t i, size_t count)
{
	struct python_copy_thread told = {.tgid = (uint32_t)p->node.key};
	uint32_t tid = (uint32_t)threads[i].tid, states = 0;

	for (; i < count && (uint32_t)threads[i].tid == tid; i++)
		if (states < PYTHON_COPY_STATES)
			told.states[states++] = (struct python_copy_state){
				threads[i].thread.address, gil_of(python, &threads[i].thread)};
	if (tid && !vec_push(&p->told, (pid_t)tid))
		c->maps.update(c->maps.ctx, c->maps.threads, &tid, &told);
	return i;
}

static bool is_told_already(const struct copied_process *p, const struct known_python_thread *threads,
	size_t count)
{
	if (p->threads.len != count || !p->told.len)
		return false;
	for (size_t i = 0; i < count; i++)
		if (p->threads.data[i].tid != threads[i].tid ||
			p->threads.data[i].thread.address != threads[i].thread.address)
			return false;
	return true;
}

/* Forgets those that were told of before and are not among the threads any more; both ascend. */
static void untell_others(struct python_copier *c, struct copied_process *p, const struct pid_vec *before)
{
	size_t i = 0;

	vec_each(before, tid) {
		uint32_t key = (uint32_t)*tid;

		while (i < p->told.len && p->told.data[i] < *tid)
			i++;
		if (i == p->told.len || p->told.data[i] != *tid)
			c->maps.remove(c->maps.ctx, c->maps.threads, &key);
	}
}

static void on_threads(void *ctx, pid_t pid, struct python *python,
	const struct known_python_thread *threads, size_t count)
{
	struct python_copier *c = ctx;
	struct copied_process *p = find(c, pid);
	struct pid_vec before;

	if (!p || is_told_already(p, threads, count))
		return;
	p->threads.len = 0;
	if (vec_reserve(&p->threads, count))
		return;
	if (count)
		memcpy(p->threads.data, threads, count * sizeof(*threads));
	p->threads.len = count;
	before = p->told;
	p->told = (struct pid_vec){0};
	for (size_t i = 0; i < count;)
		i = tell_thread(c, p, python, threads, i, count);
	untell_others(c, p, &before);
	vec_release(&before);
	if (count && !p->layout.gil) {
		p->layout.gil = gil_of(python, &threads[0].thread);
		tell_process(c, p);
	}
}

/* A copy of its parent's memory: the same things are in the same places. */
static void on_fork(void *ctx, pid_t parent, pid_t child)
{
	struct python_copier *c = ctx;
	const struct copied_process *from = find(c, parent);
	struct copied_process *p = from ? add(c, child) : NULL;

	if (!p)
		return;
	p->layout = from->layout;
	p->slots.threads = from->slots.threads;
	vec_each(&from->slots.candidates, slot)
		vec_push(&p->slots.candidates, *slot);
	tell_process(c, p);
	count_processes(c);
}

static void on_gone(void *ctx, pid_t pid, pid_t tid)
{
	struct python_copier *c = ctx;
	struct copied_process *p = find(c, pid);
	uint32_t key = (uint32_t)tid;

	if (!p)
		return;
	if (tid)
		c->maps.remove(c->maps.ctx, c->maps.threads, &key);
	else
		forget(c, p);
}

static const struct python_follower_ops follower = {
	.process = on_process,
	.threads = on_threads,
	.forked = on_fork,
	.gone = on_gone,
};

int python_copier_follow(struct python_copier *c, struct session *session)
{
	return session_follow_python(session, &follower, c);
}

/* ---- what the program copied ---- */

bool python_copied_read(const void *record, size_t bytes, void *room, struct python_copied *ret)
{
	struct python_copy_head head;
	size_t links_bytes, cframes_bytes;

	if (bytes < sizeof(head))
		return false;
	memcpy(&head, record, sizeof(head));
	links_bytes = head.links * sizeof(struct python_link);
	cframes_bytes = head.cframes * sizeof(uint64_t);
	if (head.links > PYTHON_COPY_LINKS || head.cframes > PYTHON_COPY_CFRAMES ||
		links_bytes + cframes_bytes > bytes - sizeof(head))
		return false;
	memcpy(room, (const uint8_t *)record + sizeof(head), links_bytes + cframes_bytes);
	*ret = (struct python_copied){
		.pid = (pid_t)head.tgid,
		.tid = (pid_t)head.tid,
		.pointer = head.pointer,
		.by_slot = head.flags & PYTHON_COPY_BY_SLOT,
		.raw = {
			.state = head.state,
			.holds_gil = head.flags & PYTHON_COPY_GIL,
			.chain = {
				.links = room,
				.count = head.links,
				.limit = head.links,
				.cframes = (uint64_t *)room + links_bytes / sizeof(uint64_t),
				.cframe_count = head.cframes,
				.cframe_limit = head.cframes,
				.torn = head.flags & PYTHON_COPY_UNREADABLE ? PYTHON_UNREADABLE
					: head.flags & PYTHON_COPY_CUT      ? PYTHON_CUT
									    : PYTHON_WHOLE,
			},
		},
	};
	_Static_assert(sizeof(struct python_link) == sizeof(struct python_copy_link), "the same words");
	return true;
}

static bool was_looked_at(const struct copied_process *p, uint64_t state)
{
	vec_each(&p->looked_at, at)
		if (*at == state)
			return true;
	return false;
}

/* 1: it is that thread's; 0: not known; -1: the thread has another one. */
static int is_state_of(const struct copied_process *p, pid_t tid, uint64_t state)
{
	int known = 0;

	vec_each(&p->threads, t) {
		if (t->tid == tid && t->thread.address == state)
			return 1;
		if (t->tid == tid)
			known = -1;
	}
	return known;
}

static bool read_by_thread(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct iovec local = {buf, len}, remote = {(void *)(uintptr_t)addr, len};

	return process_vm_readv(*(pid_t *)ctx, &local, 1, &remote, 1, 0) == (ssize_t)len;
}

static void choose_slot(struct python_copier *c, struct copied_process *p)
{
	int32_t best = 0;
	bool has = python_slots_best(&p->slots, &best);

	if (has == p->layout.has_slot && best == p->layout.slot)
		return;
	p->layout.has_slot = has;
	p->layout.slot = best;
	tell_process(c, p);
}

void python_copier_learn(struct python_copier *c, const struct python_copied *copied)
{
	struct copied_process *p = find(c, copied->pid);
	pid_t reader = copied->tid;
	int known;

	if (!p || p->looked_at.len >= MOST_LOOKED_AT || was_looked_at(p, copied->raw.state))
		return;
	known = is_state_of(p, copied->tid, copied->raw.state);
	if (!known || vec_push(&p->looked_at, copied->raw.state))
		return;
	if (known < 0 && copied->by_slot)
		python_slots_drop(&p->slots, p->layout.slot);
	else if (known > 0)
		python_slots_see(&p->slots, &(struct python_memory){&reader, read_by_thread},
			copied->pointer, copied->raw.state);
	choose_slot(c, p);
}

enum python_when python_copier_without(const struct python_copier *c, pid_t pid)
{
	const struct copied_process *p = find(c, pid);

	return p && p->layout.has_slot && !p->unknown ? PYTHON_NOT_NOW : PYTHON_LIVE;
}
