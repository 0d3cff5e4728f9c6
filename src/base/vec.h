/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Growable arrays of any type.
 *
 *	VEC(struct frame) frames = {0};
 *	if (vec_push(&frames, f))
 *		return -ENOMEM;
 *	vec_each(&frames, it)
 *		use(it);
 *	vec_release(&frames);
 *
 * Invariants: len <= cap; data is NULL while cap is 0. Elements move when the array grows: keep
 * indices, not pointers. All-zero is the empty array. Growing is the only thing that can fail,
 * and then leaves the array as it was.
 */
#ifndef SONDE_BASE_VEC_H
#define SONDE_BASE_VEC_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

#define VEC(T)                                                                                     \
	struct {                                                                                   \
		T *data;                                                                           \
		size_t len, cap;                                                                   \
	}

/* The same as a named type, for function signatures. */
#define VEC_TYPE(name, T)                                                                          \
	struct name {                                                                              \
		T *data;                                                                           \
		size_t len, cap;                                                                   \
	}

/* Room for `n` elements in all. 0 or -ENOMEM. */
#define vec_reserve(v, n) vec_grow((void **)&(v)->data, &(v)->cap, (n), sizeof(*(v)->data))

/* Appends one element. 0 or -ENOMEM. */
#define vec_push(v, ...)                                                                           \
	(vec_reserve((v), (v)->len + 1) ? -ENOMEM : ((v)->data[(v)->len++] = (__VA_ARGS__), 0))

#define vec_each(v, it)                                                                            \
	for (__typeof__(&*(v)->data) it = (v)->data; it && it < (v)->data + (v)->len; it++)

#define vec_release(v)                                                                             \
	do {                                                                                       \
		free((v)->data);                                                                   \
		(v)->data = NULL;                                                                  \
		(v)->len = (v)->cap = 0;                                                           \
	} while (0)

static inline int vec_grow(void **data, size_t *cap, size_t need, size_t elem_bytes)
{
	if (need <= *cap)
		return 0;

	size_t want = *cap ? *cap : 8, bytes;

	while (want < need)
		if (__builtin_mul_overflow(want, 2, &want))
			return -ENOMEM;
	if (__builtin_mul_overflow(want, elem_bytes, &bytes))
		return -ENOMEM;

	void *grown = realloc(*data, bytes);

	if (!grown)
		return -ENOMEM;
	*data = grown;
	*cap = want;
	return 0;
}

#endif
