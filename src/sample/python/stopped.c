/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/stopped.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "base/table.h"

#define PAGE_BYTES 4096u
#define PAGES 16u
#define REMEMBERED 256u /* threads */

/* Which pages were needed of a thread. A system call takes longer than to read what it reads, so the next time all of
 * them are read at once. */
struct remembered {
	pid_t tid;
	size_t count;
	uint64_t pages[PAGES];
};

/* Pages of the thread that is being looked at. Frames that follow each other lie near each other mostly. */
struct window {
	pid_t tid;
	size_t count, next; /* that are there; the one to be given up next */
	uint64_t at[PAGES];
	bool used[PAGES];
	uint8_t bytes[PAGES][PAGE_BYTES];
};

enum map { PROCESSES, THREADS, MAPS };

struct entry {
	struct table_node node;
	union {
		struct python_copy_process process;
		struct python_copy_thread thread;
	};
};

struct python_stopped {
	struct python_copier *copier;
	pthread_mutex_t lock; /* over the tables */
	struct table tables[MAPS];
	uint32_t process_count;
	struct window window;
	struct remembered remembered[REMEMBERED]; /* by tid */
};

/* ---- what is known ---- */

static int update(void *ctx, int map, const void *key, const void *value)
{
	struct python_stopped *p = ctx;
	uint32_t id;
	struct entry *e;
	int rc = 0;

	memcpy(&id, key, sizeof(id));
	pthread_mutex_lock(&p->lock);
	e = (struct entry *)table_find(&p->tables[map], id);
	if (!e) {
		e = calloc(1, sizeof(*e));
		rc = e ? table_add(&p->tables[map], &e->node, id) : -ENOMEM;
	}
	if (rc)
		free(e);
	else if (map == PROCESSES)
		memcpy(&e->process, value, sizeof(e->process));
	else
		memcpy(&e->thread, value, sizeof(e->thread));
	pthread_mutex_unlock(&p->lock);
	return rc;
}

static int forget(void *ctx, int map, const void *key)
{
	struct python_stopped *p = ctx;
	struct table_node *node;
	uint32_t id;

	memcpy(&id, key, sizeof(id));
	pthread_mutex_lock(&p->lock);
	node = table_find(&p->tables[map], id);
	if (node)
		table_remove(&p->tables[map], node);
	pthread_mutex_unlock(&p->lock);
	free(node);
	return node ? 0 : -ENOENT;
}

int python_stopped_new(struct python_stopped **ret, struct err *err)
{
	struct python_stopped *p = calloc(1, sizeof(*p));
	const struct python_copier_maps maps = {
		.ctx = p,
		.processes = PROCESSES,
		.threads = THREADS,
		.process_count = p ? &p->process_count : NULL,
		.update = update,
		.remove = forget,
	};
	int rc;

	if (!p)
		return err_nomem(err);
	pthread_mutex_init(&p->lock, NULL);
	rc = python_copier_new(&maps, &p->copier, err);
	if (rc) {
		python_stopped_free(p);
		return rc;
	}
	*ret = p;
	return 0;
}

void python_stopped_free(struct python_stopped *p)
{
	struct table_node *node;

	if (!p)
		return;
	python_copier_free(p->copier);
	for (int map = 0; map < MAPS; map++) {
		while ((node = table_next(&p->tables[map], NULL))) {
			table_remove(&p->tables[map], node);
			free(node);
		}
		table_release(&p->tables[map]);
	}
	pthread_mutex_destroy(&p->lock);
	free(p);
}

struct python_copier *python_stopped_copier(struct python_stopped *p)
{
	return p->copier;
}

/* False: the process is not one that is known. */
static bool look_up(struct python_stopped *p, pid_t pid, pid_t tid, struct python_copy_process *ret_process,
	struct python_copy_thread *ret_thread)
{
	const struct entry *process, *thread;

	*ret_thread = (struct python_copy_thread){0};
	pthread_mutex_lock(&p->lock);
	process = (const struct entry *)table_find(&p->tables[PROCESSES], (uint32_t)pid);
	thread = (const struct entry *)table_find(&p->tables[THREADS], (uint32_t)tid);
	if (process)
		*ret_process = process->process;
	if (thread && thread->thread.tgid == (uint32_t)pid)
		*ret_thread = thread->thread;
	pthread_mutex_unlock(&p->lock);
	return process;
}

/* ---- reading ---- */

static void read_remembered(struct window *w, const struct remembered *r)
{
	struct iovec local[PAGES], remote[PAGES];
	ssize_t got;

	for (size_t i = 0; i < r->count; i++) {
		local[i] = (struct iovec){w->bytes[i], PAGE_BYTES};
		remote[i] = (struct iovec){(void *)(uintptr_t)r->pages[i], PAGE_BYTES};
		w->at[i] = r->pages[i];
		w->used[i] = false;
	}
	got = r->count ? process_vm_readv(w->tid, local, r->count, remote, r->count, 0) : 0;
	w->count = got > 0 ? (size_t)got / PAGE_BYTES : 0; /* up to the first that is not there any more */
}

static void begin_window(struct python_stopped *p, pid_t tid)
{
	const struct remembered *r = &p->remembered[(uint32_t)tid % REMEMBERED];

	p->window.tid = tid;
	p->window.count = p->window.next = 0;
	if (r->tid == tid)
		read_remembered(&p->window, r);
}

static void end_window(struct python_stopped *p)
{
	const struct window *w = &p->window;
	struct remembered *r = &p->remembered[(uint32_t)w->tid % REMEMBERED];

	r->tid = w->tid;
	r->count = 0;
	for (size_t i = 0; i < w->count; i++)
		if (w->used[i])
			r->pages[r->count++] = w->at[i];
}

static const uint8_t *page_at(struct window *w, uint64_t at)
{
	struct iovec local = {NULL, PAGE_BYTES}, remote = {(void *)(uintptr_t)at, PAGE_BYTES};
	size_t i = 0;

	while (i < w->count && w->at[i] != at)
		i++;
	if (i < w->count) {
		w->used[i] = true;
		return w->bytes[i];
	}
	i = w->count < PAGES ? w->count : w->next++ % PAGES;
	local.iov_base = w->bytes[i];
	w->at[i] = at;
	w->used[i] = process_vm_readv(w->tid, &local, 1, &remote, 1, 0) == (ssize_t)PAGE_BYTES;
	if (!w->used[i]) {
		w->at[i] = UINT64_MAX;
		return NULL;
	}
	w->count += i == w->count;
	return w->bytes[i];
}

static bool read_bytes(struct window *w, uint64_t at, void *buf, size_t bytes)
{
	for (size_t done = 0; done < bytes;) {
		uint64_t page = (at + done) & ~(uint64_t)(PAGE_BYTES - 1);
		size_t within = (size_t)(at + done - page);
		size_t n = PAGE_BYTES - within < bytes - done ? PAGE_BYTES - within : bytes - done;
		const uint8_t *from = page_at(w, page);

		if (!from)
			return false;
		memcpy((uint8_t *)buf + done, from + within, n);
		done += n;
	}
	return true;
}

static uint64_t word_at(struct window *w, uint64_t at)
{
	uint64_t word = 0;

	return read_bytes(w, at, &word, sizeof(word)) ? word : 0;
}

static uint64_t word_of(const uint8_t *frame, uint16_t offset)
{
	uint64_t word = 0;

	if (offset <= PYTHON_COPY_FRAME_BYTES - sizeof(word))
		memcpy(&word, frame + offset, sizeof(word));
	return word;
}

static void copy_links(struct window *w, const struct python_copy_process *p, uint64_t frame,
	struct python_copy_head *head, uint64_t *words)
{
	uint8_t bytes[PYTHON_COPY_FRAME_BYTES] = {0};
	struct python_copy_link *links = (struct python_copy_link *)words;

	for (; frame; head->links++) {
		if (head->links == PYTHON_COPY_LINKS) {
			head->flags |= PYTHON_COPY_CUT;
			return;
		}
		if (!read_bytes(w, frame, bytes, p->bytes)) {
			head->flags |= PYTHON_COPY_UNREADABLE;
			return;
		}
		links[head->links] = (struct python_copy_link){
			.at = frame,
			.code = word_of(bytes, p->code),
			.position = word_of(bytes, p->position),
			.marks = word_of(bytes, p->marks),
		};
		frame = word_of(bytes, p->previous);
	}
}

static void copy_cframes(struct window *w, const struct python_copy_process *p,
	struct python_copy_head *head, uint64_t *words)
{
	uint64_t at = word_at(w, head->state + p->cframe_entry);

	while (at && at - head->state >= PYTHON_COPY_STATE_BYTES && head->cframes < PYTHON_COPY_CFRAMES) {
		words[head->links * 4u + head->cframes++] = at;
		at = word_at(w, at + p->cframe_previous);
	}
}

static size_t copy_chain(struct window *w, const struct python_copy_process *p, struct python_copy_head head,
	uint64_t gil, uint8_t *to)
{
	uint64_t *words = (uint64_t *)(void *)(to + sizeof(head));
	uint64_t frame = word_at(w, head.state + p->entry);

	if (p->by_cframe && frame)
		frame = word_at(w, frame + p->cframe_frame);
	copy_links(w, p, frame, &head, words);
	if (p->cframes)
		copy_cframes(w, p, &head, words);
	if (gil && word_at(w, gil) == head.state &&
		(uint32_t)word_at(w, gil + (uint64_t)(int64_t)p->gil_locked) == 1)
		head.flags |= PYTHON_COPY_GIL;
	memcpy(to, &head, sizeof(head));
	return sizeof(head) + head.links * sizeof(struct python_copy_link) +
		head.cframes * sizeof(uint64_t);
}

static size_t copy_chains(struct window *w, const struct python_copy_process *process,
	const struct python_copy_thread *thread, struct python_copy_head head, void *to)
{
	uint64_t own = 0, gil = process->gil;
	size_t bytes = 0;

	if (process->has_slot && head.pointer)
		own = word_at(w, head.pointer + (uint64_t)(int64_t)process->slot);
	for (size_t i = 0; i < PYTHON_COPY_STATES; i++)
		if (own && thread->states[i].address == own)
			gil = thread->states[i].gil;
	if (own) {
		head.state = own;
		head.flags = PYTHON_COPY_BY_SLOT;
		bytes += copy_chain(w, process, head, gil, to);
	}
	head.flags = 0;
	for (size_t i = 0; i < PYTHON_COPY_STATES; i++) {
		head.state = thread->states[i].address;
		if (head.state && head.state != own)
			bytes += copy_chain(
				w, process, head, thread->states[i].gil, (uint8_t *)to + bytes);
	}
	return bytes;
}

size_t python_stopped_copy(struct python_stopped *p, pid_t pid, pid_t tid, uint64_t pointer, void *to)
{
	struct python_copy_head head = {.tid = (uint32_t)tid, .tgid = (uint32_t)pid, .pointer = pointer};
	struct python_copy_process process;
	struct python_copy_thread thread;
	size_t bytes;

	if (!__atomic_load_n(&p->process_count, __ATOMIC_RELAXED) ||
		!look_up(p, pid, tid, &process, &thread))
		return 0;
	begin_window(p, tid);
	bytes = copy_chains(&p->window, &process, &thread, head, to);
	end_window(p);
	return bytes;
}

size_t python_stopped_read(const void *chains, size_t bytes, void *room, struct raw_chain *ret, size_t limit)
{
	const uint8_t *at = chains;
	struct python_copied copied;
	size_t count = 0, used = 0;

	while (bytes && count < limit && python_copied_read(at, bytes, (uint8_t *)room + used, &copied)) {
		const struct python_chain *c = &copied.raw.chain;
		size_t words = c->count * sizeof(*c->links) + c->cframe_count * sizeof(*c->cframes);
		size_t taken = sizeof(struct python_copy_head) + words;

		ret[count++] = copied.raw;
		used += words;
		at += taken;
		bytes -= taken;
	}
	return count;
}
