/* SPDX-License-Identifier: BSD-2-Clause */
/* Greenlets that are switched out: those with the same stack once. */
#include "view/tasks_priv.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

static const char *hole_of(const struct python_greenlet *g)
{
	switch (g->torn) {
	case PYTHON_TORN:
	case PYTHON_UNREADABLE:
		return "[it changed while it was looked at]";
	case PYTHON_CUT:
		return "[the stack goes on]";
	case PYTHON_WHOLE:
		break;
	}
	return NULL;
}

static const struct python_frame *frames_of(const struct tasks_view *v, const struct python_greenlet *g)
{
	return v->greenlets->frames.data + g->first_frame;
}

static int by_stack(const void *a, const void *b, void *ctx)
{
	const struct tasks_view *v = (const struct tasks_view *)ctx;
	const struct python_greenlet *x = *(const struct python_greenlet *const *)a;
	const struct python_greenlet *y = *(const struct python_greenlet *const *)b;

	if (x->thread != y->thread)
		return (x->thread > y->thread) - (x->thread < y->thread);
	if (x->type != y->type)
		return ((uintptr_t)x->type > (uintptr_t)y->type) - ((uintptr_t)x->type < (uintptr_t)y->type);
	if (x->torn != y->torn)
		return x->torn < y->torn ? -1 : 1;
	return task_compare_frames(frames_of(v, x), x->frame_count, frames_of(v, y), y->frame_count);
}

static void thread_line(const struct tasks_view *v, uint64_t state, size_t count, struct buf *out)
{
	const struct task_thread *thread = task_thread(v, state);

	if (out->len)
		buf_char(out, '\n');
	paint_on(out, &v->term, PAINT_TITLE);
	buf_str(out, "Greenlets");
	if (thread) {
		buf_str(out, " of ");
		words_text(out, thread->name);
		buf_printf(out, "[%d]", (int)thread->tid);
	}
	paint_off(out, &v->term, PAINT_TITLE);
	buf_printf(out, "  %zu switched out\n", count);
}

static void one(const struct tasks_view *v, const struct python_greenlet *g, size_t count, struct buf *out)
{
	buf_str(out, "  ");
	paint_on(out, &v->term, PAINT_TITLE);
	if (count > 1)
		buf_printf(out, "%zu of %s", count, g->type->full_name);
	else
		buf_printf(out, "%s at 0x%" PRIx64, g->type->full_name, g->address);
	paint_off(out, &v->term, PAINT_TITLE);
	buf_char(out, '\n');
	task_frames(v, frames_of(v, g), g->frame_count, hole_of(g), 6, out);
}

static void show_sorted(const struct tasks_view *v, struct python_greenlet *const *sorted, size_t count,
	struct buf *out)
{
	for (size_t i = 0, next; i < count; i = next) {
		size_t of_thread = 0;

		if (!i || sorted[i]->thread != sorted[i - 1]->thread) {
			while (i + of_thread < count && sorted[i + of_thread]->thread == sorted[i]->thread)
				of_thread++;
			thread_line(v, sorted[i]->thread, of_thread, out);
		}
		for (next = i + 1; next < count && !by_stack(&sorted[i], &sorted[next], (void *)v);)
			next++;
		one(v, sorted[i], next - i, out);
	}
}

static void losses(const struct tasks_view *v, struct buf *out)
{
	const struct python_greenlets *g = v->greenlets;
	struct buf words = {0};

	if (g->unknown)
		buf_printf(&words, "%" PRIu64 " greenlets are laid out as in no release that is known. ", g->unknown);
	if (g->gaps)
		buf_str(&words, "A list of objects changed while it was read: greenlets may be missing. ");
	if (words.len) {
		buf_char(out, '\n');
		why_wrapped(words.data, PAINT_WARN, &v->term, out);
	}
	buf_release(&words);
}

int view_greenlets(const struct tasks_view *v, struct buf *out)
{
	const struct python_greenlets *g = v->greenlets;
	struct python_greenlet **sorted = calloc(g->greenlets.len + 1, sizeof(*sorted));
	size_t count = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < g->greenlets.len; i++)
		if (!v->greenlet || v->greenlet[i])
			sorted[count++] = &g->greenlets.data[i];
	if (count)
		qsort_r(sorted, count, sizeof(*sorted), by_stack, (void *)v);
	show_sorted(v, sorted, count, out);
	losses(v, out);
	free(sorted);
	return 0;
}

void view_greenlets_json(const struct tasks_view *v, struct buf *out)
{
	const struct python_greenlets *all = v->greenlets;
	bool any = false;

	buf_str(out, "\"greenlets\":[");
	for (size_t i = 0; i < all->greenlets.len; i++) {
		const struct python_greenlet *g = &all->greenlets.data[i];
		const struct task_thread *thread = task_thread(v, g->thread);

		if (v->greenlet && !v->greenlet[i])
			continue;
		buf_printf(out, "%s\n{\"id\":\"0x%" PRIx64 "\",", any ? "," : "", g->address);
		any = true;
		json_text(out, "type", g->type->full_name);
		if (thread)
			buf_printf(out, ",\"tid\":%d", (int)thread->tid);
		buf_str(out, ",\"frames\":[");
		for (size_t k = 0; k < g->frame_count; k++) {
			buf_str(out, k ? "," : "");
			task_frame_json(frames_of(v, g) + k, out);
		}
		buf_printf(out, "],\"whole\":%s}", hole_of(g) ? "false" : "true");
	}
	buf_printf(out, "],\n\"greenlets_not_out\":%" PRIu64 ",\"greenlets_unknown\":%" PRIu64, all->others,
		all->unknown);
}
