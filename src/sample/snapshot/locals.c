/* SPDX-License-Identifier: BSD-2-Clause */
/* Variables of Python frames, as text: within bounds, however large the values are. */
#include "sample/snapshot/snapshot_priv.h"

#include <stdlib.h>

#include "base/buf.h"
#include "python/locals.h"
#include "python/object.h"

#define MOST_VALUE_BYTES 160u
#define VALUE_DEPTH 2u
#define MOST_OF_FRAME 64u   /* variables */
#define MOST_OF_THREAD 4096u

void snapshot_forget_locals(struct snapshot_thread *t)
{
	vec_each(&t->locals, l)
		free(l->text);
	t->locals.len = 0;
}

struct take {
	struct python *python;
	struct snapshot_thread *thread;
	size_t frame, count;
};

static bool take_local(void *ctx, const struct python_local *local)
{
	struct take *take = ctx;
	struct buf text = {0};

	buf_printf(&text, "%s = ", local->name);
	python_show(take->python, local->value, MOST_VALUE_BYTES, VALUE_DEPTH, &text);
	if (text.failed || vec_push(&take->thread->locals, (struct snapshot_local){
							       take->frame, local->argument, text.data})) {
		buf_release(&text);
		return true;
	}
	return ++take->count == MOST_OF_FRAME || take->thread->locals.len == MOST_OF_THREAD;
}

void snapshot_take_locals(struct snapshot *s, struct snapshot_thread *t)
{
	struct take take = {.thread = t};

	snapshot_forget_locals(t);
	if (!s->options.locals || !t->python_count)
		return;
	take.python = snapshot_python(s, t->process, NULL);
	for (; take.python && take.frame < t->python_count; take.frame++) {
		take.count = 0;
		python_locals_each(take.python, &t->python[take.frame].frame, take_local, &take);
	}
}
