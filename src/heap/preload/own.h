/* SPDX-License-Identifier: BSD-2-Clause */
/* The hooks by names that nobody can stand in front of: the exported ones may lead to the program's own. */
#ifndef SONDE_HEAP_PRELOAD_OWN_H
#define SONDE_HEAP_PRELOAD_OWN_H

#include <stddef.h>

#define OWN __attribute__((visibility("hidden")))

OWN void *own_malloc(size_t size);
OWN void own_free(void *block);
OWN void *own_calloc(size_t count, size_t size);
OWN void *own_realloc(void *block, size_t size);
OWN void *own_reallocarray(void *block, size_t count, size_t size);
OWN void *own_memalign(size_t alignment, size_t size);
OWN int own_posix_memalign(void **ret, size_t alignment, size_t size);
OWN void *own_aligned_alloc(size_t alignment, size_t size);
OWN void *own_valloc(size_t size);
OWN void *own_pvalloc(size_t size);
OWN void own_cfree(void *block);
OWN void own_free_sized(void *block, size_t size);
OWN void own_free_aligned_sized(void *block, size_t alignment, size_t size);
OWN void *own_dlopen(const char *name, int flags);
OWN void *own_dlmopen(long space, const char *name, int flags);
OWN int own_dlclose(void *handle);

/* Behind the definition of NAME. */
#if __has_attribute(copy)
#define OWN_ALIAS(name) __typeof__(own_##name) own_##name __attribute__((alias(#name), copy(name)))
#else
#define OWN_ALIAS(name) __typeof__(own_##name) own_##name __attribute__((alias(#name)))
#endif

#endif
