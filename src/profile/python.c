/* SPDX-License-Identifier: BSD-2-Clause */
/* What is shown of stacks in which Python frames stand among those of the machine. */
#include "profile/profile_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cleanup.h"
#include "symbol/interpreter.h"

static const struct profile_frame *frame_of(const struct profile *p, size_t node)
{
	return &p->frames.data[p->nodes.data[node].frame];
}

/* By node: whether there is a Python frame on its path. */
static uint8_t *python_paths(const struct profile *p)
{
	uint8_t *has = calloc(p->nodes.len + 1, 1);

	for (size_t i = 0; has && i < p->nodes.len; i++) {
		uint32_t parent = p->nodes.data[i].parent;

		has[i] = frame_of(p, i)->kind == FRAME_PYTHON || (parent != PROFILE_NONE && has[parent]);
	}
	return has;
}

int loader_filter_python(struct loader *l)
{
	const struct profile_filter *filter = &l->options->filter;
	struct profile *p = l->p;
	autofree uint8_t *has = NULL;
	size_t kept = 0;

	if (!filter->gil && !filter->python_only)
		return 0;
	has = python_paths(p);
	if (!has)
		return -ENOMEM;
	vec_each(&p->samples, s) {
		if (filter->gil && !(s->python & SAMPLE_PYTHON_GIL))
			continue;
		if (filter->python_only && (s->stack == PROFILE_NONE || !has[s->stack]))
			continue;
		p->samples.data[kept++] = *s;
	}
	p->samples.len = kept;
	return 0;
}

/* Of the real function; NULL: it is not known. */
static const char *own_name(const struct profile *p, const struct profile_frame *f)
{
	const struct profile_function *real =
		&p->functions.data[p->levels.data[f->first_level + f->level_count - 1].function];

	return real->unresolved ? NULL : real->name;
}

static bool is_hidden(const struct loader *l, const struct profile_frame *f)
{
	const struct profile_filter *filter = &l->options->filter;

	if (f->kind == PROFILE_FRAME_STATE)
		return false;
	if (filter->native_only)
		return f->kind == FRAME_PYTHON;
	if (filter->python_only)
		return f->kind != FRAME_PYTHON;
	return !filter->interpreter && interpreter_hides(f->role, own_name(l->p, f));
}

/* Nodes of hidden frames become their parents. By node: what it is from now on; PROFILE_NONE: nothing. */
static void fold_nodes(struct loader *l, uint32_t *as)
{
	struct profile *p = l->p;
	uint32_t kept = 0;

	for (size_t i = 0; i < p->nodes.len; i++) {
		struct profile_node n = p->nodes.data[i];

		if (n.parent != PROFILE_NONE)
			n.parent = as[n.parent];
		as[i] = n.parent;
		if (is_hidden(l, &p->frames.data[n.frame]))
			continue;
		n.depth = n.parent == PROFILE_NONE ? 1 : p->nodes.data[n.parent].depth + 1;
		as[i] = kept;
		p->nodes.data[kept++] = n;
	}
	p->nodes.len = kept;
}

static void replace(const uint32_t *as, uint32_t *node)
{
	if (*node != PROFILE_NONE)
		*node = as[*node];
}

int loader_hide_frames(struct loader *l)
{
	struct profile *p = l->p;
	autofree uint32_t *as = NULL;
	bool any = false;

	for (size_t i = 0; i < p->frames.len && !any; i++)
		any = is_hidden(l, &p->frames.data[i]);
	if (!any)
		return 0;
	as = calloc(p->nodes.len + 1, sizeof(*as));
	if (!as)
		return -ENOMEM;
	fold_nodes(l, as);
	vec_each(&p->samples, s)
		replace(as, &s->stack);
	vec_each(&p->waits, w) {
		replace(as, &w->stack);
		replace(as, &w->waker_stack);
	}
	vec_each(&p->threads, t)
		replace(as, &t->waits_in);
	loader_heap_move_nodes(l, as);
	return 0;
}
