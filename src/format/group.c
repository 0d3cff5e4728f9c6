/* SPDX-License-Identifier: BSD-2-Clause */
#include <stdlib.h>

#include "format/format_priv.h"

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int compare(const void *left, const void *right)
{
	const struct sample_group *a = left, *b = right;
	int order = ORDER(a->thread, b->thread);

	if (!order)
		order = ORDER(a->stack, b->stack);
	if (!order)
		order = ORDER(a->end, b->end);
	if (!order)
		order = ORDER(a->waker_kind, b->waker_kind);
	return order ? order : ORDER(a->waker, b->waker);
}

static struct sample_group group_of(const struct profile *p, const struct profile_sample *s)
{
	struct sample_group g = {.thread = s->thread, .stack = s->stack, .end = s->end,
		.state = s->state, .waker = PROFILE_NONE, .samples = 1, .weight = s->weight};
	const struct profile_wait *w;

	/* Who waits for a CPU was woken before. */
	if (s->wait == PROFILE_NONE || s->state == STATE_RUN_QUEUE || s->state == STATE_THROTTLED)
		return g;
	w = &p->waits.data[s->wait];
	g.waker_kind = w->waker_kind;
	g.waker = w->waker;
	return g;
}

int group_samples(const struct profile *p, struct sample_groups *ret, struct err *err)
{
	struct sample_groups g = {0};
	size_t kept = 0;

	if (vec_reserve(&g, p->samples.len))
		return err_nomem(err);
	vec_each(&p->samples, s)
		g.data[g.len++] = group_of(p, s);
	if (g.len)
		qsort(g.data, g.len, sizeof(*g.data), compare);
	for (size_t i = 1; i < g.len; i++) {
		if (compare(&g.data[kept], &g.data[i])) {
			g.data[++kept] = g.data[i];
			continue;
		}
		g.data[kept].samples += g.data[i].samples;
		g.data[kept].weight += g.data[i].weight;
	}
	g.len = g.len ? kept + 1 : 0;
	*ret = g;
	return 0;
}
