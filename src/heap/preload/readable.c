/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which memory can be looked at without a fault: asked of the kernel once a page and remembered.
 *
 * The question is a system call that reads eight bytes of ours and does nothing, because its other argument is wrong:
 * rt_sigprocmask, which every program and every sandbox allows.
 *
 * What is remembered must not be unmapped meanwhile. The stack that the thread is on, from its stack pointer upwards, is
 * not; so one contiguous range is kept for as long as the thread stays in it, and those of other stacks that its callers are
 * on (those of a signal handler on its own stack) exactly as long. A thread that turns up elsewhere starts anew.
 */
#include "heap/preload/walk_priv.h"

#define PAGE 4096ull
#define DOWN_PAGES 64u /* how far below the known range the stack pointer may be on the same stack */
#define UP_PAGES 8192u /* how far above it the next frame may be: 32 MB */

#if defined(__x86_64__)
static long mask_from(uint64_t at)
{
	long ret = 14; /* rt_sigprocmask */
	register long size __asm__("r10") = 8;

	__asm__ volatile("syscall" : "+a"(ret) : "D"(-1L), "S"(at), "d"(0L), "r"(size) : "rcx", "r11", "memory");
	return ret;
}
#elif defined(__aarch64__)
static long mask_from(uint64_t at)
{
	register long number __asm__("x8") = 135; /* rt_sigprocmask */
	register long ret __asm__("x0") = -1;
	register uint64_t set __asm__("x1") = at;
	register long old __asm__("x2") = 0, size __asm__("x3") = 8;

	__asm__ volatile("svc 0" : "+r"(ret) : "r"(number), "r"(set), "r"(old), "r"(size) : "memory");
	return ret;
}
#else
#error "rt_sigprocmask of this architecture"
#endif

#define NO_SUCH_MASK (-22) /* -EINVAL: it was read, and refused because there is no operation -1 */

bool readable_page(uint64_t page)
{
	return mask_from(page) == NO_SUCH_MASK;
}

static bool inside(const struct walk_range *r, uint64_t at)
{
	return at >= r->start && at < r->end;
}

/* Alone: whatever else was known is forgotten. */
static bool start_anew(struct walk_readable *r, uint64_t page)
{
	r->count = 0;
	r->ranges[0] = (struct walk_range){0, 8};
	if (page > UINT64_MAX - PAGE || !readable_page(page))
		return false;
	r->ranges[0] = (struct walk_range){page, page + PAGE};
	r->count = 1;
	return true;
}

/* The stack has grown down to `page`, unless a page between says that this is another one. */
static bool grow_down(struct walk_readable *r, uint64_t page)
{
	uint64_t at = r->ranges[0].start;

	if (!r->count || at - page > DOWN_PAGES * PAGE)
		return false;
	while (at > page) {
		at -= PAGE;
		if (!readable_page(at))
			return false;
	}
	r->ranges[0].start = page;
	return true;
}

bool readable_enter(struct walk_readable *r, uint64_t sp, bool *ret_same)
{
	uint64_t page = sp & ~(PAGE - 1);

	*ret_same = true;
	if (__builtin_expect(r->count && inside(&r->ranges[0], sp), 1))
		return true;
	if (r->count && sp < r->ranges[0].start && grow_down(r, page))
		return true;
	*ret_same = false;
	for (uint32_t i = 1; i < r->count && i < WALK_RANGES; i++) {
		if (!inside(&r->ranges[i], sp))
			continue;
		r->ranges[0] = r->ranges[i];
		r->count = 1;
		return true;
	}
	return start_anew(r, page);
}

/* Upwards until `at` is inside as well. */
static bool grow_up(struct walk_range *range, uint64_t at)
{
	while (range->end <= at) {
		if (!readable_page(range->end))
			return false;
		range->end += PAGE;
	}
	return true;
}

static bool add_byte(struct walk_readable *r, uint64_t at)
{
	for (uint32_t i = 0; i < r->count && i < WALK_RANGES; i++)
		if (inside(&r->ranges[i], at))
			return true;
	for (uint32_t i = 0; i < r->count && i < WALK_RANGES; i++)
		if (at >= r->ranges[i].end && at - r->ranges[i].end < UP_PAGES * PAGE &&
			grow_up(&r->ranges[i], at))
			return true;
	if (r->count >= WALK_RANGES || !readable_page(at & ~(PAGE - 1)))
		return false;
	r->ranges[r->count++] = (struct walk_range){at & ~(PAGE - 1), (at & ~(PAGE - 1)) + PAGE};
	return true;
}

bool readable_extend(struct walk_readable *r, uint64_t at)
{
	/* The last pages of the address space are no stack. */
	if (at > UINT64_MAX - 4 * PAGE)
		return false;
	return add_byte(r, at) && add_byte(r, at + 7);
}
