/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is called when the library was put into a program that runs (heap/inject/inject.h), by one thread at a time, which
 * is inside neither allocator nor loader. The steps, in order:
 *
 *	sonde_heap_share    text: the wish as it would stand in the environment -> a descriptor of the shared memory
 *	                    now the collector takes it from /proc/PID/fd and makes its tables
 *	sonde_heap_attach   closes it, and patches -> number of words | number of objects << 32
 *	sonde_heap_detach   puts everything back; the library stays, and may be attached again
 *
 *	sonde_heap_abandoned  detaches it from a collector that was killed; -EBUSY: it was not attached, but started so
 *
 * All return -errno where they fail: -EBUSY when the program is watched already.
 */
#include <dlfcn.h>
#include <errno.h>

#include "heap/preload/got.h"
#include "heap/preload/own.h"
#include "heap/preload/preload.h"
#include "heap/preload/real.h"
#include "heap/preload/sys.h"

#pragma weak dlsym

OWN long own_sonde_heap_share(const char *text, unsigned long unused);

/* That a collector who was killed has left behind: the next one closes it. 0: none. */
static int shared_fd;

static void close_shared(void)
{
	if (shared_fd)
		sys3(SYS_close, shared_fd, 0, 0);
	shared_fd = 0;
}

PRELOAD_EXPORT long sonde_heap_share(const char *text, unsigned long unused);
PRELOAD_EXPORT long sonde_heap_share(const char *text, unsigned long unused)
{
	int fd;

	close_shared();
	/* The preload stands in front of everything already. */
	if (dlsym && dlsym(RTLD_DEFAULT, "sonde_heap_share") != (void *)own_sonde_heap_share)
		return -EBUSY;
	if (!got_find_real())
		return -ENOSYS;
	fd = preload_share(text);
	shared_fd = fd > 0 ? fd : 0;
	return fd;
}

OWN_ALIAS(sonde_heap_share);

PRELOAD_EXPORT long sonde_heap_attach(const char *text, unsigned long unused);
PRELOAD_EXPORT long sonde_heap_attach(const char *text, unsigned long unused)
{
	struct got_counts counts = {0};

	if (!shared_fd)
		return -EINVAL;
	close_shared();
	got_patch(&counts);
	preload_shared_on();
	return (long)((uint64_t)counts.objects << 32 | counts.slots);
}

static void detach(void)
{
	close_shared();
	got_restore();
	preload_unshare();
}

PRELOAD_EXPORT long sonde_heap_detach(const char *text, unsigned long unused);
PRELOAD_EXPORT long sonde_heap_detach(const char *text, unsigned long unused)
{
	detach();
	return 0;
}

PRELOAD_EXPORT long sonde_heap_abandoned(const char *text, unsigned long unused);
PRELOAD_EXPORT long sonde_heap_abandoned(const char *text, unsigned long unused)
{
	if (!preload.attached)
		return -EBUSY;
	detach();
	return 0;
}
