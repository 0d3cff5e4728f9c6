/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Allocates through functions of its own: text_alloc() and, below it, base_alloc() hand on what malloc gives, and so does
 * obtain(), whose name does not say so; new_node() makes nodes of one size, alloc_two() is called by two functions.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spin.h"

static void *kept[4096];
static int count;

NOINLINE static void keep(void *block)
{
	kept[count++ % 4096] = block;
}

NOINLINE static void *base_alloc(size_t size)
{
	void *block = malloc(size);

	if (!block)
		abort();
	return block;
}

NOINLINE static char *text_alloc(size_t size)
{
	char *text = base_alloc(size);

	text[0] = '\0';
	return text;
}

NOINLINE static void *obtain(size_t size)
{
	void *block = malloc(size);

	memset(block, 1, size);
	return block;
}

NOINLINE static void *new_node(void)
{
	void *block = malloc(48);

	memset(block, 1, 48);
	return block;
}

NOINLINE static void *alloc_two(size_t size)
{
	void *block = malloc(size);

	memset(block, 2, size);
	return block;
}

#define CALLER(name, n)                                                                                                \
	NOINLINE static void name(void)                                                                                \
	{                                                                                                              \
		keep(text_alloc(10u << (n) % 6));                                                                      \
		keep(obtain(20u << (n) % 9));                                                                          \
		keep(new_node());                                                                                      \
		keep(base_alloc(100u * (n) + 1));                                                                      \
		keep(kept[0]);                                                                                         \
	}

CALLER(caller_a, 1)
CALLER(caller_b, 2)
CALLER(caller_c, 3)
CALLER(caller_d, 4)
CALLER(caller_e, 5)
CALLER(caller_f, 6)
CALLER(caller_g, 7)
CALLER(caller_h, 8)
CALLER(caller_i, 9)
CALLER(caller_j, 10)
CALLER(caller_k, 11)
CALLER(caller_l, 12)
CALLER(caller_m, 13)
CALLER(caller_n, 14)

NOINLINE static void pair_a(void)
{
	keep(alloc_two(10));
	keep(alloc_two(1000));
}

NOINLINE static void pair_b(void)
{
	keep(alloc_two(100));
	keep(alloc_two(10000));
}

int main(void)
{
	static void (*const callers[])(void) = {caller_a, caller_b, caller_c, caller_d, caller_e, caller_f, caller_g, caller_h,
		caller_i, caller_j, caller_k, caller_l, caller_m, caller_n, pair_a, pair_b};

	for (int round = 0; round < 10; round++)
		for (size_t i = 0; i < sizeof(callers) / sizeof(callers[0]); i++)
			callers[i]();
	return 0;
}
