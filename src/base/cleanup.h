/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Scope-bound release: `autofree char *s = ...;`, `autoclose int fd = ...;`.
 * `take_ptr(p)` and `take_fd(fd)` hand the resource on and disarm the cleanup.
 */
#ifndef SONDE_BASE_CLEANUP_H
#define SONDE_BASE_CLEANUP_H

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define autoclean(fn) __attribute__((cleanup(fn)))
#define autofree autoclean(cleanup_free)
#define autoclose autoclean(cleanup_close)
#define autofclose autoclean(cleanup_fclose)

#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) taken_ = (p);                                                        \
		(p) = NULL;                                                                        \
		taken_;                                                                            \
	})
#define take_fd(fd)                                                                                \
	({                                                                                         \
		int taken_ = (fd);                                                                 \
		(fd) = -1;                                                                         \
		taken_;                                                                            \
	})

static inline void cleanup_free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup_fclose(FILE **f)
{
	if (*f)
		fclose(*f);
}

#endif
