/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs say themselves (heap/notes.h), and the blocks of their own allocators. These lie in memory that they have
 * from malloc or mmap, and are no part of the totals; a frame "[pool NAME]" stands for the allocator.
 */
#include "heap/collect_priv.h"

#include <stdio.h>

#include "base/clock.h"
#include "os/proc.h"

/* Code that the program's tables do not have may have come since they were made: nothing tells of it. */
#define REREAD_NS (100 * NS_PER_MS)
#define LOAD_NS (10 * NS_PER_MS)

/* Longer names of pools are cut. */
#define NAME_BYTES 128

/* Addresses of pools are told apart by their numbers: in one pool may lie another. */
static uint64_t address_in(uint64_t pool, uint64_t address)
{
	return address | (pool & 0xff) << 56;
}

static uint32_t pool_stack(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	const char *pool = heap_notes_pool(c->notes, e->process, (uint32_t)e->more->value);
	uint32_t stack = collect_stack(c, w, e);
	char name[NAME_BYTES + 16];

	snprintf(name, sizeof(name), "[pool %.*s]", NAME_BYTES, pool ? pool : "?");
	return session_named(c->session, stack, name);
}

static void pool_event(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	struct heap_event as_malloc = *e;
	uint32_t stack = CAPTURE_NONE;

	as_malloc.type = e->type == SHARE_OWN_ALLOC ? SHARE_ALLOC : SHARE_FREE;
	as_malloc.address = address_in(e->more->value, e->address);
	as_malloc.tid = (uint32_t)collect_tid(w, e->tid);
	as_malloc.rate = 0;
	if (e->type == SHARE_OWN_ALLOC)
		stack = pool_stack(c, w, e);
	heap_model_take(c->model, &as_malloc, stack);
	if (e->more->raw && e->time_ns > w->reread_ns + REREAD_NS) {
		w->reread_ns = e->time_ns;
		collect_modules_again(c, w, LOAD_NS);
	}
}

void collect_said(struct heap_collector *c, struct watched *w, const struct heap_event *e)
{
	if (e->type == SHARE_OWN_ALLOC || e->type == SHARE_OWN_FREE)
		pool_event(c, w, e);
	else
		heap_note(c->notes, e, w->pid, collect_tid(w, e->tid));
}

/* ---- memory of before ---- */

static int is_mapped(void *ctx, const struct proc_mapping *m)
{
	return m->inode == *(const uint64_t *)ctx;
}

void collect_said_over(struct heap_collector *c, const struct watched *by)
{
	uint64_t now = clock_monotonic_ns();
	bool drained = false;

	for (uint32_t i = 0; i < c->slots; i++) {
		struct watched *w = c->watched[i];

		if (!w || w == by || !w->says || w->pid != by->pid ||
			proc_each_mapping(w->pid, is_mapped, &w->inode, NULL))
			continue;
		if (!drained)
			collect_drain(c);
		drained = true;
		collect_end(c, w, true, now);
	}
}
