/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Keeps blocks of known sizes and asks the allocator how large they are. Prints "site FUNCTION bytes wasted" of what is live at the end,
 * and "class USABLE count asked" of the same, of all functions. Nothing else is allocated.
 */
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>

#include "spin.h"

#define MOST 4096

static struct {
	size_t usable, count, asked;
} classes[MOST];
static size_t class_count;

static size_t asked_by[4], usable_by[4];

static void note(int who, size_t size, void *block)
{
	size_t usable = malloc_usable_size(block), i = 0;

	asked_by[who] += size;
	usable_by[who] += usable;
	while (i < class_count && classes[i].usable != usable)
		i++;
	if (i == class_count)
		classes[class_count++].usable = usable;
	classes[i].count++;
	classes[i].asked += size;
}

/* Every size up to a page, and some above. */
NOINLINE void small_ones(void)
{
	for (size_t size = 1; size <= 4096; size += 7)
		note(0, size, malloc(size));
	NOT_A_TAIL_CALL;
}

/* Just too large for a class of many allocators. */
NOINLINE void wasteful(void)
{
	for (int i = 0; i < 3000; i++)
		note(1, 41, malloc(41));
	NOT_A_TAIL_CALL;
}

NOINLINE void zeroed(void)
{
	for (size_t size = 5000; size < 60000; size += 5000)
		note(2, size, calloc(1, size));
	NOT_A_TAIL_CALL;
}

NOINLINE void large_ones(void)
{
	for (size_t size = 200000; size <= 5000000; size += 800000)
		note(3, size, malloc(size));
	NOT_A_TAIL_CALL;
}

/* All of these are gone at the end. */
NOINLINE void short_ones(void)
{
	for (size_t size = 10; size < 3000; size += 100) {
		void *block = malloc(size);

		__asm__ volatile("" : : "r"(block) : "memory");
		free(block);
	}
	NOT_A_TAIL_CALL;
}

int main(void)
{
	static const char *const names[] = {"small_ones", "wasteful", "zeroed", "large_ones"};

	small_ones();
	wasteful();
	zeroed();
	large_ones();
	short_ones();
	for (int i = 0; i < 4; i++)
		dprintf(1, "site %s %zu %zu\n", names[i], asked_by[i], usable_by[i] - asked_by[i]);
	for (size_t i = 0; i < class_count; i++)
		dprintf(1, "class %zu %zu %zu\n", classes[i].usable, classes[i].count, classes[i].asked);
	return 0;
}
