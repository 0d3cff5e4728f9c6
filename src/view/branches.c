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
 * Below where threads waited stands who ended that:
 *
 *	 20.0%  lock › [futex]
 *	 19.2%    woken by holder (server): worker › unlock
 *
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
	struct chain chain;
	struct profile_wakes wakes; /* empty when they are not shown */
	size_t max_wakes;           /* lines below one node */
	double min_wake;            /* of the node's time, in percent */
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

static const struct profile_function *function_at(const struct branches *b, uint32_t node)
{
	return &b->p->functions.data[node_at(b, node)->function];
}

/* Whether nothing but waiting is at or below this node. */
static bool only_waits(const struct branches *b, uint32_t node)
{
	if (function_at(b, node)->state != STATE_ON_CPU)
		return true;
	if (node_at(b, node)->self || node_at(b, node)->first_child == PROFILE_NONE)
		return false;
	for (uint32_t c = node_at(b, node)->first_child; c != PROFILE_NONE;
		c = node_at(b, c)->next_sibling)
		if (function_at(b, c)->state == STATE_ON_CPU)
			return false;
	return true;
}

/* The links from `head` to `tail` into b->chain. */
static int gather_chain(struct branches *b, uint32_t head, uint32_t tail)
{
	int rc = 0;

	b->chain.len = 0;
	for (uint32_t n = tail; !rc; n = node_at(b, n)->parent) {
		const struct profile_function *f = function_at(b, n);

		rc = vec_push(&b->chain, (struct chain_link){.name = f->name,
						 .inlined = node_at(b, n)->inlined,
						 .guessed = node_at(b, n)->guessed,
						 .aside = f->state != STATE_ON_CPU});
		if (n == head)
			break;
	}
	chain_reverse(b->chain.data, b->chain.len);
	return rc;
}

#define PERCENT_COLUMNS 8
#define LEAST_COLUMNS 10

/* What is left of a line of the terminal behind so many columns; 0: no limit. */
static size_t columns_behind(const struct branches *b, size_t used)
{
	size_t all = b->o->term.columns;

	if (!all)
		return 0;
	return all > used + LEAST_COLUMNS ? all - used : LEAST_COLUMNS;
}

/* Percent, by its colour as hot as it is (waiting is not), and vertical lines; returns the columns they took. */
static size_t start_line(struct branches *b, double share, bool hot)
{
	const struct term *t = &b->o->term;

	if (hot)
		paint_percent(b->out, t, share);
	else
		words_percent(b->out, share);
	buf_str(b->out, "  ");
	if (!b->prefix.len)
		return PERCENT_COLUMNS;
	paint(b->out, t, PAINT_DIM, b->prefix.data);
	return PERCENT_COLUMNS + term_width(b->prefix.data);
}

static int draw_line(struct branches *b, const struct visit *v, uint32_t tail)
{
	const struct term *t = &b->o->term;
	size_t used = start_line(b, node_share(b, v->node), !only_waits(b, tail));

	if (v->branch) {
		paint(b->out, t, PAINT_DIM,
			t->unicode ? (v->last ? "└ " : "├ ") : (v->last ? "` " : "| "));
		used += 2;
	}
	if (gather_chain(b, v->node, tail))
		return -ENOMEM;
	chain_draw(b->out, t, b->chain.data, b->chain.len, columns_behind(b, used));
	buf_char(b->out, '\n');
	return 0;
}

/* ---- who ended the waits ---- */

/* Those that are not worth a line of their own. */
static void draw_rest(struct branches *b, uint64_t weight, size_t count)
{
	const struct term *t = &b->o->term;

	start_line(b, share_of(b->p, count, weight), false);
	paint_on(b->out, t, PAINT_DIM);
	buf_str(b->out, "  woken in ");
	words_count(b->out, count);
	buf_str(b->out, count == 1 ? " other way" : " other ways");
	paint_off(b->out, t, PAINT_DIM);
	buf_char(b->out, '\n');
}

static int draw_wake(struct branches *b, const struct profile_wake *w)
{
	const struct term *t = &b->o->term;
	size_t used = start_line(b, share_of(b->p, w->samples, w->weight), false);
	struct buf words = {0};
	int rc = 0;

	words_wake(&words, b->p, w);
	buf_str(b->out, "  ");
	paint(b->out, t, PAINT_DIM, words.data ? words.data : "");
	used += 2 + (words.data ? term_width(words.data) : 0);
	b->out->failed |= words.failed;
	buf_release(&words);
	if (w->path != PROFILE_NONE && !(rc = chain_of_node(b->p, &b->wakes.paths, w->path,
						 &b->chain)) && b->chain.len) {
		paint(b->out, t, PAINT_DIM, ": ");
		chain_draw(b->out, t, b->chain.data, b->chain.len, columns_behind(b, used + 2));
	}
	buf_char(b->out, '\n');
	return rc;
}

/* What is drawn of the rows of a node: the heaviest, others that are worth it, and a line for the
 * rest if that is. */
struct shown_wakes {
	const struct profile_wake *rows;
	size_t count; /* with a line of their own */
	size_t rest;  /* together in one, 0: no such line */
	uint64_t rest_weight;
};

static struct shown_wakes wakes_of(const struct branches *b, uint32_t node)
{
	uint64_t whole = node_at(b, node)->self_weight;
	struct shown_wakes s = {0};
	size_t all;

	s.rows = profile_wakes_of(&b->wakes, node, &all);
	while (s.count < all && s.count < b->max_wakes &&
		(!s.count || percent_of(s.rows[s.count].weight, whole) >= b->min_wake))
		s.count++;
	for (size_t i = s.count; i < all; i++)
		s.rest_weight += s.rows[i].weight;
	if (percent_of(s.rest_weight, whole) >= b->min_wake)
		s.rest = all - s.count;
	return s;
}

/* How many lines draw_wakes() takes. */
static size_t wake_lines(const struct branches *b, uint32_t node)
{
	struct shown_wakes s = wakes_of(b, node);

	return s.count + !!s.rest;
}

static int draw_wakes(struct branches *b, uint32_t node)
{
	struct shown_wakes s = wakes_of(b, node);
	int rc = 0;

	for (size_t i = 0; i < s.count && !rc; i++)
		rc = draw_wake(b, &s.rows[i]);
	if (s.rest && !rc)
		draw_rest(b, s.rest_weight, s.rest);
	return rc;
}

/* In recordings where nobody looked, and from the leaves up, there is nothing to say. */
static int find_wakes(struct branches *b, size_t most, double min_percent)
{
	b->max_wakes = most;
	b->min_wake = min_percent;
	if (!b->p->wakers_known || b->o->inverted)
		return 0;
	return profile_wakes_build(b->p, &b->tree, &b->wakes, NULL);
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
			rc = draw_wakes(b, tail);
		if (!rc)
			rc = push_children(b, tail);
	}
	return b->prefix.failed ? -ENOMEM : rc;
}

/* ---- choosing what the summary shows ---- */

#define MIN_CHAIN_PERCENT 0.5

/* How many lines say who ended one wait, and how much of it each is worth. */
#define SUMMARY_WAKES 2
#define SUMMARY_WAKE_PERCENT 10
#define TREE_WAKES 5
#define TREE_WAKE_PERCENT 1

/* Marks the `limit` heaviest chains. A child is never heavier than its parent, so taking the
 * heaviest candidate first never shows a child without it. */
static int choose(struct branches *b, size_t limit)
{
	VEC(uint32_t) candidates = {0};
	uint32_t from = 0;
	int rc = 0;

	for (size_t lines = 0; !rc;) {
		for (uint32_t c = node_at(b, from)->first_child; c != PROFILE_NONE && !rc;
			c = node_at(b, c)->next_sibling)
			if (node_share(b, c) >= MIN_CHAIN_PERCENT)
				rc = vec_push(&candidates, c);
		if (lines >= limit || !candidates.len)
			break;

		size_t best = 0;

		for (size_t i = 1; i < candidates.len; i++)
			if (node_share(b, candidates.data[i]) >
				node_share(b, candidates.data[best]))
				best = i;
		b->shown[candidates.data[best]] = 1;
		from = chain_tail(b, candidates.data[best]);
		lines += 1 + wake_lines(b, from);
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
	vec_release(&b->chain);
	profile_wakes_release(&b->wakes);
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
	rc = b.shown ? find_wakes(&b, SUMMARY_WAKES, SUMMARY_WAKE_PERCENT) : -ENOMEM;
	if (!rc)
		rc = choose(&b, limit);
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
	rc = find_wakes(&b, TREE_WAKES, TREE_WAKE_PERCENT);
	if (!rc)
		rc = walk(&b);
	if (!rc)
		tell_left_out(&b);
	return finish(&b, rc, err);
}
