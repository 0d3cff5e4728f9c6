/* SPDX-License-Identifier: BSD-2-Clause */
#include "base/cleanup.h"
#include "python/code.h"
#include "python/python_priv.h"

#define PTHREAD_WORDS 512   /* of 4 bytes, of the C library's struct, that are looked at */
#define GLIBC_TID_WORD 180  /* tid in struct pthread of glibc on x86-64 (nptl/descr.h): byte 720 with
			     2.36 */
#define SAMPLE_THREADS 64  /* threads by which the offset of the tid is found */

/* One thread, and the next one in its list. */
static bool read_thread(struct python *p, uint64_t address, uint64_t interpreter,
	struct python_thread *ret, uint64_t *ret_next)
{
	const struct python_layout *l = &p->layout;
	uint64_t owner, native = 0;

	*ret = (struct python_thread){.address = address, .interpreter = interpreter};
	if (!python_read_u64(p, address + l->thread.interpreter, &owner) || owner != interpreter ||
		!python_read_u64(p, address + l->thread.pthread, &ret->pthread) ||
		!python_read_pointer(p, address + l->thread.next, ret_next))
		return false;
	if (l->thread.native_id != PYTHON_ABSENT &&
		!python_read_u64(p, address + l->thread.native_id, &native))
		return false;
	ret->native_id = native <= UINT32_MAX ? (uint32_t)native : 0;
	return true;
}

/* The first thread: of the main interpreter the one that the runtime says, otherwise the oldest. */
static void mark_main(struct python *p, struct python_threads *threads, size_t first)
{
	uint64_t main_pthread;

	if (threads->len == first)
		return;
	if (threads->data[first].interpreter_id == 0 &&
		python_read_u64(p, p->place.runtime + p->layout.runtime.main_thread, &main_pthread))
		for (size_t i = threads->len; i-- > first;)
			if (threads->data[i].pthread == main_pthread && main_pthread) {
				threads->data[i].main = true;
				return;
			}
	threads->data[threads->len - 1].main = true;
}

/* Threads of one interpreter, newest first as they stand. -EFAULT: the list ends in nothing, or has no end. */
static int read_list(struct python *p, uint64_t interpreter, int64_t id, struct python_threads *ret)
{
	size_t first = ret->len;
	uint64_t at;

	if (!python_read_pointer(p, interpreter + p->layout.interpreter.threads, &at))
		return -EFAULT;
	while (at) {
		struct python_thread t;

		if (ret->len >= PYTHON_MOST_THREADS || !read_thread(p, at, interpreter, &t, &at))
			return -EFAULT;
		t.interpreter_id = id;
		if (vec_push(ret, t))
			return -ENOMEM;
	}
	mark_main(p, ret, first);
	return 0;
}

/* The list has the newest first; the main one is put in front. */
int python_interpreters(struct python *p, struct python_addresses *ret)
{
	uint64_t at, head, main;

	if (!python_read_pointer(p, p->place.runtime + p->layout.runtime.head, &head) ||
		!python_read_pointer(p, p->place.runtime + p->layout.runtime.main, &main))
		return -EFAULT;
	if (main && vec_push(ret, main))
		return -ENOMEM;
	for (at = head; at;) {
		if (ret->len > PYTHON_MOST_INTERPRETERS)
			return -EFAULT;
		if (at != main && vec_push(ret, at))
			return -ENOMEM;
		if (!python_read_pointer(p, at + p->layout.interpreter.next, &at))
			return -EFAULT;
	}
	return 0;
}

static int read_all(struct python *p, struct python_threads *ret)
{
	struct python_addresses list = {0};
	int err = python_interpreters(p, &list);

	vec_each(&list, interpreter)
	{
		uint64_t id = 0;
		int bad = -EFAULT;

		if (python_read_u64(p, *interpreter + p->layout.interpreter.id, &id))
			bad = read_list(p, *interpreter, (int64_t)id, ret);
		if (bad && (!err || bad == -ENOMEM))
			err = bad;
	}
	vec_release(&list);
	return err;
}

static bool is_tid(const uint32_t *tids, size_t count, uint32_t tid)
{
	for (size_t i = 0; i < count; i++)
		if (tids[i] == tid)
			return true;
	return false;
}

/* As much as can be read from there on. */
static size_t read_some(struct python *p, uint64_t addr, uint8_t *buf, size_t most)
{
	size_t page = PYTHON_PAGE_BYTES - addr % PYTHON_PAGE_BYTES;

	if (python_read(p, addr, buf, most))
		return most;
	return page < most && python_read(p, addr, buf, page) ? page : 0;
}

/* What stands in the C library's structs of some threads, a row each; and in how many threads a place has an id. */
struct ids_seen {
	uint32_t words[SAMPLE_THREADS][PTHREAD_WORDS];
	uint64_t pthreads[SAMPLE_THREADS];
	size_t count;
};

static bool was_seen(const struct ids_seen *seen, uint64_t pthread)
{
	for (size_t i = 0; i < seen->count; i++)
		if (seen->pthreads[i] == pthread)
			return true;
	return false;
}

static void see_ids(struct python *p, const struct python_threads *threads, struct ids_seen *ret)
{
	for (size_t i = threads->len; i-- > 0 && ret->count < SAMPLE_THREADS;) {
		uint64_t pthread = threads->data[i].pthread;

		/* One thread may have several states. */
		if (!python_pointer_ok(pthread) || was_seen(ret, pthread) ||
			!read_some(p, pthread, (uint8_t *)ret->words[ret->count], PTHREAD_WORDS * 4))
			continue;
		ret->pthreads[ret->count++] = pthread;
	}
}

/* In how many threads the place has an id of this process; 0 where it has the same in two of them: flags and counts may look
 * like the small ids that a container has. */
static size_t ids_at(const struct ids_seen *seen, size_t word, const uint32_t *tids, size_t tid_count)
{
	size_t hits = 0;

	for (size_t i = 0; i < seen->count; i++) {
		uint32_t tid = seen->words[i][word];

		if (!tid || !is_tid(tids, tid_count, tid))
			continue;
		for (size_t j = 0; j < i; j++)
			if (seen->words[j][word] == tid)
				return 0;
		hits++;
	}
	return hits;
}

/*
 * Where in the C library's struct of a thread its id is: the place that has different ids of this process in the most
 * threads of those which are looked at; where several do, glibc's, else the first.
 */
static uint32_t find_tid_offset(struct python *p, const uint32_t *tids, size_t tid_count,
	const struct python_threads *threads)
{
	struct ids_seen *seen = calloc(1, sizeof(*seen));
	size_t most = 0, best = 0;

	if (!seen)
		return 0;
	see_ids(p, threads, seen);
	for (size_t i = 0; i < PTHREAD_WORDS; i++) {
		size_t hits = ids_at(seen, i, tids, tid_count);

		if (hits > most || (hits && hits == most && i == GLIBC_TID_WORD && !p->place.aarch64)) {
			most = hits;
			best = i;
		}
	}
	/* A single thread may have its id in more places than one. */
	if (seen->count > 1)
		p->tid_offset = best * 4;
	free(seen);
	return (uint32_t)best * 4;
}

static void set_native_ids(struct python *p, const uint32_t *tids, size_t tid_count,
	struct python_threads *threads)
{
	uint64_t offset = p->tid_offset;

	if (p->layout.thread.native_id != PYTHON_ABSENT || !tid_count)
		return;
	if (!offset)
		offset = find_tid_offset(p, tids, tid_count, threads);
	vec_each(threads, t)
	{
		uint32_t tid;

		if (offset && python_pointer_ok(t->pthread) &&
			python_read_u32(p, t->pthread + offset, &tid) &&
			is_tid(tids, tid_count, tid))
			t->native_id = tid;
	}
}

int python_threads(struct python *p, const uint32_t *tids, size_t tid_count, struct python_threads *ret,
	struct err *err)
{
	int bad;

	ret->len = 0;
	bad = read_all(p, ret);
	if (bad == -ENOMEM)
		return err_nomem(err);
	set_native_ids(p, tids, tid_count, ret);
	if (bad)
		return err_set(err, EFAULT, "not all threads of Python %s could be read", p->version_text);
	return 0;
}

/* Up to 3.10 a frame is an object, and its type tells how large. */
static bool is_frame_object(struct python *p, uint64_t frame)
{
	const struct python_layout *l = &p->layout;
	uint64_t type, name, basic_bytes;
	char text[6];

	return python_read_u64(p, frame + l->object.type, &type) && python_pointer_ok(type) &&
		python_read_u64(p, type + l->type.name, &name) &&
		python_read_u64(p, type + l->type.basic_bytes, &basic_bytes) &&
		basic_bytes == l->frame.bytes && python_read(p, name, text, sizeof(text)) &&
		!memcmp(text, "frame", 6);
}

/* The innermost frames of a thread have a code object. 1: one has; 0: there are none; -EOPNOTSUPP: it has none. */
static int check_frames(struct python *p, uint64_t thread)
{
	struct python_link links[32];
	struct python_chain chain = {.links = links, .limit = 32};
	struct python_frames frames = {0};
	int bad;

	python_chain_read(p, thread, &chain);
	if (p->minor <= 10 && chain.count && !is_frame_object(p, links[0].at))
		return -EOPNOTSUPP;
	bad = python_frames(p, &chain, &frames);
	if (!bad)
		bad = frames.len ? 1 : chain.count && chain.torn != PYTHON_CUT ? -EOPNOTSUPP : 0;
	vec_release(&frames);
	return bad;
}

static int check_gil(struct python *p, const struct python_threads *threads)
{
	struct python_gil gil;

	if (python_gil(p, &threads->data[0], &gil, NULL))
		return -EOPNOTSUPP;
	return gil.off || !gil.holder || python_pointer_ok(gil.holder) ? 0 : -EOPNOTSUPP;
}

/* The main interpreter has the number 0, and knows the runtime that it was found by. */
static int check_interpreter(struct python *p)
{
	const struct python_layout *l = &p->layout;
	uint64_t head, main, id, runtime = p->place.runtime;

	if (!python_read_u64(p, p->place.runtime + l->runtime.head, &head) ||
		!python_read_u64(p, p->place.runtime + l->runtime.main, &main))
		return -EFAULT;
	if (!head || !main)
		return -EAGAIN;
	if (!python_pointer_ok(head) || !python_pointer_ok(main) ||
		!python_read_u64(p, main + l->interpreter.id, &id) || id ||
		(l->interpreter.runtime != PYTHON_ABSENT &&
			!python_read_u64(p, main + l->interpreter.runtime, &runtime)))
		return -EOPNOTSUPP;
	return runtime == p->place.runtime ? 0 : -EOPNOTSUPP;
}

static int check_once(struct python *p)
{
	struct python_threads threads = {0};
	int bad = check_interpreter(p), seen = 0;

	if (bad)
		return bad;
	bad = read_all(p, &threads);
	if (bad == -EFAULT)
		bad = -EOPNOTSUPP;
	if (!bad && !threads.len)
		bad = -EAGAIN;
	if (!bad)
		bad = check_gil(p, &threads);
	for (size_t i = threads.len; !bad && i-- > 0 && seen <= 0;) {
		int now = check_frames(p, threads.data[i].address);

		seen = now ? now : seen;
	}
	vec_release(&threads);
	return bad ? bad : seen < 0 ? seen : 0;
}

int python_check(struct python *p, struct err *err)
{
	int bad = 0;

	/* A process that runs changes its lists now and then while they are read. */
	for (int attempt = 0; attempt < 3; attempt++) {
		python_codes_free(p->codes);
		p->codes = NULL;
		p->code_type = p->str_type = 0;
		bad = check_once(p);
		if (bad != -EOPNOTSUPP)
			break;
		python_refresh(p);
	}
	switch (bad) {
	case 0:
		return 0;
	case -ENOMEM:
		return err_nomem(err);
	case -EFAULT:
		return err_set(err, EFAULT, "the memory of Python %s's runtime cannot be read",
			p->version_text);
	case -EAGAIN:
		return err_set(err, EAGAIN, "Python %s has not started yet, or has ended",
			p->version_text);
	default:
		return err_set(err, EOPNOTSUPP,
			"the memory does not look as Python %s's does: it was built with Py_TRACE_REFS or from "
			"other sources, or it is another version",
			p->version_text);
	}
}

int python_gil(struct python *p, const struct python_thread *thread, struct python_gil *ret,
	struct err *err)
{
	const struct python_layout *l = &p->layout;
	uint32_t locked = 0, enabled = 1;

	*ret = (struct python_gil){.address = p->place.runtime + l->runtime.gil, .bytes = l->gil.bytes};
	if ((l->runtime.gil == PYTHON_ABSENT &&
		    !python_read_u64(p, thread->interpreter + l->interpreter.gil, &ret->address)) ||
		!python_pointer_ok(ret->address) ||
		!python_read_u64(p, ret->address + l->gil.holder, &ret->holder) ||
		!python_read_u64(p, ret->address + l->gil.switches, &ret->switches) ||
		!python_read_u32(p, ret->address + l->gil.locked, &locked) ||
		(l->gil.enabled != PYTHON_ABSENT &&
			!python_read_u32(p, ret->address + l->gil.enabled, &enabled)))
		return err_set(err, EFAULT, "the interpreter lock of Python %s cannot be read",
			p->version_text);
	ret->locked = locked == 1;
	ret->off = !enabled;
	return 0;
}
