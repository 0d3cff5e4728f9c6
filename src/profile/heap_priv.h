/* SPDX-License-Identifier: BSD-2-Clause */
/* Between the files that make something of allocations. */
#ifndef SONDE_PROFILE_HEAP_PRIV_H
#define SONDE_PROFILE_HEAP_PRIV_H

#include "profile/heap.h"

/* What a function has to do with memory that it asks for; the higher one is the one to blame. */
enum heap_role {
	HEAP_ROLE_ALLOCATOR,
	HEAP_ROLE_LIBRARY, /* hands it on, to whoever called it */
	HEAP_ROLE_USER,
};
uint8_t heap_role_of(const struct profile *p, const struct profile_function *f);

/* Replaces a shape: so many buckets (at most HEAP_BUCKETS) from `first` on. 0 or -ENOMEM. */
int heap_shape_set(struct profile_heap *h, struct heap_site *s, enum heap_shape kind, unsigned first, unsigned buckets,
	const double *counts);
void heap_shapes_release(struct heap_shapes *all);

/* Sets heap->wrappers, as far as there is memory. */
void heap_find_wrappers(struct profile *p);

/* heap_site_level(); `roles`: by function, NULL: not made. */
uint32_t heap_find_level(const struct profile *p, uint32_t stack, const uint8_t *roles, uint32_t *ret_node);

#endif
