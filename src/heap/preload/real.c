/* SPDX-License-Identifier: BSD-2-Clause */
#include "heap/preload/real.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>

#include "heap/preload/operators.h"
#include "heap/preload/preload.h"
#include "heap/share.h"

#pragma weak dlsym
#pragma weak dl_iterate_phdr
#pragma weak operators_find /* parts of it stand alone in tests */

struct real real;

_Alignas(4096) uint8_t pool[POOL_BYTES];
static uint32_t pool_used;

/* In front of each block: its size. */
#define POOL_HEAD 16u

void *pool_take(size_t alignment, size_t size)
{
	uint32_t used = __atomic_load_n(&pool_used, __ATOMIC_RELAXED), begin, end;

	if (alignment < POOL_HEAD)
		alignment = POOL_HEAD;
	if (size > POOL_BYTES || alignment > 4096 || (alignment & (alignment - 1)))
		return NULL;
	do {
		begin = (used + POOL_HEAD + (uint32_t)alignment - 1) & ~((uint32_t)alignment - 1);
		end = begin + (uint32_t)((size + POOL_HEAD - 1) & ~(size_t)(POOL_HEAD - 1));
		if (end > POOL_BYTES)
			return NULL;
	} while (!__atomic_compare_exchange_n(&pool_used, &used, end, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	*(uint64_t *)(void *)(pool + begin - POOL_HEAD) = size;
	return pool + begin;
}

size_t pool_size(const void *p)
{
	return *(const uint64_t *)(const void *)((const uint8_t *)p - POOL_HEAD);
}

static void *find(const char *name)
{
	return dlsym ? dlsym(RTLD_NEXT, name) : NULL;
}

static int look_for_malloc(struct dl_phdr_info *info, size_t size, void *ctx)
{
	uint64_t malloc = *(const uint64_t *)ctx, low = UINT64_MAX, high = 0;

	for (uint32_t i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uint64_t start = info->dlpi_addr + p->p_vaddr, end = start + p->p_memsz;

		if (p->p_type != PT_LOAD)
			continue;
		low = start < low ? start : low;
		high = end > high ? end : high;
	}
	if (malloc < low || malloc >= high)
		return 0;
	real.low = low;
	real.high = high;
	return 1;
}

void real_find_object(void)
{
	uint64_t malloc = (uint64_t)real.malloc;

	if (!dl_iterate_phdr || !malloc || !dl_iterate_phdr(look_for_malloc, &malloc))
		return;
	real.sizes = SHARE_SIZES_UNKNOWN;
	if (real_has((uint64_t)dlsym(RTLD_DEFAULT, "gnu_get_libc_version")))
		real.sizes = SHARE_SIZES_GLIBC;
	else if (!real.nests && real_has(*(uint64_t *)(void *)&real.usable_size))
		real.sizes = SHARE_SIZES_TOLD;
}

static void find_all(void)
{
	void *next = find("malloc");

	*(void **)&real.free = find("free");
	*(void **)&real.calloc = find("calloc");
	*(void **)&real.realloc = find("realloc");
	*(void **)&real.memalign = find("memalign");
	*(void **)&real.posix_memalign = find("posix_memalign");
	*(void **)&real.aligned_alloc = find("aligned_alloc");
	*(void **)&real.valloc = find("valloc");
	*(void **)&real.pvalloc = find("pvalloc");
	*(void **)&real.usable_size = find("malloc_usable_size");
	*(void **)&real.free_sized = find("free_sized");
	*(void **)&real.free_aligned_sized = find("free_aligned_sized");
	*(void **)&real.dlopen = find("dlopen");
	*(void **)&real.dlmopen = find("dlmopen");
	*(void **)&real.dlclose = find("dlclose");
	*(void **)&real.mlockall = find("mlockall");
	*(void **)&real.mmap = find("mmap");
	*(void **)&real.mmap64 = find("mmap64");
	*(void **)&real.munmap = find("munmap");
	*(void **)&real.mremap = find("mremap");
	*(void **)&real.brk = find("brk");
	*(void **)&real.sbrk = find("sbrk");
	*(void **)&real.prctl = find("prctl");
	*(void **)&real.syscall = find("syscall");
	if (operators_find)
		operators_find();
	real.nests = !find("gnu_get_libc_version");
	__atomic_store_n((void **)&real.malloc, next, __ATOMIC_RELEASE);
}

bool real_search(struct thread *t)
{
	int saved;

	if (t->busy)
		return false;
	saved = errno;
	t->busy = 1;
	find_all();
	real_find_object();
	t->busy = 0;
	errno = saved;
	return real.malloc != NULL;
}
