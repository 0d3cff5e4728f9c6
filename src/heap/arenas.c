/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/arenas.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "heap/arenas_priv.h"

#define WINDOW_BYTES ((size_t)256 << 10)

/* ---- reading ---- */

/* Pages around what was read last, since links lead back and forth. */
static const struct walk_page *page_of(struct walk *w, uint64_t address)
{
	uint64_t start = address & ~(uint64_t)(WALK_PAGE_BYTES - 1);
	struct walk_page *p = &w->pages[start / WALK_PAGE_BYTES % WALK_PAGES];

	if (p->start == start && p->len)
		return p;
	p->start = start;
	p->len = w->ops->read(w->ctx, start, p->bytes, WALK_PAGE_BYTES);
	if (p->len > WALK_PAGE_BYTES)
		p->len = 0;
	return p;
}

bool walk_read(struct walk *w, uint64_t address, void *buf, size_t len)
{
	uint8_t *out = (uint8_t *)buf;

	while (len) {
		const struct walk_page *p = page_of(w, address);
		size_t at = address - p->start, part = p->len > at ? p->len - at : 0;

		if (!part)
			return false;
		part = part < len ? part : len;
		memcpy(out, p->bytes + at, part);
		out += part;
		len -= part;
		address += part;
	}
	return true;
}

uint64_t walk_word(struct walk *w, uint64_t address)
{
	uint64_t v;

	return walk_read(w, address, &v, sizeof(v)) ? v : 0;
}

void walk_forget(struct walk *w)
{
	w->window_len = 0;
	for (size_t i = 0; i < WALK_PAGES; i++)
		w->pages[i].len = 0;
}

bool walk_chunk(struct walk *w, uint64_t address, struct chunk *ret)
{
	if (address < w->window_start || address - w->window_start >= w->window_len ||
		w->window_len - (address - w->window_start) < sizeof(*ret)) {
		w->window_start = address;
		w->window_len = w->ops->read(w->ctx, address, w->window, WINDOW_BYTES);
		if (w->window_len > WINDOW_BYTES)
			w->window_len = 0;
		if (w->window_len < sizeof(*ret))
			return false;
	}
	memcpy(ret, w->window + (address - w->window_start), sizeof(*ret));
	return true;
}

bool walk_in_memory(const struct walk *w, uint64_t address)
{
	size_t low = 0, high = w->places->memory_count;

	if (address >= w->places->brk.start && address < w->places->brk.end)
		return true;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct arenas_range *r = &w->places->memory[middle];

		if (address >= r->start && address < r->end)
			return true;
		if (address < r->start)
			high = middle;
		else
			low = middle + 1;
	}
	return false;
}

/* The end of the memory that holds `address`, which is one piece. */
static uint64_t memory_end(const struct walk *w, uint64_t address)
{
	if (address >= w->places->brk.start && address < w->places->brk.end)
		return w->places->brk.end;
	for (size_t i = 0; i < w->places->memory_count; i++)
		if (address >= w->places->memory[i].start && address < w->places->memory[i].end)
			return w->places->memory[i].end;
	return 0;
}

/* ---- arenas ---- */

static int add_arena(struct walk *w, uint64_t address)
{
	struct arena a = {.address = address, .main = address == w->main};

	if (w->layout.threads)
		a.threads = walk_word(w, address + ARENA_THREADS_AT(&w->layout));
	a.system_bytes = walk_word(w, address + ARENA_SYSTEM_AT(&w->layout));
	return vec_push(&w->ret->list, a) ? -ENOMEM : 0;
}

static int add_arenas(struct walk *w)
{
	uint64_t at = w->main;
	int rc = 0;

	for (uint32_t i = 0; !rc && i < MOST_ARENAS; i++) {
		rc = add_arena(w, at);
		at = walk_word(w, at + ARENA_NEXT_AT(&w->layout));
		if (!at || at == w->main || at % 16 || !walk_in_memory(w, at))
			break;
	}
	return rc;
}

/* The end of what a block at `top` has. */
static uint64_t end_of_top(struct walk *w, uint64_t top)
{
	uint64_t bytes = walk_word(w, top + 8) & ~(uint64_t)CHUNK_FLAGS, end;

	return !__builtin_add_overflow(top, bytes, &end) && bytes >= CHUNK_LEAST && end <= memory_end(w, top) ? end : 0;
}

/* The main arena's memory is one piece from the first break on, or, where brk(2) was refused, begins where its parameters say. */
static void walk_main(struct walk *w)
{
	uint64_t top = walk_word(w, w->ret->list.data[0].address + ARENA_TOP_AT(&w->layout)), end, start;

	if (!walk_in_memory(w, top))
		return;
	end = end_of_top(w, top);
	start = w->first;
	if (!start || start > top || memory_end(w, start) != memory_end(w, top))
		start = top >= w->places->brk.start && top < w->places->brk.end ? w->places->brk.start : 0;
	if (!start || !end)
		return;
	w->ret->first = start;
	walk_heap(w, &(struct heap_piece){.start = start, .first = start, .end = end, .top = top});
}

/* ---- heaps of other arenas ---- */

#define HEAP_ARENA_AT 0u
#define HEAP_PREV_AT 8u
#define HEAP_SIZE_AT 16u

/* sizeof(heap_info), before and since 2.35: where an arena begins in its first heap. */
static const uint32_t heap_headers[] = {0x30, 0x20};

/* Heaps are aligned to their most size, which is 64 MiB unless tunables say more. */
static uint64_t heap_of(struct walk *w, uint64_t arena, uint64_t address)
{
	for (uint32_t bits = 26; bits <= 34; bits++) {
		uint64_t heap = address & ~((1ull << bits) - 1);

		if (walk_in_memory(w, heap) && walk_word(w, heap + HEAP_ARENA_AT) == arena &&
			address - heap < walk_word(w, heap + HEAP_SIZE_AT))
			return heap;
	}
	return 0;
}

static uint32_t heap_header(struct walk *w, uint64_t arena)
{
	for (size_t i = 0; i < sizeof(heap_headers) / sizeof(heap_headers[0]); i++) {
		uint64_t heap = arena - heap_headers[i];

		if (!(heap % 4096) && walk_word(w, heap + HEAP_ARENA_AT) == arena)
			return heap_headers[i];
	}
	return 0;
}

/* From the newest heap, which `top` is in, to the first one, which holds the arena. */
static void walk_other(struct walk *w, uint32_t index)
{
	uint64_t arena = w->ret->list.data[index].address, top = walk_word(w, arena + ARENA_TOP_AT(&w->layout));
	uint64_t heap = heap_of(w, arena, top);
	uint32_t header = heap_header(w, arena);

	for (uint32_t i = 0; i < MOST_HEAPS && heap && header && walk_in_memory(w, heap); i++) {
		uint64_t size = walk_word(w, heap + HEAP_SIZE_AT), prev = walk_word(w, heap + HEAP_PREV_AT);
		uint64_t first = heap + header + (heap == arena - header ? ARENA_BYTES(&w->layout) : 0);

		first = (first + CHUNK_ALIGN - 1) & ~(uint64_t)(CHUNK_ALIGN - 1);
		if (walk_word(w, heap + HEAP_ARENA_AT) != arena || size > memory_end(w, heap) - heap || heap + size < first)
			return;
		walk_heap(w, &(struct heap_piece){
			.start = heap, .first = first, .end = heap + size, .top = top, .arena = index});
		heap = prev != heap ? prev : 0;
	}
}

/* ---- all of it ---- */

static void add_up(struct arenas *ret)
{
	vec_each(&ret->list, a) {
		for (size_t i = 0; i < ARENAS_STATES; i++) {
			ret->states[i].bytes += a->states[i].bytes;
			ret->states[i].count += a->states[i].count;
		}
		ret->trim_bytes += a->trim_bytes;
		ret->unsorted_bytes += a->unsorted_bytes;
		if (a->largest_free > ret->largest_free)
			ret->largest_free = a->largest_free;
	}
}

static int walk_all(struct walk *w)
{
	int rc = add_arenas(w);

	if (rc)
		return rc;
	walk_main(w);
	for (uint32_t i = 1; i < w->ret->list.len; i++)
		walk_other(w, i);
	walk_forget(w);
	for (uint32_t i = 0; i < w->ret->list.len; i++) {
		walk_fast_bins(w, i);
		walk_unsorted(w, i);
	}
	walk_thread_caches(w);
	walk_mapped(w);
	add_up(w->ret);
	return w->failed ? -ENOMEM : 0;
}

int arenas_walk(const struct arenas_places *places, const struct arenas_ops *ops, void *ctx,
	struct arenas *ret, struct err *err)
{
	struct walk w = {.places = places, .ops = ops, .ctx = ctx, .ret = ret};
	int rc = 0;

	*ret = (struct arenas){0};
	w.window = malloc(WINDOW_BYTES);
	w.pages = calloc(WALK_PAGES, sizeof(*w.pages));
	if (!w.window || !w.pages)
		rc = -ENOMEM;
	else if (walk_find(&w))
		rc = walk_all(&w);
	else
		rc = -ENOENT;
	free(w.window);
	free(w.pages);
	vec_release(&w.caches);
	vec_release(&w.heaps);
	if (rc)
		arenas_release(ret);
	return rc == -ENOMEM ? err_nomem(err)
		: rc ? err_set(err, ENOENT, "no heap of glibc's malloc was found") : 0;
}

void arenas_release(struct arenas *a)
{
	vec_release(&a->list);
}
