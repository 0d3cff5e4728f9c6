/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The call tree in lines of text. Depth is not shown by indentation: stacks are deep and screens
 * are narrow. Only a place where the time divides indents what follows.
 *
 *	 98.2%  main
 *	 97.1%  aeMain
 *	 60.2%  ├ readQueryFromClient
 *	 60.0%  │ processInputBuffer
 *	 36.9%  └ beforeSleep
 *
 * The summary goes further and writes a chain that keeps most of its time together as one line.
 * Walks are loops over an explicit stack: a tree may be deeper than ours.
 */
#include <stdlib.h>
#include <string.h>

#include "view/view_priv.h"

struct branches {
	const struct profile *p;
	const struct view_options *o;
	struct profile_tree tree;
	struct buf *out;
	char *shown; /* by node: heads of chains that are drawn; NULL: whoever has min_percent */
	double min_percent;
	struct buf prefix;  /* the vertical lines left of the current node */
	VEC(struct visit) stack;
	VEC(uint32_t) children;
};

struct visit {
	uint32_t node;
	size_t prefix_len;
	bool branch, last; /* one of several children; the last of them */
};

/* A chain goes on as long as one child keeps this much of what its head holds. */
#define CHAIN_PERCENT 85.0

/* Deeper divisions than this are drawn without further indentation. */
#define MAX_INDENTS 40

static const struct tree_node *node_at(const struct branches *b, uint32_t node)
{
	return &b->tree.nodes.data[node];
}

static double node_share(const struct branches *b, uint32_t node)
{
	const struct tree_node *n = node_at(b, node);

	return share_of(b->p, n->total, n->total_weight);
}

static int heavier(const void *left, const void *right, void *tree)
{
	const struct profile_tree *t = tree;
	const struct tree_node *a = &t->nodes.data[*(const uint32_t *)left];
	const struct tree_node *b = &t->nodes.data[*(const uint32_t *)right];

	if (a->total_weight != b->total_weight)
		return a->total_weight < b->total_weight ? 1 : -1;
	if (a->total != b->total)
		return a->total < b->total ? 1 : -1;
	return (a > b) - (a < b);
}

/* Fills b->children with the children that are drawn, heaviest first. */
static int list_children(struct branches *b, uint32_t node)
{
	b->children.len = 0;
	for (uint32_t c = node_at(b, node)->first_child; c != PROFILE_NONE;
		c = node_at(b, c)->next_sibling) {
		if (b->shown ? !b->shown[c] : node_share(b, c) < b->min_percent)
			continue;
		if (vec_push(&b->children, c))
			return -ENOMEM;
	}
	if (b->children.len)
		qsort_r(b->children.data, b->children.len, sizeof(uint32_t), heavier, &b->tree);
	return 0;
}

static uint32_t heaviest_child(const struct branches *b, uint32_t node)
{
	uint32_t best = PROFILE_NONE;

	for (uint32_t c = node_at(b, node)->first_child; c != PROFILE_NONE;
		c = node_at(b, c)->next_sibling)
		if (best == PROFILE_NONE || node_share(b, c) > node_share(b, best))
			best = c;
	return best;
}

static uint32_t chain_tail(const struct branches *b, uint32_t head)
{
	double enough = node_share(b, head) * CHAIN_PERCENT / 100;
	uint32_t tail = head, next;

	while ((next = heaviest_child(b, tail)) != PROFILE_NONE && node_share(b, next) >= enough)
		tail = next;
	return tail;
}

/* ---- one line ---- */

static const char *node_name(const struct branches *b, uint32_t node)
{
	return b->p->functions.data[node_at(b, node)->function].name;
}

static size_t add_node(struct branches *b, struct buf *line, uint32_t node, size_t columns)
{
	const struct tree_node *n = node_at(b, node);
	const struct term *t = &b->o->term;
	const char *mark = n->inlined && n->guessed ? " (inl) ?" : n->inlined ? " (inl)"
							       : n->guessed   ? " ?"
									      : "";
	size_t mark_cells = strlen(mark), room = columns > mark_cells ? columns - mark_cells : 1;
	size_t used = name_fit(line, node_name(b, node), columns ? room : 0, t->unicode);

	if (mark_cells)
		paint(line, t, PAINT_DIM, mark);
	return used + mark_cells;
}

#define CHAIN_NAME_COLUMNS 34

/* Cells one link of a chain takes, with the arrow before it. */
static size_t link_columns(const struct branches *b, uint32_t node, size_t cap)
{
	struct buf b2 = {0};
	size_t used = add_node((struct branches *)b, &b2, node, cap);

	buf_release(&b2);
	return used + 3;
}

/* How many links at the start (*ret_head) and at the end (*ret_tail) of the chain fit: the last
 * one always, then the first, then backwards from the last. */
static void fit_chain(const struct branches *b, const uint32_t *links, size_t count,
	size_t columns, size_t *ret_head, size_t *ret_tail)
{
	size_t used = link_columns(b, links[count - 1], CHAIN_NAME_COLUMNS);
	size_t more = 12; /* "… 12 more …" */

	*ret_head = 0;
	*ret_tail = 1;
	for (size_t taken = 1; taken < count; taken++) {
		bool first = taken == 1;
		uint32_t next = first ? links[0] : links[count - taken];
		size_t need = link_columns(b, next, CHAIN_NAME_COLUMNS);

		if (columns && used + need + (taken + 1 < count ? more : 0) > columns)
			return;
		used += need;
		if (first)
			*ret_head = 1;
		else
			++*ret_tail;
	}
}

static void draw_chain(struct branches *b, const uint32_t *links, size_t count, size_t columns)
{
	const struct term *t = &b->o->term;
	const char *arrow = t->unicode ? " › " : " > ";
	size_t head, tail;

	if (count == 1) {
		add_node(b, b->out, links[0], columns);
		return;
	}
	fit_chain(b, links, count, columns, &head, &tail);
	for (size_t i = 0; i < count; i++) {
		if (i >= head && i < count - tail) {
			paint_on(b->out, t, PAINT_DIM);
			buf_printf(b->out, "%s%s%zu more", i ? arrow : "", t->unicode ? "…" : "..",
				count - tail - head);
			paint_off(b->out, t, PAINT_DIM);
			i = count - tail;
		}
		if (i)
			paint(b->out, t, PAINT_DIM, arrow);
		/* The last link may use what room there is when it stands nearly alone. */
		add_node(b, b->out, links[i],
			i == count - 1 && tail == 1 && !head && columns > CHAIN_NAME_COLUMNS + 15
				? columns - 15
				: CHAIN_NAME_COLUMNS);
	}
}

#define PERCENT_COLUMNS 8

static int draw_line(struct branches *b, const struct visit *v, uint32_t tail)
{
	const struct term *t = &b->o->term;
	size_t columns = t->columns;
	VEC(uint32_t) links = {0};
	int rc = 0;

	paint_percent(b->out, t, node_share(b, v->node));
	buf_str(b->out, "  ");
	paint_on(b->out, t, PAINT_DIM);
	if (b->prefix.len)
		buf_str(b->out, b->prefix.data);
	if (v->branch)
		buf_str(b->out, t->unicode ? (v->last ? "└ " : "├ ") : (v->last ? "` " : "| "));
	paint_off(b->out, t, PAINT_DIM);
	if (columns) {
		size_t used = PERCENT_COLUMNS + (b->prefix.len ? term_width(b->prefix.data) : 0) +
			      (v->branch ? 2 : 0);

		columns = columns > used + 10 ? columns - used : 10;
	}
	for (uint32_t n = tail; !rc; n = node_at(b, n)->parent) {
		rc = vec_push(&links, n);
		if (n == v->node)
			break;
	}
	for (size_t i = 0, j = links.len; !rc && i + 1 < j; i++) {
		uint32_t swap = links.data[i];

		links.data[i] = links.data[--j];
		links.data[j] = swap;
	}
	if (!rc)
		draw_chain(b, links.data, links.len, columns);
	buf_char(b->out, '\n');
	vec_release(&links);
	return rc;
}

/* ---- the walk ---- */

static void truncate_prefix(struct buf *prefix, size_t len)
{
	if (prefix->data) {
		prefix->len = len;
		prefix->data[len] = '\0';
	}
}

/* Pushes the drawn children of `node`, the heaviest on top of the stack. In the summary every line
 * below another stands further in; in the whole tree only divisions do. */
static int push_children(struct branches *b, uint32_t node)
{
	if (list_children(b, node))
		return -ENOMEM;

	bool divides = b->shown ? node != 0 : b->children.len > 1;
	bool branch = divides && b->prefix.len < MAX_INDENTS * 4;

	for (size_t i = b->children.len; i-- > 0;) {
		struct visit v = {.node = b->children.data[i], .prefix_len = b->prefix.len,
			.branch = branch, .last = i + 1 == b->children.len};

		if (vec_push(&b->stack, v))
			return -ENOMEM;
	}
	return 0;
}

static int walk(struct branches *b)
{
	int rc = push_children(b, 0);

	while (!rc && b->stack.len) {
		struct visit v = b->stack.data[--b->stack.len];
		uint32_t tail = b->shown ? chain_tail(b, v.node) : v.node;

		truncate_prefix(&b->prefix, v.prefix_len);
		rc = draw_line(b, &v, tail);
		if (v.branch)
			buf_str(&b->prefix, v.last ? "  " : b->o->term.unicode ? "│ " : "| ");
		if (!rc)
			rc = push_children(b, tail);
	}
	return b->prefix.failed ? -ENOMEM : rc;
}

/* ---- choosing what the summary shows ---- */

#define MIN_CHAIN_PERCENT 0.5

/* Marks the `limit` heaviest chains. A child is never heavier than its parent, so taking the
 * heaviest candidate first never shows a child without it. */
static int choose(struct branches *b, size_t limit)
{
	VEC(uint32_t) candidates = {0};
	uint32_t from = 0;
	int rc = 0;

	for (size_t taken = 0; !rc; taken++) {
		for (uint32_t c = node_at(b, from)->first_child; c != PROFILE_NONE && !rc;
			c = node_at(b, c)->next_sibling)
			if (node_share(b, c) >= MIN_CHAIN_PERCENT)
				rc = vec_push(&candidates, c);
		if (taken == limit || !candidates.len)
			break;

		size_t best = 0;

		for (size_t i = 1; i < candidates.len; i++)
			if (node_share(b, candidates.data[i]) >
				node_share(b, candidates.data[best]))
				best = i;
		b->shown[candidates.data[best]] = 1;
		from = chain_tail(b, candidates.data[best]);
		candidates.data[best] = candidates.data[--candidates.len];
	}
	vec_release(&candidates);
	return rc;
}

static int finish(struct branches *b, int rc, struct err *err)
{
	rc = rc || b->out->failed ? err_nomem(err) : 0;
	free(b->shown);
	buf_release(&b->prefix);
	vec_release(&b->stack);
	vec_release(&b->children);
	profile_tree_release(&b->tree);
	return rc;
}

int branches_hottest(const struct profile *p, const struct view_options *o, size_t limit,
	struct buf *out, struct err *err)
{
	struct branches b = {.p = p, .o = o, .out = out};
	int rc = profile_tree_build(p, o->inverted, &b.tree, err);

	if (rc)
		return rc;
	b.shown = calloc(b.tree.nodes.len, 1);
	rc = b.shown ? choose(&b, limit) : -ENOMEM;
	return finish(&b, rc ? rc : walk(&b), err);
}

/* Says how many branches were too small to draw: the first of each that is. */
static void tell_left_out(struct branches *b)
{
	uint64_t count = 0;

	for (uint32_t i = 1; i < b->tree.nodes.len; i++) {
		uint32_t parent = node_at(b, i)->parent;

		if (node_share(b, i) < b->min_percent &&
			(!parent || node_share(b, parent) >= b->min_percent))
			count++;
	}
	if (!count)
		return;
	buf_char(b->out, '(');
	words_count(b->out, count);
	buf_printf(b->out, count == 1 ? " branch below %g%% left out)\n"
				      : " branches below %g%% left out)\n",
		b->min_percent);
}

int branches_all(const struct profile *p, const struct view_options *o, double min_percent,
	struct buf *out, struct err *err)
{
	struct branches b = {.p = p, .o = o, .out = out, .min_percent = min_percent};
	int rc = profile_tree_build(p, o->inverted, &b.tree, err);

	if (rc)
		return rc;
	rc = walk(&b);
	if (!rc)
		tell_left_out(&b);
	return finish(&b, rc, err);
}
