/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Who ended the waits. Intervals are gathered by where their stack stands in the call tree and by
 * who ended them; stacks of wakers are merged by function like all others, in a tree of their own.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "profile/profile_priv.h"

#define ORDER(a, b) (((a) > (b)) - ((a) < (b)))

static int weigh_stacks(const struct profile *p, struct profile_tree *ret)
{
	autofree struct node_weight *weights = calloc(p->nodes.len + 1, sizeof(*weights));

	if (!weights)
		return -ENOMEM;
	vec_each(&p->samples, s) {
		uint32_t stack = is_blocked(s) ? p->waits.data[s->wait].waker_stack : PROFILE_NONE;

		if (stack == PROFILE_NONE)
			continue;
		weights[stack].samples++;
		weights[stack].weight += s->weight;
	}
	return tree_of_stacks(p, weights, ret);
}

static struct profile_wake wake_of(const struct profile *p, const struct profile_tree *tree,
	const struct profile_tree *paths, const struct profile_sample *s)
{
	const struct profile_wait *w = &p->waits.data[s->wait];
	struct profile_wake r = {
		.node = profile_tree_leaf(tree, s),
		.kind = w->waker_kind,
		.asleep = w->waker_kind == WAKER_UNKNOWN && w->still_open,
		.waker = PROFILE_NONE,
		.path = PROFILE_NONE,
		.samples = 1,
		.weight = s->weight,
	};

	if (r.kind != WAKER_THREAD)
		return r;
	r.waker = w->waker;
	if (w->waker_stack != PROFILE_NONE)
		r.path = paths->ends[STACK_ROOTED][w->waker_stack];
	return r;
}

/* Names are interned: equal ones are equal pointers. */
static int compare_wakers(const struct profile *p, uint32_t left, uint32_t right)
{
	const struct profile_waker *a, *b;

	if (left == right)
		return 0;
	if (left == PROFILE_NONE || right == PROFILE_NONE)
		return left == PROFILE_NONE ? 1 : -1;
	a = &p->wakers.data[left];
	b = &p->wakers.data[right];
	if (a->name != b->name)
		return strcmp(a->name, b->name);
	return a->process == b->process ? 0 : strcmp(a->process, b->process);
}

static int compare_rows(const void *left, const void *right, void *profile)
{
	const struct profile_wake *a = left, *b = right;
	int order = ORDER(a->node, b->node);

	if (!order)
		order = ORDER(a->kind, b->kind);
	if (!order)
		order = ORDER(a->asleep, b->asleep);
	if (!order)
		order = compare_wakers(profile, a->waker, b->waker);
	return order ? order : ORDER(a->path, b->path);
}

static int compare_weights(const void *left, const void *right, void *profile)
{
	const struct profile_wake *a = left, *b = right;
	int order = ORDER(a->node, b->node);

	if (!order)
		order = ORDER(b->weight, a->weight);
	return order ? order : compare_rows(left, right, profile);
}

static void merge_rows(const struct profile *p, struct profile_wakes *w)
{
	struct profile_wake *rows = w->rows.data;
	size_t kept = 0;

	if (!w->rows.len)
		return;
	qsort_r(rows, w->rows.len, sizeof(*rows), compare_rows, (void *)p);
	for (size_t i = 1; i < w->rows.len; i++) {
		if (compare_rows(&rows[kept], &rows[i], (void *)p)) {
			rows[++kept] = rows[i];
			continue;
		}
		rows[kept].samples += rows[i].samples;
		rows[kept].weight += rows[i].weight;
	}
	w->rows.len = kept + 1;
	qsort_r(rows, w->rows.len, sizeof(*rows), compare_weights, (void *)p);
}

int profile_wakes_build(const struct profile *p, const struct profile_tree *tree,
	struct profile_wakes *ret, struct err *err)
{
	struct profile_wakes w = {0};
	int rc = weigh_stacks(p, &w.paths);

	vec_each(&p->samples, s)
		if (!rc && is_blocked(s))
			rc = vec_push(&w.rows, wake_of(p, tree, &w.paths, s));
	if (rc) {
		profile_wakes_release(&w);
		return err_nomem(err);
	}
	merge_rows(p, &w);
	*ret = w;
	return 0;
}

void profile_wakes_release(struct profile_wakes *w)
{
	vec_release(&w->rows);
	profile_tree_release(&w->paths);
}

const struct profile_wake *profile_wakes_of(
	const struct profile_wakes *w, uint32_t node, size_t *ret_count)
{
	size_t low = 0, high = w->rows.len, end;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (w->rows.data[middle].node < node)
			low = middle + 1;
		else
			high = middle;
	}
	for (end = low; end < w->rows.len && w->rows.data[end].node == node; end++)
		;
	*ret_count = end - low;
	return *ret_count ? &w->rows.data[low] : NULL;
}
