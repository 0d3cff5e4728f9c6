/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * operator new and delete of allocators that define them themselves (jemalloc, tcmalloc, mimalloc as libraries), and so do not
 * call malloc by its name. Those of libstdc++ and libc++ do: they are left alone, and their blocks are seen once, by malloc.
 *
 * None of these has an exported name: in front of a libstdc++ that is loaded later, for a plugin alone, there would be nothing
 * that ours could lead to. Instead the words by which objects call them are patched (got.c), where they lead to the allocator.
 *
 * An operator that throws is not called with our frame half done: its sister that returns NULL is. Only when that has
 * failed the other one is called, to throw, or to be seen by malloc's numbers no more when it finds memory after all.
 */
#include <dlfcn.h>

#include "heap/preload/hooks.h"
#include "heap/preload/operators.h"
#include "heap/preload/real.h"

#pragma weak dlsym

struct operators operators;

void operators_find(void)
{
	/* Most programs have none, and the loader makes words of each name that it does not find. */
	if (!dlsym || !dlsym(RTLD_DEFAULT, "_Znwm"))
		return;
#define OPERATOR_FIND(name, symbol, sister) *(void **)&operators.name = dlsym(RTLD_DEFAULT, symbol);
	OPERATORS_NEW(OPERATOR_FIND)
	OPERATORS_DELETE(OPERATOR_FIND)
#undef OPERATOR_FIND
}

/* Of the type std::nothrow_t, of which only the address counts. */
static const char nothrow;

static void *allocate(const struct walk_start *here, size_t size, operator_new *sister, uint64_t b, uint64_t c)
{
	struct thread *t = &thread;
	void *block;

	if (!take_begin_sampled(t, size))
		return sister(size, b, c);
	block = sister(size, b, c);
	/* What has an alignment may be larger than others. */
	if (unlikely(preload.tells_sizes) && (sister == operators.new_nothrow || sister == operators.new_array_nothrow))
		take_size(t, block, size, real.usable_size);
	take_allocated(t, block, size, here);
	take_end(t);
	return block;
}

/* `sister`, with the arguments that it wants. */
#define NEW(name, sister, ...)                                                                     \
	SLOW void *name##_slow(size_t size, uint64_t b, uint64_t c)                                \
	{                                                                                          \
		struct walk_start here = HERE();                                                   \
		void *block = allocate(&here, size, operators.sister, __VA_ARGS__);                \
                                                                                                   \
		return block ? block : operators.name(size, b, c);                                 \
	}                                                                                          \
                                                                                                   \
	OWN void *own_##name(size_t size, uint64_t b, uint64_t c)                                  \
	{                                                                                          \
		return unlikely(counts(size)) ? name##_slow(size, b, c) : operators.name(size, b, c); \
	}

#define NOTHROW (uint64_t)(uintptr_t)&nothrow

NEW(new, new_nothrow, NOTHROW, 0)
NEW(new_array, new_array_nothrow, NOTHROW, 0)
NEW(new_nothrow, new_nothrow, b, c)
NEW(new_array_nothrow, new_array_nothrow, b, c)
NEW(new_aligned, new_aligned_nothrow, b, NOTHROW)
NEW(new_array_aligned, new_array_aligned_nothrow, b, NOTHROW)
NEW(new_aligned_nothrow, new_aligned_nothrow, b, c)
NEW(new_array_aligned_nothrow, new_array_aligned_nothrow, b, c)

#define DELETE(name)                                                                               \
	SLOW void name##_slow(void *block, uint64_t b, uint64_t c)                                 \
	{                                                                                          \
		struct walk_start here = HERE();                                                   \
                                                                                                   \
		freed(block, &here);                                                               \
		operators.name(block, b, c);                                                       \
	}                                                                                          \
                                                                                                   \
	OWN void own_##name(void *block, uint64_t b, uint64_t c)                                   \
	{                                                                                          \
		if (block && of_interest(block))                                                   \
			name##_slow(block, b, c);                                                  \
		else                                                                               \
			operators.name(block, b, c);                                               \
	}

DELETE(delete)
DELETE(delete_array)
DELETE(delete_sized)
DELETE(delete_array_sized)
DELETE(delete_nothrow)
DELETE(delete_array_nothrow)
DELETE(delete_aligned)
DELETE(delete_array_aligned)
DELETE(delete_sized_aligned)
DELETE(delete_array_sized_aligned)
DELETE(delete_aligned_nothrow)
DELETE(delete_array_aligned_nothrow)
