/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/pools.h"

#include <errno.h>
#include <stdlib.h>

#include "base/cursor.h"
#include "base/table.h"
#include "python/python_priv.h"

/* Include/internal/pycore_obmalloc.h, Objects/obmalloc.c before 3.12: struct pool_header, the same from 3.8 on. */
#define HEADER_BYTES PYTHON_POOL_HEADER_BYTES
#define BLOCK_STEP 16u   /* sizes of blocks are multiples */
#define MOST_BLOCK 512u
#define MOST_ARENAS (1u << 24)

struct header {
	uint32_t used, arena, block_bytes;
};

struct arena {
	struct table_node node; /* by its index */
	uint64_t low, high;     /* the lowest and the highest pool that was seen */
};

struct search {
	struct python *p;
	struct python_pools *ret;
	uint64_t pool_bytes, arena_bytes;
	struct table arenas;
	struct marks pools;
	uint64_t last;
	bool failed;
};

/* A header says everything twice: the last offset follows from the size of blocks. */
static bool parse_header(const void *bytes, uint64_t pool_bytes, struct header *ret)
{
	struct cursor c = cursor_over(bytes, HEADER_BYTES);
	uint32_t next, last;

	ret->used = cursor_u32(&c);
	cursor_skip(&c, 4 + 3 * 8); /* the first free block, two links */
	ret->arena = cursor_u32(&c);
	ret->block_bytes = (cursor_u32(&c) + 1) * BLOCK_STEP;
	next = cursor_u32(&c);
	last = cursor_u32(&c);
	return ret->block_bytes && ret->block_bytes <= MOST_BLOCK && ret->arena < MOST_ARENAS &&
		last == pool_bytes - ret->block_bytes && next >= HEADER_BYTES && next <= pool_bytes &&
		(uint64_t)ret->used * ret->block_bytes <= pool_bytes - HEADER_BYTES;
}

static bool read_header(struct search *s, uint64_t pool, struct header *ret)
{
	uint8_t bytes[HEADER_BYTES];

	return python_read(s->p, pool, bytes, sizeof(bytes)) && parse_header(bytes, s->pool_bytes, ret);
}

bool python_pool_parse(const void *header, struct python_pool *ret)
{
	static const uint64_t sizes[] = {16384, 4096};
	struct header h;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		if (!parse_header(header, sizes[i], &h))
			continue;
		*ret = (struct python_pool){sizes[i], (uint64_t)h.used * h.block_bytes, h.arena};
		return true;
	}
	return false;
}

static void count(struct search *s, const struct header *h)
{
	if (!h->used)
		return;
	s->ret->pools++;
	s->ret->pool_bytes += s->pool_bytes;
	s->ret->used_bytes += (uint64_t)h->used * h->block_bytes;
}

static struct arena *arena_of(struct search *s, uint32_t index, uint64_t pool)
{
	struct arena *a = (struct arena *)table_find(&s->arenas, index);

	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a || table_add(&s->arenas, &a->node, index)) {
		free(a);
		s->failed = true;
		return NULL;
	}
	a->low = a->high = pool;
	return a;
}

/* Whether a pool of this arena can be there: an arena is in one piece. */
static bool fits(const struct search *s, const struct arena *a, uint64_t pool)
{
	return pool < a->low ? a->high - pool < s->arena_bytes : pool - a->low < s->arena_bytes;
}

static bool look_at(void *ctx, uint64_t object)
{
	struct search *s = (struct search *)ctx;
	uint64_t pool = object & ~(s->pool_bytes - 1);
	struct header h;
	struct arena *a;

	if (pool == s->last)
		return false;
	s->last = pool;
	if (!read_header(s, pool, &h) || !h.used)
		return false;
	a = arena_of(s, h.arena, pool);
	if (!a)
		return true;
	if (!fits(s, a, pool))
		return false;
	if (marks_add(&s->pools, pool) < 0) {
		s->failed = true;
		return true;
	}
	if (pool < a->low)
		a->low = pool;
	if (pool > a->high)
		a->high = pool;
	count(s, &h);
	return false;
}

/* Pools beside those that were found, which hold no object: keys of dicts, arrays of lists. */
static void look_around(struct search *s, const struct arena *a)
{
	uint64_t from = a->high - s->arena_bytes + s->pool_bytes, to = a->low + s->arena_bytes;

	for (uint64_t pool = from; pool < to; pool += s->pool_bytes) {
		struct header h;

		if (!marks_have(&s->pools, pool) && read_header(s, pool, &h) && h.arena == a->node.key)
			count(s, &h);
	}
}

int python_pools(struct python *p, struct marks *objects, struct python_pools *ret)
{
	struct search s = {.p = p, .ret = ret};
	struct table_node *next;

	*ret = (struct python_pools){0};
	s.pool_bytes = p->minor >= 10 ? 16384 : 4096;
	s.arena_bytes = p->minor >= 10 ? 1 << 20 : 256 << 10;
	marks_each(objects, look_at, &s);
	for (struct table_node *node = table_next(&s.arenas, NULL); node; node = next) {
		next = table_next(&s.arenas, node);
		if (!s.failed)
			look_around(&s, (struct arena *)node);
		ret->arenas++;
		ret->arena_bytes += s.arena_bytes;
		free(node);
	}
	table_release(&s.arenas);
	marks_release(&s.pools);
	return s.failed ? -ENOMEM : 0;
}
