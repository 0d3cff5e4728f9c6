/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Programs that leave themselves less room while they run. What is mapped for the collector counts for a limit on
 * address space, and a filter of system calls may end a program for one of ours. So the calls that set these are looked
 * at, and from then on nothing is written down: the program comes first.
 *
 * A limit in a process with threads is raised by what we have mapped instead, because somebody may be writing there.
 */
#include <errno.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/sys.h"

/* Of glibc: no other thread was ever started, or all are gone. */
extern char __libc_single_threaded;
#pragma weak __libc_single_threaded

static long result(long ret)
{
	if (ret < 0 && ret > -4096) {
		errno = (int)-ret;
		return -1;
	}
	return ret;
}

/* Whether the memory is this process's own: not in a child of vfork, which uses its parent's. */
static bool is_ours(void)
{
	return preload.state == PRELOAD_ON &&
		(!*preload.alive || preload.memory.header->pid == (uint32_t)sys3(SYS_getpid, 0, 0, 0));
}

/* ---- sandboxes ---- */

static void enter_sandbox(void)
{
	if (!is_ours())
		return;
	if (*preload.alive)
		__atomic_store_n(&preload.memory.header->gave_up, SHARE_LEFT_SANDBOX, __ATOMIC_RELEASE);
	preload_off();
}

/* Not variadic: whatever else is in these registers is handed on, as it would be. */
PRELOAD_EXPORT int prctl(int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
PRELOAD_EXPORT int prctl(int what, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	if (what == PR_SET_SECCOMP)
		enter_sandbox();
	/* No search, which allocates: an allocator calls this with its lock held. */
	if (!real.prctl)
		return (int)result(sys6(SYS_prctl, (long)what, a, b, c, d, 0));
	return real.prctl(what, a, b, c, d);
}

static inline void before_call(long number, long a)
{
	if (unlikely((number == SYS_seccomp && a <= SECCOMP_SET_MODE_FILTER) ||
		    (number == SYS_prctl && a == PR_SET_SECCOMP)))
		enter_sandbox();
}

/* What allocators call while they begin (real_known()); of five arguments at most. */
static bool is_of_allocators(long number)
{
	switch (number) {
#ifdef SYS_open
	case SYS_open:
	case SYS_readlink:
#endif
	case SYS_openat:
	case SYS_read:
	case SYS_close:
	case SYS_readlinkat:
	case SYS_gettid:
	case SYS_getrandom:
		return true;
	default:
		return false;
	}
}

/* A jump at its end: what vfork and clone do to the stack they do to the program's own frame. Arguments in registers alone: one
 * that lies on the stack stays where it is. */
#if defined(__x86_64__)
PRELOAD_EXPORT long syscall(long number, long a, long b, long c, long d, long e);
PRELOAD_EXPORT long syscall(long number, long a, long b, long c, long d, long e)
{
	before_call(number, a);
	if (unlikely(!real_known()) && is_of_allocators(number))
		return result(sys6(number, a, b, c, d, e, 0));
	if (unlikely(!real_ready(&thread) || !real.syscall))
		return result(-ENOSYS);
	return real.syscall(number, a, b, c, d, e);
}
#else
PRELOAD_EXPORT long syscall(long number, long a, long b, long c, long d, long e, long f);
PRELOAD_EXPORT long syscall(long number, long a, long b, long c, long d, long e, long f)
{
	before_call(number, a);
	if (unlikely(!real_known()) && is_of_allocators(number))
		return result(sys6(number, a, b, c, d, e, 0));
	if (unlikely(!real_ready(&thread) || !real.syscall))
		return result(-ENOSYS);
	return real.syscall(number, a, b, c, d, e, f);
}
#endif

/* ---- limits ---- */

/* Nobody else can be in there. In a forked child that has not started nobody was. */
static bool is_alone(void)
{
	return !*preload.alive || (&__libc_single_threaded && __libc_single_threaded && !thread.busy);
}

static void leave_memory(void)
{
	struct share_header *h = preload.memory.header;

	if (*preload.alive)
		__atomic_store_n(&h->gave_up, SHARE_LEFT_LIMIT, __ATOMIC_RELEASE);
	preload_off();
	/* What this thread knows of it is void; one without a generation asks first whether there is anything. */
	thread.generation = 0;
	thread.chunk = NULL;
	thread.walk = NULL;
	thread.ring = 0;
	preload.filter_counts = NULL;
	preload.rings = NULL;
	preload.chunks = NULL;
	preload.memory = (struct walk_memory){0};
	sys3(SYS_munmap, h, SHARE_BYTES, 0);
}

/* The limit to be set instead of `wish`, which may be it. */
static const struct rlimit *make_room(int what, const struct rlimit *wish, struct rlimit *wide)
{
	if (what != RLIMIT_AS || !wish || !preload_needs_room(wish->rlim_cur) || !is_ours())
		return wish;
	if (is_alone()) {
		leave_memory();
		return wish;
	}
	wide->rlim_cur = wish->rlim_cur + SHARE_BYTES;
	wide->rlim_max = wish->rlim_max < wide->rlim_cur ? wide->rlim_cur : wish->rlim_max;
	return wide;
}

static int set_limit(int what, const struct rlimit *wish)
{
	struct rlimit wide;
	const struct rlimit *used = make_room(what, wish, &wide);
	long ret = sys6(SYS_prlimit64, 0, (long)what, used, 0, 0, 0);

	/* More than it may have. */
	if (ret == -EPERM && used != wish)
		ret = sys6(SYS_prlimit64, 0, (long)what, wish, 0, 0, 0);
	return (int)result(ret);
}

/* All ours are of 64 bits, where both kinds are one. Declared with another type for `what` in C++ alone. */
_Static_assert(sizeof(struct rlimit) == 16, "as the kernel's of 64 bits");

PRELOAD_EXPORT int own_setrlimit(int what, const struct rlimit *wish) __asm__("setrlimit");
PRELOAD_EXPORT int own_setrlimit(int what, const struct rlimit *wish)
{
	return set_limit(what, wish);
}

PRELOAD_EXPORT int own_setrlimit64(int what, const struct rlimit *wish) __asm__("setrlimit64");
PRELOAD_EXPORT int own_setrlimit64(int what, const struct rlimit *wish)
{
	return set_limit(what, wish);
}

static int change_limit(int pid, int what, const struct rlimit *wish, struct rlimit *ret_old)
{
	if (wish && what == RLIMIT_AS && (!pid || pid == (int)sys3(SYS_getpid, 0, 0, 0))) {
		if (ret_old && result(sys6(SYS_prlimit64, 0, (long)what, 0, ret_old, 0, 0)))
			return -1;
		return set_limit(what, wish);
	}
	return (int)result(sys6(SYS_prlimit64, (long)pid, (long)what, wish, ret_old, 0, 0));
}

PRELOAD_EXPORT int own_prlimit(int pid, int what, const struct rlimit *wish, struct rlimit *ret_old) __asm__("prlimit");
PRELOAD_EXPORT int own_prlimit(int pid, int what, const struct rlimit *wish, struct rlimit *ret_old)
{
	return change_limit(pid, what, wish, ret_old);
}

PRELOAD_EXPORT int own_prlimit64(int pid, int what, const struct rlimit *wish, struct rlimit *ret_old) __asm__("prlimit64");
PRELOAD_EXPORT int own_prlimit64(int pid, int what, const struct rlimit *wish, struct rlimit *ret_old)
{
	return change_limit(pid, what, wish, ret_old);
}
