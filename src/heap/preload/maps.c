/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What programs map themselves: mmap and its like, brk. Written down only where that was asked for (SHARE_OPTION_MAPS),
 * then every call of it, whatever becomes of allocations: a call is a system call, and few are made.
 *
 * Allocators that are libraries of their own map memory by the same functions and hand it out by malloc. What is called
 * from the object file that malloc is in is therefore not written down. (libc calls functions of its own.)
 *
 * What goes is told before it goes, and what is new when it is there, as with blocks; a call that fails takes back what
 * was told.
 */
#include <errno.h>
#include <linux/mman.h>
#include <sys/auxv.h>

#include "heap/preload/own.h"
#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/sys.h"
#include "heap/preload/take.h"

#pragma weak getauxval

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#define FAILED ((void *)-1)

static inline bool wanted(void)
{
	return unlikely(preload.options & SHARE_OPTION_MAPS) && preload.state != PRELOAD_OFF;
}

/* False: nothing is written down, and there is no take_end. What is called from within malloc, by way of a library that the
 * allocator uses, is the allocator's too. */
static bool begin(struct thread *t, const struct walk_start *here)
{
	return !real_has(here->pc) && !t->busy && take_begin(t);
}

static uint64_t pages(uint64_t bytes)
{
	uint64_t page = getauxval ? getauxval(AT_PAGESZ) : 4096;

	return (bytes + page - 1) & ~(page - 1);
}

/* ---- events ---- */

static void put_map(struct thread *t, const void *at, uint64_t bytes, enum share_map kind, const struct walk_start *here)
{
	uint32_t node = stack_take(t, here);
	uint64_t *e = ring_reserve(t, 32);

	if (unlikely(!e))
		return;
	e[0] = take_time();
	e[1] = SHARE_WORD(SHARE_MAP, (uintptr_t)at);
	e[2] = bytes;
	e[3] = (uint64_t)kind << 32 | node;
	ring_commit(t, 32);
}

static void put_unmap(struct thread *t, const void *at, uint64_t bytes)
{
	uint64_t *e = ring_reserve(t, 24);

	if (unlikely(!e))
		return;
	e[0] = clock_before(preload.clock);
	e[1] = SHARE_WORD(SHARE_UNMAP, (uintptr_t)at);
	e[2] = bytes;
	ring_commit(t, 24);
}

static void put_failed(struct thread *t)
{
	uint64_t *e = ring_reserve(t, 16);

	if (unlikely(!e))
		return;
	e[0] = take_time();
	e[1] = SHARE_WORD(SHARE_UNMAP_FAILED, 0);
	ring_commit(t, 16);
}

/* ---- the real functions ---- */

static void *failed(long ret)
{
	if (ret >= 0 || ret < -4095)
		return (void *)ret;
	errno = (int)-ret;
	return FAILED;
}

/* They are not searched for here: see real_known(). */
static void *real_mmap(void *at, size_t bytes, int access, int flags, int fd, long offset)
{
	if (real_known() && real.mmap)
		return real.mmap(at, bytes, access, flags, fd, offset);
	return failed(sys6(SYS_mmap, at, bytes, access, flags, fd, offset));
}

static int real_munmap(void *at, size_t bytes)
{
	if (real_known() && real.munmap)
		return real.munmap(at, bytes);
	return failed(sys3(SYS_munmap, at, bytes, 0)) == FAILED ? -1 : 0;
}

static void *real_mremap(void *old, size_t old_bytes, size_t bytes, int flags, void *at)
{
	if (real_known() && real.mremap)
		return real.mremap(old, old_bytes, bytes, flags, at);
	return failed(sys6(SYS_mremap, old, old_bytes, bytes, flags, at, 0));
}

/* libc keeps where the break is: there is no other way to it. */
static void *real_sbrk(long more)
{
	/* Where it is the kernel knows as well. */
	if (!more && !real_known())
		return (void *)sys3(SYS_brk, 0, 0, 0);
	if (likely(real_ready(&thread) && real.sbrk))
		return real.sbrk(more);
	errno = ENOMEM;
	return FAILED;
}

static int real_brk(void *end)
{
	if (likely(real_ready(&thread) && real.brk))
		return real.brk(end);
	errno = ENOMEM;
	return -1;
}

/* ---- mmap ---- */

SLOW void *mmap_slow(void *at, size_t bytes, int access, int flags, int fd, long offset)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	enum share_map kind = flags & MAP_ANONYMOUS ? SHARE_MAP_MEMORY : SHARE_MAP_FILE;
	void *ret;

	if (!begin(t, &here))
		return real_mmap(at, bytes, access, flags, fd, offset);
	ret = real_mmap(at, bytes, access, flags, fd, offset);
	if (access == PROT_NONE && kind == SHARE_MAP_MEMORY)
		kind = SHARE_MAP_RESERVED;
	if (ret != FAILED)
		put_map(t, ret, pages(bytes), kind, &here);
	take_end(t);
	return ret;
}

PRELOAD_EXPORT void *mmap(void *at, size_t bytes, int access, int flags, int fd, long offset);
PRELOAD_EXPORT void *mmap(void *at, size_t bytes, int access, int flags, int fd, long offset)
{
	return wanted() ? mmap_slow(at, bytes, access, flags, fd, offset) : real_mmap(at, bytes, access, flags, fd, offset);
}

/* The same where offsets have 64 bits in any case. */
PRELOAD_EXPORT void *mmap64(void *at, size_t bytes, int access, int flags, int fd, long offset);
PRELOAD_EXPORT void *mmap64(void *at, size_t bytes, int access, int flags, int fd, long offset)
{
	return wanted() ? mmap_slow(at, bytes, access, flags, fd, offset) : real_mmap(at, bytes, access, flags, fd, offset);
}

SLOW int munmap_slow(void *at, size_t bytes)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	int ret;

	if (!begin(t, &here))
		return real_munmap(at, bytes);
	put_unmap(t, at, pages(bytes));
	ret = real_munmap(at, bytes);
	if (ret)
		put_failed(t);
	take_end(t);
	return ret;
}

PRELOAD_EXPORT int munmap(void *at, size_t bytes);
PRELOAD_EXPORT int munmap(void *at, size_t bytes)
{
	return wanted() ? munmap_slow(at, bytes) : real_munmap(at, bytes);
}

SLOW void *mremap_slow(void *old, size_t old_bytes, size_t bytes, int flags, void *at)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	bool goes = old_bytes && !(flags & MREMAP_DONTUNMAP);
	void *ret;

	if (!begin(t, &here))
		return real_mremap(old, old_bytes, bytes, flags, at);
	if (goes)
		put_unmap(t, old, pages(old_bytes));
	ret = real_mremap(old, old_bytes, bytes, flags, at);
	if (ret != FAILED)
		put_map(t, ret, pages(bytes), goes ? SHARE_MAP_SAME : SHARE_MAP_MEMORY, &here);
	else if (goes)
		put_failed(t);
	take_end(t);
	return ret;
}

PRELOAD_EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, void *at);
PRELOAD_EXPORT void *mremap(void *old, size_t old_bytes, size_t bytes, int flags, void *at)
{
	return wanted() ? mremap_slow(old, old_bytes, bytes, flags, at) : real_mremap(old, old_bytes, bytes, flags, at);
}

/* ---- the break ---- */

/* Of `more` bytes, which may be less than none. */
static void *move_break(struct thread *t, const struct walk_start *here, long more)
{
	uint8_t *ret, *before = more < 0 ? real_sbrk(0) : NULL;

	if (more < 0)
		put_unmap(t, before + more, (uint64_t)-more);
	ret = real_sbrk(more);
	if (ret == FAILED && more < 0)
		put_failed(t);
	else if (ret != FAILED && more > 0)
		put_map(t, ret, (uint64_t)more, SHARE_MAP_BREAK, here);
	return ret;
}

SLOW void *sbrk_slow(long more)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	void *ret;

	if (!more || !begin(t, &here))
		return real_sbrk(more);
	ret = move_break(t, &here, more);
	take_end(t);
	return ret;
}

PRELOAD_EXPORT void *sbrk(long more);
PRELOAD_EXPORT void *sbrk(long more)
{
	return wanted() ? sbrk_slow(more) : real_sbrk(more);
}

SLOW int brk_slow(void *end)
{
	struct walk_start here = HERE();
	struct thread *t = &thread;
	uint8_t *now;
	void *ret;

	if (!begin(t, &here))
		return real_brk(end);
	now = real_sbrk(0);
	if (now == FAILED) {
		take_end(t);
		return real_brk(end);
	}
	ret = move_break(t, &here, (long)((uint8_t *)end - now));
	take_end(t);
	return ret == FAILED ? -1 : 0;
}

PRELOAD_EXPORT int brk(void *end);
PRELOAD_EXPORT int brk(void *end)
{
	return wanted() ? brk_slow(end) : real_brk(end);
}

/* ---- for programs that are attached to ---- */

OWN_ALIAS(mmap);
OWN_ALIAS(mmap64);
OWN_ALIAS(munmap);
OWN_ALIAS(mremap);
OWN_ALIAS(brk);
OWN_ALIAS(sbrk);
