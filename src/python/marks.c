/* SPDX-License-Identifier: BSD-2-Clause */
#include "python/marks.h"

#include <errno.h>
#include <stdlib.h>

#define BLOCK_SHIFT 16

void marks_release(struct marks *m)
{
	struct table_node *next;

	for (struct table_node *node = table_next(&m->table, NULL); node; node = next) {
		next = table_next(&m->table, node);
		free(node);
	}
	table_release(&m->table);
	m->last = NULL;
	m->count = 0;
}

static struct marks_block *block_of(struct marks *m, uint64_t address)
{
	struct marks_block *b = m->last;

	if (b && b->node.key == address >> BLOCK_SHIFT)
		return b;
	b = (struct marks_block *)table_find(&m->table, address >> BLOCK_SHIFT);
	if (b)
		m->last = b;
	return b;
}

int marks_add(struct marks *m, uint64_t address)
{
	struct marks_block *b = block_of(m, address);
	unsigned word = address >> 9 & (MARKS_WORDS - 1);
	uint64_t bit = 1ULL << (address >> 3 & 63);

	if (!b) {
		b = calloc(1, sizeof(*b));
		if (!b)
			return -ENOMEM;
		if (table_add(&m->table, &b->node, address >> BLOCK_SHIFT)) {
			free(b);
			return -ENOMEM;
		}
		m->last = b;
	}
	if (b->bits[word] & bit)
		return 0;
	b->bits[word] |= bit;
	m->count++;
	return 1;
}

bool marks_have(struct marks *m, uint64_t address)
{
	struct marks_block *b = block_of(m, address);

	return b && b->bits[address >> 9 & (MARKS_WORDS - 1)] >> (address >> 3 & 63) & 1;
}

static int by_address(const void *a, const void *b)
{
	uint64_t x = (*(struct marks_block *const *)a)->node.key;
	uint64_t y = (*(struct marks_block *const *)b)->node.key;

	return (x > y) - (x < y);
}

static bool each_of_block(
	const struct marks_block *b, bool (*each)(void *ctx, uint64_t address), void *ctx)
{
	for (unsigned word = 0; word < MARKS_WORDS; word++)
		for (uint64_t left = b->bits[word]; left; left &= left - 1) {
			unsigned bit = (unsigned)__builtin_ctzll(left);

			if (each(ctx, (b->node.key << BLOCK_SHIFT) + (word * 64 + bit) * 8))
				return true;
		}
	return false;
}

bool marks_each(struct marks *m, bool (*each)(void *ctx, uint64_t address), void *ctx)
{
	struct marks_block **blocks = malloc((m->table.count + 1) * sizeof(*blocks));
	size_t n = 0;
	bool stopped = false;

	/* Without memory to sort them, they come as they are. */
	for (struct table_node *node = table_next(&m->table, NULL); node;
		node = table_next(&m->table, node)) {
		if (blocks)
			blocks[n++] = (struct marks_block *)node;
		else if (each_of_block((struct marks_block *)node, each, ctx))
			return true;
	}
	if (blocks)
		qsort(blocks, n, sizeof(*blocks), by_address);
	for (size_t i = 0; i < n && !stopped; i++)
		stopped = each_of_block(blocks[i], each, ctx);
	free(blocks);
	return stopped;
}
