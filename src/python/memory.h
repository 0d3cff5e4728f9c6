/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Pages of the target, kept for one look.
 *
 * A read costs a lookup when its page was read since the last python_pages_refresh(), and a call of the
 * memory's read() otherwise. Neighbours of pages that were asked for come along: the first miss in a block
 * reads one page, the next ones read more, so that a few scattered reads stay small and a walk through
 * all objects takes few calls. At most BLOCKS * BLOCK bytes are kept; the least recently used go first.
 *
 * Addresses at which the target has no memory are remembered as well.
 */
#ifndef SONDE_PYTHON_MEMORY_H
#define SONDE_PYTHON_MEMORY_H

#include "python/python.h"

#define PYTHON_PAGE_BYTES 4096u
#define PYTHON_BLOCK_PAGES 16u
#define PYTHON_BLOCK_BYTES (PYTHON_PAGE_BYTES * PYTHON_BLOCK_PAGES)
#define PYTHON_WAYS 4u  /* places a block may be in */
#define PYTHON_SETS 512u

struct python_block {
	uint64_t number;  /* address / PYTHON_BLOCK_BYTES */
	uint64_t look;    /* of which refresh it is; 0: of none */
	uint64_t used;    /* when it was, last */
	uint16_t present; /* a bit a page: it is in `data` */
	uint16_t missing; /* it cannot be read */
	uint8_t misses;
	uint8_t *data;    /* NULL: never used */
};

struct python_pages {
	struct python_memory memory;
	uint64_t look, clock;
	uint64_t reads;       /* calls of memory.read so far */
	struct python_block *last; /* where the last read was */
	struct python_block blocks[PYTHON_SETS][PYTHON_WAYS];
};

void python_pages_init(struct python_pages *pages, const struct python_memory *memory);
void python_pages_release(struct python_pages *pages);
void python_pages_refresh(struct python_pages *pages);

/* All of it, or false; `buf` may have been written to then. */
bool python_pages_read(struct python_pages *pages, uint64_t addr, void *buf, size_t len);

#endif
