/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Counting functions. Samples are first gathered on the leaves of their stacks; everything after
 * that costs the number of stack nodes and not the number of samples times their depth.
 */
#include "base/cleanup.h"
#include "profile/profile_priv.h"

void leaf_weights_release(struct leaf_weights *w)
{
	for (size_t i = 0; i < STACK_CLASS_COUNT; i++)
		free(w->by_node[i]);
	*w = (struct leaf_weights){0};
}

int leaf_weights_init(const struct profile *p, struct leaf_weights *ret)
{
	struct leaf_weights w = {0};

	for (size_t i = 0; i < STACK_CLASS_COUNT; i++)
		w.by_node[i] = calloc(p->nodes.len + 1, sizeof(*w.by_node[i]));
	if (!w.by_node[STACK_ROOTED] || !w.by_node[STACK_CUT]) {
		leaf_weights_release(&w);
		return -ENOMEM;
	}
	for (size_t i = 0; i < p->samples.len; i++) {
		const struct profile_sample *s = &p->samples.data[i];
		struct node_weight *at = &w.no_stack;

		if (s->stack != PROFILE_NONE)
			at = &w.by_node[s->end == UNWIND_ROOT ? STACK_ROOTED : STACK_CUT][s->stack];
		at->samples++;
		at->weight += s->weight;
		w.any_cut |= s->stack == PROFILE_NONE || s->end != UNWIND_ROOT;
	}
	*ret = w;
	return 0;
}

void leaf_weights_sum(const struct profile *p, struct node_weight *by_node)
{
	/* Parents stand before their children. */
	for (size_t i = p->nodes.len; i-- > 0;) {
		uint32_t parent = p->nodes.data[i].parent;

		if (parent == PROFILE_NONE)
			continue;
		by_node[parent].samples += by_node[i].samples;
		by_node[parent].weight += by_node[i].weight;
	}
}

size_t profile_stack_levels(
	const struct profile *p, uint32_t node, uint32_t *ret_levels, size_t limit)
{
	size_t count = 0;

	for (; node != PROFILE_NONE; node = p->nodes.data[node].parent) {
		const struct profile_frame *f = &p->frames.data[p->nodes.data[node].frame];

		for (uint32_t i = 0; i < f->level_count; i++, count++)
			if (count < limit)
				ret_levels[count] = f->first_level + i;
	}
	return count;
}

/* ---- functions ---- */

static void count_self(const struct profile *p, const struct leaf_weights *w,
	struct profile_count *counts)
{
	struct profile_count *truncated = &counts[p->truncated_function];

	truncated->self = truncated->total = w->no_stack.samples;
	truncated->self_weight = truncated->total_weight = w->no_stack.weight;
	for (size_t i = 0; i < p->nodes.len; i++) {
		const struct node_weight *rooted = &w->by_node[STACK_ROOTED][i];
		const struct node_weight *cut = &w->by_node[STACK_CUT][i];
		const struct profile_frame *f = &p->frames.data[p->nodes.data[i].frame];
		struct profile_count *c = &counts[p->levels.data[f->first_level].function];

		c->self += rooted->samples + cut->samples;
		c->self_weight += rooted->weight + cut->weight;
		truncated->total += cut->samples;
		truncated->total_weight += cut->weight;
	}
}

/* The stack nodes as a tree to be walked from the roots down. */
struct descent {
	const struct profile *p;
	uint32_t *first_child, *next_sibling;
	uint32_t *on_path; /* by function: how often it is on the path to the current node */
	const struct node_weight *subtree;
	struct profile_count *counts;
};

static int descent_init(struct descent *d)
{
	size_t n = d->p->nodes.len;
	uint32_t roots = PROFILE_NONE;

	d->first_child = malloc((n + 1) * sizeof(*d->first_child));
	d->next_sibling = malloc((n + 1) * sizeof(*d->next_sibling));
	d->on_path = calloc(d->p->functions.len, sizeof(*d->on_path));
	if (!d->first_child || !d->next_sibling || !d->on_path)
		return -ENOMEM;
	for (size_t i = 0; i < n; i++)
		d->first_child[i] = PROFILE_NONE;
	for (size_t i = n; i-- > 0;) {
		uint32_t parent = d->p->nodes.data[i].parent;
		uint32_t *list = parent == PROFILE_NONE ? &roots : &d->first_child[parent];

		/* What no sample has passed through is left out. */
		if (!d->subtree[i].samples)
			continue;
		d->next_sibling[i] = *list;
		*list = (uint32_t)i;
	}
	d->first_child[n] = roots; /* the place behind the last node stands for all of them */
	return 0;
}

static void descent_release(struct descent *d)
{
	free(d->first_child);
	free(d->next_sibling);
	free(d->on_path);
}

static void enter_node(struct descent *d, uint32_t node)
{
	const struct profile_frame *f = &d->p->frames.data[d->p->nodes.data[node].frame];

	for (uint32_t i = 0; i < f->level_count; i++) {
		uint32_t function = d->p->levels.data[f->first_level + i].function;

		if (d->on_path[function]++)
			continue;
		d->counts[function].total += d->subtree[node].samples;
		d->counts[function].total_weight += d->subtree[node].weight;
	}
}

static void leave_node(struct descent *d, uint32_t node)
{
	const struct profile_frame *f = &d->p->frames.data[d->p->nodes.data[node].frame];

	for (uint32_t i = 0; i < f->level_count; i++)
		d->on_path[d->p->levels.data[f->first_level + i].function]--;
}

/* Depth first without recursion, since the depth is the file's to choose. */
static void descend(struct descent *d)
{
	uint32_t at = d->first_child[d->p->nodes.len];

	while (at != PROFILE_NONE) {
		enter_node(d, at);
		if (d->first_child[at] != PROFILE_NONE) {
			at = d->first_child[at];
			continue;
		}
		leave_node(d, at);
		while (d->next_sibling[at] == PROFILE_NONE) {
			at = d->p->nodes.data[at].parent;
			if (at == PROFILE_NONE)
				return;
			leave_node(d, at);
		}
		at = d->next_sibling[at];
	}
}

static int count_total(
	const struct profile *p, struct leaf_weights *w, struct profile_count *counts)
{
	struct node_weight *all = w->by_node[STACK_ROOTED];
	struct descent d = {.p = p, .subtree = all, .counts = counts};

	for (size_t i = 0; i < p->nodes.len; i++) {
		all[i].samples += w->by_node[STACK_CUT][i].samples;
		all[i].weight += w->by_node[STACK_CUT][i].weight;
	}
	leaf_weights_sum(p, all);

	int rc = descent_init(&d);

	if (!rc)
		descend(&d);
	descent_release(&d);
	return rc;
}

int profile_count_functions(const struct profile *p, struct profile_count **ret, struct err *err)
{
	struct leaf_weights w;
	autofree struct profile_count *counts = calloc(p->functions.len, sizeof(*counts));

	if (!counts || leaf_weights_init(p, &w))
		return err_nomem(err);
	count_self(p, &w, counts);

	int rc = count_total(p, &w, counts);

	leaf_weights_release(&w);
	if (rc)
		return err_nomem(err);
	*ret = take_ptr(counts);
	return 0;
}
