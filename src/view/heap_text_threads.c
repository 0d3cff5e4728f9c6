/* SPDX-License-Identifier: BSD-2-Clause */
/* Threads that allocate, and what goes from one to another. */
#include "view/heap_text_priv.h"

#include <errno.h>
#include <stdlib.h>

void heap_text_who(struct heap_text *v, uint32_t thread)
{
	if (thread == PROFILE_NONE || v->crowds.size[thread] == 1) {
		heap_thread_name(v->p, thread, v->out);
		return;
	}
	words_count(v->out, v->crowds.size[thread]);
	buf_str(v->out, " x ");
	words_text(v->out, v->p->threads.data[thread].name);
}

#define LINE_THREADS 4u
#define LINE_PAIRS 3u

static int compare_threads(const void *left, const void *right)
{
	const struct heap_thread *a = left, *b = right;

	return (a->allocated_bytes < b->allocated_bytes) - (a->allocated_bytes > b->allocated_bytes);
}

static int by_index(const void *left, const void *right)
{
	const struct heap_thread *a = left, *b = right;

	return (a->thread > b->thread) - (a->thread < b->thread);
}

/* Crowds become one. */
static void join_crowds(struct heap_thread_list *list)
{
	size_t kept = 0;

	qsort(list->data, list->len, sizeof(*list->data), by_index);
	for (size_t i = 1; i < list->len; i++) {
		struct heap_thread *to = &list->data[kept], *t = &list->data[i];

		if (t->thread != to->thread) {
			list->data[++kept] = *t;
			continue;
		}
		to->allocated += t->allocated;
		to->allocated_bytes += t->allocated_bytes;
		to->freed += t->freed;
		to->freed_bytes += t->freed_bytes;
		to->freed_unknown += t->freed_unknown;
	}
	list->len = kept + 1;
}

int heap_text_threads(const struct heap_text *v, struct heap_thread_list *ret)
{
	vec_each(&v->h->threads, t) {
		struct heap_thread thread = *t;

		if (t->thread == PROFILE_NONE || !(t->allocated > 0 || t->freed > 0))
			continue;
		thread.thread = v->crowds.as[t->thread];
		if (vec_push(ret, thread))
			return -ENOMEM;
	}
	if (ret->len)
		join_crowds(ret);
	if (ret->len)
		qsort(ret->data, ret->len, sizeof(*ret->data), compare_threads);
	return 0;
}

int heap_text_threads_line(struct heap_text *v)
{
	struct heap_thread_list list = {0};
	int rc = heap_text_threads(v, &list);

	if (!rc && list.len > 1) {
		heap_text_title(v, "Threads ");
		for (size_t i = 0; i < list.len && i < LINE_THREADS && list.data[i].allocated > 0; i++) {
			buf_str(v->out, i ? ", " : "");
			heap_text_who(v, list.data[i].thread);
			buf_char(v->out, ' ');
			heap_bytes(v->out, list.data[i].allocated_bytes);
		}
		if (list.len > LINE_THREADS)
			buf_printf(v->out, ", %zu more", list.len - LINE_THREADS);
		heap_text_end_line(v);
	}
	vec_release(&list);
	return rc;
}

void heap_text_pair(struct heap_text *v, const struct heap_pair *pair)
{
	heap_text_who(v, pair->from);
	buf_str(v->out, v->t->unicode ? " → " : " -> ");
	heap_text_who(v, pair->to);
	buf_char(v->out, ' ');
	heap_bytes(v->out, pair->bytes);
	buf_str(v->out, " in ");
	heap_count(v->out, pair->count);
}

int heap_text_pairs_line(struct heap_text *v)
{
	struct heap_pairs pairs = {0};
	int rc = heap_pairs_build(v->p, &v->crowds, &pairs);

	if (!rc && pairs.len) {
		heap_text_title(v, "Freed   ");
		buf_str(v->out, "by other threads: ");
		for (size_t i = 0; i < pairs.len && i < LINE_PAIRS; i++) {
			buf_str(v->out, i ? ", " : "");
			heap_text_pair(v, &pairs.data[i]);
		}
		if (pairs.len > LINE_PAIRS)
			buf_printf(v->out, ", %zu more", pairs.len - LINE_PAIRS);
		heap_text_end_line(v);
	}
	vec_release(&pairs);
	return rc;
}
