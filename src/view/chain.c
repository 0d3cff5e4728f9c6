/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A path of functions in one line, "_start › …18 more › serve › parse": the last name always, then
 * the first, then backwards from the last, as many as fit.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "view/view_priv.h"

#define NAME_COLUMNS 34

static size_t add_link(
	struct buf *out, const struct term *t, const struct chain_link *link, size_t columns)
{
	const char *mark = link->inlined && link->guessed ? " (inl) ?"
			   : link->inlined		  ? " (inl)"
			   : link->guessed		  ? " ?"
							  : "";
	size_t mark_cells = strlen(mark), room = columns > mark_cells ? columns - mark_cells : 1;
	size_t used = 0;

	paint_on(out, t, link->aside ? PAINT_NOTE : PAINT_NONE);
	used = name_fit(out, link->name, columns ? room : 0, t->unicode);
	paint_off(out, t, link->aside ? PAINT_NOTE : PAINT_NONE);
	if (mark_cells)
		paint(out, t, PAINT_DIM, mark);
	return used + mark_cells;
}

/* Cells one link takes, with the arrow before it. */
static size_t link_columns(const struct term *t, const struct chain_link *link, size_t cap)
{
	struct buf scratch = {0};
	size_t used = add_link(&scratch, t, link, cap);

	buf_release(&scratch);
	return used + 3;
}

/* How many links at the start (*ret_head) and at the end (*ret_tail) of the chain fit. */
static void fit_chain(const struct term *t, const struct chain_link *links, size_t count,
	size_t columns, size_t *ret_head, size_t *ret_tail)
{
	size_t used = link_columns(t, &links[count - 1], NAME_COLUMNS);
	size_t more = 12; /* "… 12 more …" */

	*ret_head = 0;
	*ret_tail = 1;
	for (size_t taken = 1; taken < count; taken++) {
		bool first = taken == 1;
		const struct chain_link *next = first ? &links[0] : &links[count - taken];
		size_t need = link_columns(t, next, NAME_COLUMNS);

		if (columns && used + need + (taken + 1 < count ? more : 0) > columns)
			return;
		used += need;
		if (first)
			*ret_head = 1;
		else
			++*ret_tail;
	}
}

void chain_draw(struct buf *out, const struct term *t, const struct chain_link *links,
	size_t count, size_t columns)
{
	const char *arrow = t->unicode ? " › " : " > ";
	size_t head, tail;

	if (!count)
		return;
	if (count == 1) {
		add_link(out, t, &links[0], columns);
		return;
	}
	fit_chain(t, links, count, columns, &head, &tail);
	for (size_t i = 0; i < count; i++) {
		if (i >= head && i < count - tail) {
			paint_on(out, t, PAINT_DIM);
			buf_printf(out, "%s%s%zu more", i ? arrow : "", t->unicode ? "…" : "..",
				count - tail - head);
			paint_off(out, t, PAINT_DIM);
			i = count - tail;
		}
		if (i)
			paint(out, t, PAINT_DIM, arrow);
		/* The last link may use what room there is when it stands nearly alone. */
		add_link(out, t, &links[i],
			i == count - 1 && tail == 1 && !head && columns > NAME_COLUMNS + 15
				? columns - 15
				: NAME_COLUMNS);
	}
}

void chain_reverse(struct chain_link *links, size_t count)
{
	for (size_t i = 0, j = count; i + 1 < j; i++) {
		struct chain_link swap = links[i];

		links[i] = links[--j];
		links[j] = swap;
	}
}

/* ---- what a thread was doing ---- */

/* Leaf first: frames of the kernel that user code called, or that it was interrupted by. */
static int add_function(struct chain *c, const struct profile_function *f, bool inlined,
	bool guessed, bool in_user)
{
	if (f->kernel && in_user)
		return 0;
	return vec_push(c, (struct chain_link){.name = f->name, .inlined = inlined,
				   .guessed = guessed, .aside = f->state != STATE_ON_CPU});
}

/* Not what is mapped nowhere: of a program that ends, the kernel's part says more. */
static bool is_user_code(const struct profile_function *f)
{
	return !f->kernel && f->state == STATE_ON_CPU && f->module != PROFILE_NONE;
}

/* Where all programs and threads start tells nothing of one. */
static void drop_start(struct chain *c)
{
	static const char *const starts[] = {
		"_start", "__libc_start_", "clone", "clone3", "start_thread", "thread_start"};
	size_t from = 0;

	for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]) && from + 1 < c->len;) {
		size_t len = strlen(starts[i]);
		const char *name = c->data[from].name;

		if (strncmp(name, starts[i], len) != 0 || (name[len] && starts[i][len - 1] != '_')) {
			i++;
			continue;
		}
		from++;
		i = 0;
	}
	c->len -= from;
	if (from)
		memmove(c->data, c->data + from, c->len * sizeof(*c->data));
}

int chain_of_node(const struct profile *p, const struct profile_tree *tree, uint32_t node,
	struct chain *ret)
{
	const struct tree_node *nodes = tree->nodes.data;
	bool user = false;
	int rc = 0;

	ret->len = 0;
	for (uint32_t n = node; n; n = nodes[n].parent)
		user |= is_user_code(&p->functions.data[nodes[n].function]);
	for (uint32_t n = node; n && !rc; n = nodes[n].parent)
		rc = add_function(ret, &p->functions.data[nodes[n].function], nodes[n].inlined,
			nodes[n].guessed, user);
	chain_reverse(ret->data, ret->len);
	drop_start(ret);
	return rc;
}

int chain_of_stack(const struct profile *p, uint32_t stack, struct chain *ret)
{
	size_t count = profile_stack_levels(p, stack, NULL, 0);
	uint32_t *levels = malloc((count + 1) * sizeof(*levels));
	bool user = false;
	int rc = levels ? 0 : -ENOMEM;

	ret->len = 0;
	if (!rc)
		profile_stack_levels(p, stack, levels, count);
	for (size_t i = 0; i < count && !rc; i++)
		user |= is_user_code(&p->functions.data[p->levels.data[levels[i]].function]);
	for (size_t i = 0; i < count && !rc; i++) {
		const struct profile_level *level = &p->levels.data[levels[i]];

		rc = add_function(ret, &p->functions.data[level->function], level->inlined, false,
			user);
	}
	free(levels);
	chain_reverse(ret->data, ret->len);
	drop_start(ret);
	return rc;
}
