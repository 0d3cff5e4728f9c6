/* SPDX-License-Identifier: BSD-2-Clause */
/* What glibc's heaps hold of a process' memory: arenas.h walks them, and here its pages are counted. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap/rss_priv.h"

static const enum rss_kind kinds[ARENAS_STATES] = {
	[ARENAS_USED] = RSS_HEAP_USED,
	[ARENAS_CACHED] = RSS_HEAP_CACHED,
	[ARENAS_FAST] = RSS_HEAP_CACHED,
	[ARENAS_FREE] = RSS_HEAP_FREE,
	[ARENAS_TOP] = RSS_HEAP_TOP,
	[ARENAS_OWN] = RSS_HEAP_BOOKKEEPING,
	[ARENAS_UNSEEN] = RSS_HEAP_UNSEEN,
};

/* What a walk has said so far of one mapping. */
struct pending {
	size_t mapping;
	struct rss_claim states[ARENAS_STATES];
};

struct heaps {
	struct rss_work *w;
	VEC(struct pending) pending;
	struct rss_claim states[ARENAS_STATES];
	VEC(struct arenas_range) data, memory;
	struct arenas_range brk, walked; /* walked: by the walk that is under way */
	bool failed;
};

/* ---- what the walk asks ---- */

static size_t read_memory(void *ctx, uint64_t address, void *buf, size_t len)
{
	return rss_read(((struct heaps *)ctx)->w, address, buf, len);
}

static uint64_t next_resident(void *ctx, uint64_t address)
{
	return rss_next_resident(((struct heaps *)ctx)->w, address);
}

static uint64_t resident(void *ctx, uint64_t start, uint64_t end)
{
	return rss_resident(((struct heaps *)ctx)->w, start, end).bytes;
}

static void begin(void *ctx, uint64_t start, uint64_t end)
{
	struct heaps *h = (struct heaps *)ctx;

	h->pending.len = 0;
	h->walked = (struct arenas_range){start, end};
	rss_ask_again(h->w, start, end);
}

static struct pending *pending_of(struct heaps *h, const struct rss_mapping *m)
{
	size_t index = (size_t)(m - h->w->mappings.data);

	for (size_t i = h->pending.len; i-- > 0;)
		if (h->pending.data[i].mapping == index)
			return &h->pending.data[i];
	if (vec_push(&h->pending, (struct pending){.mapping = index})) {
		h->failed = true;
		return NULL;
	}
	return &h->pending.data[h->pending.len - 1];
}

static void part(void *ctx, uint64_t start, uint64_t end, enum arenas_state state)
{
	struct heaps *h = (struct heaps *)ctx;

	while (start < end) {
		struct rss_mapping *m = rss_mapping_at(h->w, start);
		struct pending *p = m ? pending_of(h, m) : NULL;
		uint64_t to = m && m->m.end < end ? m->m.end : end;
		struct rss_claim got;

		if (!p)
			return;
		got = rss_resident(h->w, start, to);
		p->states[state].bytes += got.bytes;
		p->states[state].swap += got.swap;
		start = to;
	}
}

static void at_end(void *ctx, bool keep)
{
	struct heaps *h = (struct heaps *)ctx;

	for (size_t i = 0; keep && i < h->pending.len; i++) {
		struct rss_mapping *m = &h->w->mappings.data[h->pending.data[i].mapping];

		for (size_t state = 0; state < ARENAS_STATES; state++) {
			struct rss_claim *got = &h->pending.data[i].states[state];

			h->states[state].bytes += got->bytes;
			h->states[state].swap += got->swap;
			m->claimed += got->bytes;
			m->claimed_swap += got->swap;
		}
	}
	h->pending.len = 0;
	if (keep)
		rss_note_claimed(h->w, h->walked.start, h->walked.end);
}

static void move(void *ctx, uint64_t start, uint64_t end, enum arenas_state from, enum arenas_state to)
{
	struct heaps *h = (struct heaps *)ctx;
	struct rss_claim got = rss_resident(h->w, start, end), *source = &h->states[from];

	if (got.bytes > source->bytes)
		got.bytes = source->bytes;
	if (got.swap > source->swap)
		got.swap = source->swap;
	source->bytes -= got.bytes;
	source->swap -= got.swap;
	h->states[to].bytes += got.bytes;
	h->states[to].swap += got.swap;
}

static void mapped(void *ctx, uint64_t start, uint64_t end)
{
	rss_claim(((struct heaps *)ctx)->w, start, end, RSS_HEAP_MAPPED, "");
}

static const struct arenas_ops ops = {
	.read = read_memory,
	.next = next_resident,
	.resident = resident,
	.begin = begin,
	.part = part,
	.move = move,
	.end = at_end,
	.mapped = mapped,
};

/* ---- where to look ---- */

/* Ranges that touch are one. */
static int add_range(struct heaps *h, uint64_t start, uint64_t end)
{
	struct arenas_range *last = h->memory.len ? &h->memory.data[h->memory.len - 1] : NULL;

	if (last && last->end == start) {
		last->end = end;
		return 0;
	}
	return vec_push(&h->memory, (struct arenas_range){start, end});
}

static void add_brk(struct heaps *h, const struct proc_mapping *m)
{
	if (h->brk.start == h->brk.end)
		h->brk = (struct arenas_range){m->start, m->end};
	else if (h->brk.end == m->start)
		h->brk.end = m->end;
}

static bool is_c_library(const char *path)
{
	const char *name = strrchr(path, '/');

	return name && (!strncmp(name, "/libc.so", 8) || !strncmp(name, "/libc-2", 7));
}

static int gather(struct heaps *h, bool c_library)
{
	int rc = 0;

	vec_each(&h->w->mappings, m) {
		bool writable = m->m.read && m->m.write && !m->m.shared;

		if (!rc && writable && m->m.inode && m->sizes.rss + m->sizes.swap && is_c_library(m->m.path) == c_library)
			rc = vec_push(&h->data, (struct arenas_range){m->m.start, m->m.end});
		if (c_library || !writable || m->m.inode)
			continue;
		if (!strcmp(m->m.path, "[heap]"))
			add_brk(h, &m->m);
		else if (!rc && !m->taken && m->kind == RSS_ANONYMOUS)
			rc = add_range(h, m->m.start, m->m.end);
	}
	return rc;
}

/* Before the first block stands what was there before the allocator (of static programs, variables of threads). */
static void claim_start(struct heaps *h)
{
	uint64_t first = h->w->ret->arenas.first;

	if (first > h->brk.start && first < h->brk.end)
		rss_claim(h->w, h->brk.start, first, RSS_HEAP_BOOKKEEPING, "");
}

static void add_rows(struct heaps *h)
{
	for (size_t state = 0; state < ARENAS_STATES; state++)
		rss_add(h->w, kinds[state], "", &(struct rss_row){.bytes = h->states[state].bytes,
			.swap = h->states[state].swap, .size = h->w->ret->arenas.states[state].bytes,
			.count = h->w->ret->arenas.states[state].count});
	claim_start(h);
}

void rss_walk_heaps(struct rss_work *w)
{
	struct heaps h = {.w = w};
	struct arenas_places places = {.page_bytes = w->pages.page_bytes};
	struct err err = {0};
	int rc = 0;

	if (w->pages.fd < 0)
		return;
	rc = gather(&h, true);
	if (!rc)
		rc = gather(&h, false);
	places.data = h.data.data;
	places.data_count = h.data.len;
	places.memory = h.memory.data;
	places.memory_count = h.memory.len;
	places.brk = h.brk;
	if (!rc)
		rc = arenas_walk(&places, &ops, &h, &w->ret->arenas, &err);
	w->ret->has_arenas = !rc;
	if (!rc)
		add_rows(&h);
	w->failed |= h.failed || rc == -ENOMEM;
	vec_release(&h.pending);
	vec_release(&h.data);
	vec_release(&h.memory);
}
