/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call tree: paths of functions instead of paths of addresses.
 *
 * Not inverted, the path of a stack node is that of its parent and the levels of its own frame, so
 * each node is looked at once and remembers where its path ends. Inverted, paths begin at the
 * leaves and share nothing that is known before they are walked.
 */
#include "base/cleanup.h"
#include "base/hash.h"
#include "profile/profile_priv.h"

/* Most nodes have one child or a few: these hang in the parent's list while the tree is built, and
 * only what is beyond goes through the table, which costs a cache miss or two more. */
#define LISTED_CHILDREN 4

struct builder {
	const struct profile *p;
	struct profile_tree tree;
	struct id_table ids; /* children beyond the listed ones by (parent, function) */
};

static uint64_t child_hash(uint32_t parent, uint32_t function)
{
	return hash_u64((uint64_t)parent << 32 | function);
}

static uint64_t child_hash_of(const void *ctx, uint32_t index)
{
	const struct tree_node *n = &((const struct builder *)ctx)->tree.nodes.data[index];

	return child_hash(n->parent, n->function);
}

static int add_node(struct builder *b, uint32_t parent, uint32_t function, bool inlined)
{
	if (b->tree.nodes.len >= PROFILE_NONE - 1)
		return -ENOMEM;
	return vec_push(&b->tree.nodes, (struct tree_node){
						.function = function,
						.parent = parent,
						.first_child = PROFILE_NONE,
						.next_sibling = PROFILE_NONE,
						.inlined = inlined,
					});
}

/* The child in the table, for those beyond LISTED_CHILDREN. */
static uint32_t find_tabled(const struct builder *b, uint32_t parent, uint32_t function)
{
	struct id_probe probe = id_probe_start(&b->ids, child_hash(parent, function));

	while (id_probe_next(&b->ids, &probe)) {
		const struct tree_node *n = &b->tree.nodes.data[probe.id];
		if (n->parent == parent && n->function == function)
			return probe.id;
	}
	return PROFILE_NONE;
}

/* The child of a tree node for a function; PROFILE_NONE when out of memory. */
static uint32_t child(struct builder *b, uint32_t parent, uint32_t function, bool inlined)
{
	uint32_t index = b->tree.nodes.data[parent].first_child, listed = 0;

	for (; index != PROFILE_NONE; index = b->tree.nodes.data[index].next_sibling, listed++)
		if (b->tree.nodes.data[index].function == function)
			break;
	if (index == PROFILE_NONE && listed == LISTED_CHILDREN)
		index = find_tabled(b, parent, function);
	if (index != PROFILE_NONE) {
		b->tree.nodes.data[index].inlined &= inlined;
		return index;
	}
	index = (uint32_t)b->tree.nodes.len;
	if (listed == LISTED_CHILDREN && id_table_reserve(&b->ids, child_hash_of, b))
		return PROFILE_NONE;
	if (add_node(b, parent, function, inlined))
		return PROFILE_NONE;
	if (listed == LISTED_CHILDREN) {
		id_table_add(&b->ids, child_hash(parent, function), index);
	} else {
		b->tree.nodes.data[index].next_sibling = b->tree.nodes.data[parent].first_child;
		b->tree.nodes.data[parent].first_child = index;
	}
	return index;
}

static void add_self(struct builder *b, uint32_t at, const struct node_weight *w)
{
	struct tree_node *n = &b->tree.nodes.data[at];

	n->self += w->samples;
	n->self_weight += w->weight;
}

static const struct profile_frame *frame_of(const struct profile *p, uint32_t node)
{
	return &p->frames.data[p->nodes.data[node].frame];
}

/* Marks the path's last `count` nodes. */
static void mark_guessed(struct builder *b, uint32_t at, uint32_t count)
{
	for (; count; count--, at = b->tree.nodes.data[at].parent)
		b->tree.nodes.data[at].guessed = true;
}

/* ---- not inverted ---- */

/* Extends the path that ends at `at` by the levels of a frame, outermost first. */
static uint32_t extend(struct builder *b, uint32_t at, const struct profile_frame *f)
{
	for (uint32_t i = f->level_count; i-- > 0 && at != PROFILE_NONE;) {
		const struct profile_level *level = &b->p->levels.data[f->first_level + i];

		at = child(b, at, level->function, level->inlined);
	}
	return at;
}

/* Hangs the stacks of one class under `base`. `ends`: where the path of each node ends. */
static int hang_stacks(
	struct builder *b, uint32_t base, const struct node_weight *subtree, uint32_t *ends)
{
	const struct profile *p = b->p;

	for (uint32_t i = 0; i < p->nodes.len; i++) {
		const struct profile_frame *f = frame_of(p, i);
		uint32_t parent = p->nodes.data[i].parent;

		if (!subtree[i].samples)
			continue;
		ends[i] = extend(b, parent == PROFILE_NONE ? base : ends[parent], f);
		if (ends[i] == PROFILE_NONE)
			return -ENOMEM;
		if (frame_is_guess(f, NULL))
			mark_guessed(b, ends[i], f->level_count);
		if (parent != PROFILE_NONE && frame_is_guess(frame_of(p, parent), f))
			mark_guessed(b, ends[parent], frame_of(p, parent)->level_count);
	}
	return 0;
}

/* *ret_ends: as in struct profile_tree. */
static int build_class(struct builder *b, uint32_t base, const struct node_weight *weights,
	uint32_t **ret_ends)
{
	uint32_t *ends = *ret_ends = malloc((b->p->nodes.len + 1) * sizeof(*ends));
	autofree struct node_weight *subtree =
		malloc((b->p->nodes.len + 1) * sizeof(*subtree));

	if (!ends || !subtree)
		return -ENOMEM;
	for (size_t i = 0; i < b->p->nodes.len; i++)
		subtree[i] = weights[i];
	leaf_weights_sum(b->p, subtree);
	if (hang_stacks(b, base, subtree, ends))
		return -ENOMEM;
	for (size_t i = 0; i < b->p->nodes.len; i++)
		if (weights[i].samples)
			add_self(b, ends[i], &weights[i]);
	return 0;
}

static int build_upright(struct builder *b, const struct leaf_weights *w)
{
	if (build_class(b, 0, w->by_node[STACK_ROOTED], &b->tree.ends[STACK_ROOTED]))
		return -ENOMEM;
	if (!w->any_cut)
		return 0;

	uint32_t base = child(b, 0, b->p->truncated_function, false);

	if (base == PROFILE_NONE)
		return -ENOMEM;
	add_self(b, base, &w->no_stack);
	return build_class(b, base, w->by_node[STACK_CUT], &b->tree.ends[STACK_CUT]);
}

/* ---- inverted ---- */

/*
 * The stacks of all leaves climb together. A group of them stands at one tree node; the next
 * functions of its members split it into the groups of the children. A group of one, and most
 * groups soon are, becomes a chain without comparing anything.
 */
struct climber {
	uint32_t node;     /* PROFILE_NONE: the stack has been climbed */
	uint32_t level;    /* of its frame; the next one to hang */
	uint32_t function; /* of that level */
	uint8_t guess;     /* whether the frame is one */
	uint8_t inlined;
	struct node_weight weight;
};

struct group {
	uint32_t at; /* tree node */
	uint32_t depth;
	size_t begin, end; /* of the climbers */
};

struct ascent {
	struct builder *b;
	VEC(struct climber) climbers;
	VEC(struct group) groups; /* still to be split */
};

/* Sets what follows from `node` and `level`; `inner`: the frame called by the node's frame. */
static void look(const struct profile *p, struct climber *c, const struct profile_frame *inner)
{
	const struct profile_frame *f = frame_of(p, c->node);
	const struct profile_level *level = &p->levels.data[f->first_level + c->level];

	if (!c->level)
		c->guess = frame_is_guess(f, inner);
	c->function = level->function;
	c->inlined = level->inlined;
}

static void climb(const struct profile *p, struct climber *c)
{
	const struct profile_frame *f = frame_of(p, c->node);

	if (++c->level >= f->level_count) {
		c->node = p->nodes.data[c->node].parent;
		c->level = 0;
	}
	if (c->node == PROFILE_NONE)
		c->function = PROFILE_NONE; /* sorts last */
	else
		look(p, c, f);
}

static int start_climbing(struct ascent *a, const struct leaf_weights *w)
{
	for (uint32_t i = 0; i < a->b->p->nodes.len; i++) {
		const struct node_weight *rooted = &w->by_node[STACK_ROOTED][i];
		const struct node_weight *cut = &w->by_node[STACK_CUT][i];
		struct climber c = {
			.node = i,
			.weight.samples = rooted->samples + cut->samples,
			.weight.weight = rooted->weight + cut->weight,
		};

		if (!c.weight.samples)
			continue;
		look(a->b->p, &c, NULL);
		if (vec_push(&a->climbers, c))
			return -ENOMEM;
	}
	if (!a->climbers.len)
		return 0;
	return vec_push(&a->groups, (struct group){.end = a->climbers.len});
}

static int compare_climbers(const void *a, const void *b)
{
	const struct climber *x = a, *y = b;

	return (x->function > y->function) - (x->function < y->function);
}

static void sort_climbers(struct climber *c, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		if (c[i - 1].function <= c[i].function)
			continue;
		qsort(c, count, sizeof(*c), compare_climbers);
		return;
	}
}

/* Adds the child for climbers [begin, end), who all go to the same function, and moves them on. */
static int hang_group(struct ascent *a, const struct group *g, size_t begin, size_t end)
{
	struct climber *c = a->climbers.data;
	struct group next = {.depth = g->depth + 1, .begin = begin, .end = end};

	if (add_node(a->b, g->at, c[begin].function, true))
		return -ENOMEM;
	next.at = (uint32_t)a->b->tree.nodes.len - 1;

	struct tree_node *n = &a->b->tree.nodes.data[next.at];

	for (size_t i = begin; i < end; i++) {
		n->inlined &= c[i].inlined;
		n->guessed |= c[i].guess;
		climb(a->b->p, &c[i]);
	}
	return vec_push(&a->groups, next);
}

static int split_group(struct ascent *a, const struct group *g)
{
	struct climber *c = a->climbers.data;

	sort_climbers(c + g->begin, g->end - g->begin);
	for (size_t i = g->begin, run; i < g->end; i = run) {
		for (run = i + 1; run < g->end && c[run].function == c[i].function; run++)
			;
		if (c[i].function != PROFILE_NONE && g->depth < PROFILE_INVERTED_DEPTH) {
			if (hang_group(a, g, i, run))
				return -ENOMEM;
			continue;
		}
		for (size_t k = i; k < run; k++)
			add_self(a->b, g->at, &c[k].weight);
	}
	return 0;
}

static int build_inverted(struct builder *b, const struct leaf_weights *w)
{
	struct ascent a = {.b = b};
	int rc = start_climbing(&a, w);

	while (!rc && a.groups.len) {
		struct group g = a.groups.data[--a.groups.len];

		rc = split_group(&a, &g);
	}
	vec_release(&a.climbers);
	vec_release(&a.groups);
	if (rc || !w->no_stack.samples)
		return rc;
	rc = add_node(b, 0, b->p->truncated_function, false);
	if (!rc)
		add_self(b, (uint32_t)b->tree.nodes.len - 1, &w->no_stack);
	return rc;
}

/* ---- totals and order ---- */

/* Parents stand before their children in a tree too. Makes the lists of children anew, whole. */
static void sum_totals(struct profile_tree *t)
{
	vec_each(&t->nodes, n)
		n->first_child = PROFILE_NONE;
	for (size_t i = t->nodes.len; i-- > 0;) {
		struct tree_node *n = &t->nodes.data[i];

		n->total += n->self;
		n->total_weight += n->self_weight;
		if (!i)
			return;

		struct tree_node *parent = &t->nodes.data[n->parent];

		parent->total += n->total;
		parent->total_weight += n->total_weight;
		n->next_sibling = parent->first_child;
		parent->first_child = (uint32_t)i;
	}
}

static int compare_children(const void *a, const void *b, void *ctx)
{
	const struct tree_node *nodes = ctx;
	const struct tree_node *x = &nodes[*(const uint32_t *)a], *y = &nodes[*(const uint32_t *)b];

	if (x->total_weight != y->total_weight)
		return (x->total_weight < y->total_weight) - (x->total_weight > y->total_weight);
	if (x->total != y->total)
		return (x->total < y->total) - (x->total > y->total);
	return (x->function > y->function) - (x->function < y->function);
}

VEC_TYPE(index_vec, uint32_t);

static int sort_children(struct profile_tree *t, struct tree_node *n, struct index_vec *scratch)
{
	uint32_t *link = &n->first_child;

	scratch->len = 0;
	for (uint32_t i = n->first_child; i != PROFILE_NONE; i = t->nodes.data[i].next_sibling)
		if (vec_push(scratch, i))
			return -ENOMEM;
	if (scratch->len < 2)
		return 0;
	qsort_r(scratch->data, scratch->len, sizeof(*scratch->data), compare_children,
		t->nodes.data);
	vec_each(scratch, i) {
		*link = *i;
		link = &t->nodes.data[*i].next_sibling;
	}
	*link = PROFILE_NONE;
	return 0;
}

static int sort_tree(struct profile_tree *t)
{
	struct index_vec scratch = {0};
	int rc = 0;

	vec_each(&t->nodes, n)
		if (!rc && n->first_child != PROFILE_NONE)
			rc = sort_children(t, n, &scratch);
	vec_release(&scratch);
	return rc;
}

/* Sums up and sorts what was built, or gives it up after a failure. */
static int finish_tree(struct builder *b, int rc, struct profile_tree *ret)
{
	id_table_release(&b->ids);
	if (!rc) {
		sum_totals(&b->tree);
		rc = sort_tree(&b->tree);
	}
	if (rc)
		profile_tree_release(&b->tree);
	else
		*ret = b->tree;
	return rc;
}

int tree_of_stacks(const struct profile *p, const struct node_weight *by_node,
	struct profile_tree *ret)
{
	struct builder b = {.p = p};
	int rc = add_node(&b, PROFILE_NONE, PROFILE_NONE, false);

	if (!rc)
		rc = build_class(&b, 0, by_node, &b.tree.ends[STACK_ROOTED]);
	return finish_tree(&b, rc, ret);
}

int profile_tree_build(
	const struct profile *p, bool inverted, struct profile_tree *ret, struct err *err)
{
	struct builder b = {.p = p};
	struct leaf_weights w;

	if (leaf_weights_init(p, &w))
		return err_nomem(err);

	int rc = add_node(&b, PROFILE_NONE, PROFILE_NONE, false);

	if (!rc)
		rc = inverted ? build_inverted(&b, &w) : build_upright(&b, &w);
	leaf_weights_release(&w);
	return finish_tree(&b, rc, ret) ? err_nomem(err) : 0;
}

void profile_tree_release(struct profile_tree *t)
{
	vec_release(&t->nodes);
	free(t->ends[STACK_ROOTED]);
	free(t->ends[STACK_CUT]);
	t->ends[STACK_ROOTED] = t->ends[STACK_CUT] = NULL;
}
