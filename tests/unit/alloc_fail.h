/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Failing allocations on purpose: the test is linked with -Wl,--wrap for malloc, calloc and
 * realloc, and the one numbered alloc_fail_at (counting from 0) gives NULL, as do all after it.
 *
 *	for (uint64_t n = 0;; n++) {
 *		alloc_fail_begin(n);
 *		rc = the_thing();
 *		if (!alloc_fail_end())
 *			break;
 *		check(rc == -ENOMEM);
 *	}
 */
#ifndef SONDE_TESTS_UNIT_ALLOC_FAIL_H
#define SONDE_TESTS_UNIT_ALLOC_FAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *p, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *p, size_t size);

static uint64_t alloc_fail_seen, alloc_fail_at = UINT64_MAX;

static inline bool alloc_fail_now(void)
{
	return alloc_fail_seen++ >= alloc_fail_at;
}

void *__wrap_malloc(size_t size)
{
	return alloc_fail_now() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
	return alloc_fail_now() ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *p, size_t size)
{
	return alloc_fail_now() ? NULL : __real_realloc(p, size);
}

static inline void alloc_fail_begin(uint64_t n)
{
	alloc_fail_seen = 0;
	alloc_fail_at = n;
}

/* Ends the failing; whether an allocation failed since alloc_fail_begin(). */
static inline bool alloc_fail_end(void)
{
	bool hit = alloc_fail_seen > alloc_fail_at;

	alloc_fail_at = UINT64_MAX;
	return hit;
}

#endif
