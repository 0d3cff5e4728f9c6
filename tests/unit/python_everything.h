/* SPDX-License-Identifier: BSD-2-Clause */
/* What src/python tells of threads and frames beside themselves, but tasks and greenlets: for fuzz_python, and for what records its seeds. */
#ifndef SONDE_TESTS_UNIT_PYTHON_EVERYTHING_H
#define SONDE_TESTS_UNIT_PYTHON_EVERYTHING_H

#include "base/buf.h"
#include "python/inside.h"
#include "python/locals.h"
#include "python/locks.h"
#include "python/object.h"
#include "python/thread_names.h"

struct everything {
	struct python *p;
	struct buf text;
	size_t count;
};

static inline bool everything_show(void *ctx, uint64_t object)
{
	struct everything *e = (struct everything *)ctx;
	struct python_lock lock;

	buf_clear(&e->text);
	python_show(e->p, object, 100, 2, &e->text);
	if (python_lock_look(e->p, object, &lock))
		(void)python_parked_on(e->p, lock.word);
	return ++e->count >= 200;
}

static inline bool everything_local(void *ctx, const struct python_local *local)
{
	struct everything *e = (struct everything *)ctx;

	e->count += !*local->name;
	return everything_show(ctx, local->value);
}

static inline void everything_name(void *ctx, uint64_t pthread, const char *name)
{
	struct everything *e = (struct everything *)ctx;

	e->count += !pthread && !*name;
}

static inline void everything_of_frames(struct python *p, const struct python_frame *frames, size_t count)
{
	struct everything e = {.p = p};
	struct python_inside inside[PYTHON_MOST_INSIDE];
	struct python_lock lock;

	for (size_t i = 0; i < count && i < 8; i++) {
		e.count = 0;
		(void)python_locals_each(p, &frames[i], everything_local, &e);
		(void)python_slots_each(p, &frames[i], everything_show, &e);
		if (python_inside(p, &frames[i], inside, PYTHON_MOST_INSIDE) > PYTHON_MOST_INSIDE)
			abort();
	}
	(void)python_lock_wanted(p, frames[0].marker ? frames[0].marker : 0x1000, frames, count, &lock);
	buf_release(&e.text);
}

static inline void everything_of_threads(struct python *p, const struct python_threads *threads)
{
	struct everything e = {.p = p};

	if (threads->len)
		python_thread_names(p, threads->data[0].interpreter, everything_name, &e);
}

#endif
