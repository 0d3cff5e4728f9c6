/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Stacks of watched programs in the recording. A program numbers the nodes of its tree of stacks itself; what a node
 * is in the recording is looked up once.
 */
#include "heap/collect_priv.h"

#include <string.h>

#include "os/proc.h"

/* Nodes between a frame and its caller that are no frames stay few; deeper stacks are cut. */
#define MOST_DEEP 20000u

pid_t collect_tid(struct watched *w, uint32_t tid)
{
	if (w->own_pid == w->pid)
		return (pid_t)tid;
	if (w->last_tid != tid) {
		w->last_outside = (uint32_t)proc_outside_tid(w->pid, (pid_t)tid);
		w->last_tid = tid;
	}
	return w->last_outside ? (pid_t)w->last_outside : (pid_t)tid;
}

/* What stands above a stack's outermost frame. */
static uint32_t above(struct heap_collector *c, uint32_t node)
{
	return node == SHARE_STACK_ROOT ? CAPTURE_NONE : session_truncated(c->session);
}

static uint32_t known(const struct watched *w, uint32_t node)
{
	return node < w->stacks.len ? w->stacks.data[node] : 0;
}

static void know(struct watched *w, uint32_t node, uint32_t stack)
{
	size_t from = w->stacks.len;

	if (node >= from) {
		if (vec_reserve(&w->stacks, (size_t)node + 1))
			return;
		w->stacks.len = (size_t)node + 1;
		memset(w->stacks.data + from, 0, (w->stacks.len - from) * sizeof(*w->stacks.data));
	}
	w->stacks.data[node] = stack + 1;
}

/* Notes the nodes from `node` up to one that is known, or to the end; what stands above them. */
static uint32_t find_known(struct heap_collector *c, struct watched *w, uint32_t node)
{
	struct heap_node at;

	w->path.len = 0;
	for (; node >= SHARE_STACK_FIRST; node = at.parent) {
		if (known(w, node))
			return known(w, node) - 1;
		if (w->path.len >= MOST_DEEP || vec_push(&w->path, node) ||
			!heap_readers_node(c->readers, w->number, node, &at)) {
			w->path.len -= w->path.len > 0;
			return session_truncated(c->session);
		}
	}
	return above(c, node);
}

static uint32_t stack_of_node(struct heap_collector *c, struct watched *w, uint32_t node)
{
	uint32_t stack = known(w, node);
	struct heap_node at;

	if (stack)
		return stack - 1;
	if (node < SHARE_STACK_FIRST || node >= SHARE_NODES)
		return node == SHARE_STACK_CUT ? session_truncated(c->session) : CAPTURE_NONE;
	if (heap_readers_node(c->readers, w->number, node, &at) && at.detail) {
		stack = collect_python_stack(c, w, node, &at);
		know(w, node, stack);
		return stack;
	}
	stack = find_known(c, w, node);
	while (w->path.len) {
		node = w->path.data[--w->path.len];
		if (!heap_readers_node(c->readers, w->number, node, &at))
			continue;
		if (at.pc >= SHARE_FIRST_PC && !at.detail)
			stack = session_called(c->session, w->pid, stack, at.pc, UNWIND_CFI);
		know(w, node, stack);
	}
	return stack;
}

/* The program had no rules for it: it sent registers and the bytes of the stack. */
static uint32_t stack_of_bytes(
	struct heap_collector *c, struct watched *w, const struct heap_event *e, const struct heap_event_more *more)
{
	const struct share_raw_stack *from = more->raw;
	struct raw_stack raw = {
		.has_regs = true,
		.regs.known = from->known,
		.dump = {from->stack_start, more->raw_stack, from->stack_bytes},
	};

	_Static_assert(sizeof(raw.regs.value) == sizeof(from->regs), "as the program has them");
	memcpy(raw.regs.value, from->regs, sizeof(raw.regs.value));
	c->stats.raw_stacks++;
	if (e->node >= SHARE_STACK_FIRST && e->node < SHARE_NODES)
		return collect_python_walked(c, w, e, &raw);
	return session_walk_called(c->session, w->pid, collect_tid(w, e->tid), e->time_ns, &raw);
}

uint32_t collect_stack(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	if (e->more && e->more->raw)
		return stack_of_bytes(c, w, e, e->more);
	return e->node == SHARE_STACK_UNSAMPLED ? CAPTURE_NONE : stack_of_node(c, w, e->node);
}

bool collect_is_cut(struct heap_collector *c, const struct watched *w, const struct heap_event *e)
{
	uint32_t node = e->node;
	struct heap_node at;

	/* Parents have smaller numbers, so this ends. */
	while (node >= SHARE_STACK_FIRST && heap_readers_node(c->readers, w->number, node, &at))
		node = at.parent;
	return node != SHARE_STACK_ROOT;
}
