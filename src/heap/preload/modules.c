/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code that comes and goes: the collector is told, so that it makes unwind tables for what is new. And what a program does
 * to all of its memory, of which ours is a part.
 *
 * The loader looks at the address that called dlopen: names without a '/' are searched for on the caller's own path, and
 * $ORIGIN is the caller's. Such calls are told of before and then jumped to, so that the loader sees the program and
 * not us; the collector learns what came of them when a stack meets code without a table. For all other names the caller
 * does not matter, and the collector is waited for, for a moment, after the code is there.
 */
#include <dlfcn.h>
#include <errno.h>
#include <sys/mman.h>

#include "heap/preload/clock.h"
#include "heap/preload/got.h"
#include "heap/preload/own.h"
#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/ring.h"

static bool on(void)
{
	return __atomic_load_n(&preload.state, __ATOMIC_ACQUIRE) == PRELOAD_ON && *preload.alive &&
		!preload.memory.header->stop;
}

/* The mappings have changed, or are about to. */
static void tell(bool gone)
{
	struct share_header *h = preload.memory.header;
	struct thread *t = &thread;
	uint32_t wanted;
	uint64_t *e;

	if (!on())
		return;
	if (gone)
		__atomic_fetch_add(&h->modules_gone, 1, __ATOMIC_ACQ_REL);
	wanted = __atomic_add_fetch(&h->modules_wanted, 1, __ATOMIC_ACQ_REL);
	if (t->busy || t->generation != preload.generation || !t->chunk)
		return;
	t->busy = 1;
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	e = ring_reserve(t, 16);
	if (e) {
		e[0] = clock_before(preload.clock);
		e[1] = SHARE_WORD(SHARE_MODULES, wanted);
		ring_commit(t, 16);
	}
	__atomic_signal_fence(__ATOMIC_SEQ_CST);
	t->busy = 0;
}

/* Only then the caller is of no importance. */
static bool is_plain_path(const char *name)
{
	bool path = false;

	for (; name && *name; name++) {
		path |= *name == '/';
		if (*name == '$')
			return false;
	}
	return path;
}

static __attribute__((noinline)) void *loaded(void *handle)
{
	int saved = errno;

	got_loaded();
	tell(false);
	if (on())
		preload_wait(SHARE_WAIT_LOAD_MS);
	errno = saved;
	return handle;
}

PRELOAD_EXPORT void *dlopen(const char *name, int flags)
{
	if (!real_ready(&thread))
		return NULL;
	if (!name || (flags & RTLD_NOLOAD))
		return real.dlopen(name, flags);
	if (is_plain_path(name))
		return loaded(real.dlopen(name, flags));
	got_loads();
	tell(false);
	return real.dlopen(name, flags);
}

PRELOAD_EXPORT void *dlmopen(Lmid_t namespace, const char *name, int flags)
{
	if (!real_ready(&thread) || !real.dlmopen)
		return NULL;
	if (is_plain_path(name))
		return loaded(real.dlmopen(namespace, name, flags));
	got_loads();
	tell(false);
	return real.dlmopen(namespace, name, flags);
}

PRELOAD_EXPORT int dlclose(void *handle)
{
	int ret, saved;

	if (!real_ready(&thread) || !real.dlclose)
		return -1;
	ret = real.dlclose(handle);
	saved = errno;
	tell(true);
	errno = saved;
	return ret;
}

OWN_ALIAS(dlopen);
OWN_ALIAS(dlmopen);
OWN_ALIAS(dlclose);

/* Locking all there is would make pages of all that we have mapped, which is far more than we use: pages are locked when
 * they are first used, those of the program too. */
PRELOAD_EXPORT int mlockall(int flags)
{
	if (!real_ready(&thread) || !real.mlockall) {
		errno = ENOSYS;
		return -1;
	}
	if (on() && (flags & (MCL_CURRENT | MCL_FUTURE)))
		flags |= MCL_ONFAULT;
	return real.mlockall(flags);
}
