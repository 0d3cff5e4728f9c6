/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/thread_names.h"

#include "base/buf.h"
#include "python/object.h"

#define MOST_NAME_CHARACTERS 63u

struct walk {
	struct python *p;
	void (*each)(void *ctx, uint64_t pthread, const char *name);
	void *ctx;
	struct buf name;
	uint32_t count;
};

/* An item of threading._active: the identity, and the Thread. True: enough. */
static bool take_thread(void *ctx, uint64_t key, uint64_t value)
{
	struct walk *w = ctx;
	int64_t pthread;

	buf_clear(&w->name);
	if (python_int(w->p, key, &pthread) &&
		python_text(w->p, python_attribute(w->p, value, "_name"), MOST_NAME_CHARACTERS, &w->name,
			NULL) &&
		w->name.len && !w->name.failed)
		w->each(w->ctx, (uint64_t)pthread, w->name.data);
	return ++w->count == PYTHON_MOST_NAMES;
}

void python_thread_names(struct python *p, uint64_t interpreter,
	void (*each)(void *ctx, uint64_t pthread, const char *name), void *ctx)
{
	struct walk w = {.p = p, .each = each, .ctx = ctx};
	uint64_t threading = python_module(p, interpreter, "threading");

	if (threading)
		python_dict_each(p, python_global(p, threading, "_active"), take_thread, &w);
	buf_release(&w.name);
}
