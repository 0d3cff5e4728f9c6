/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How full CPython's own allocator is: objects up to 512 bytes come from pools of equal blocks, which are cut from
 * arenas. An arena is given back when nothing of it is in use, so one small object can keep a large one.
 *
 * The allocator's own tables have no name that could be found from outside. Pools are found by the objects in them, and
 * by their neighbours: docs/heuristics/pools.md. What holds no object at all is missed.
 */
#ifndef SONDE_PYTHON_POOLS_H
#define SONDE_PYTHON_POOLS_H

#include "python/marks.h"
#include "python/python.h"

struct python_pools {
	uint64_t arenas, arena_bytes; /* all zero where another allocator is used */
	uint64_t pools, pool_bytes;   /* pools that have a block in use */
	uint64_t used_bytes;          /* blocks in use */
};

/* Whether these bytes, of the beginning of a page, are the header of a pool, of any version; how large the pool is,
 * and what of it is in use. What was freed keeps its header. */
#define PYTHON_POOL_HEADER_BYTES 48u
struct python_pool {
	uint64_t pool_bytes, used_bytes;
	uint32_t arena; /* number */
};
bool python_pool_parse(const void *header, struct python_pool *ret);

/* By the objects at these addresses. -ENOMEM. */
int python_pools(struct python *p, struct marks *objects, struct python_pools *ret);

#endif
