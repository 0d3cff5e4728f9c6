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
OWN void *own_mmap(void *at, size_t bytes, int access, int flags, int fd, long offset);
OWN void *own_mmap64(void *at, size_t bytes, int access, int flags, int fd, long offset);
OWN int own_munmap(void *at, size_t bytes);
OWN void *own_mremap(void *old, size_t old_bytes, size_t bytes, int flags, void *at);
OWN int own_brk(void *end);
OWN void *own_sbrk(long more);
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
