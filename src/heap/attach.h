/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Watching the allocations of a program that runs already: our library is put into it (heap/inject/inject.h), its memory
 * is shared with the collector, and the calls of all its object files are led to us; and back.
 *
 * Each step diverts one thread of the program for less than a millisecond and leaves nothing to be waited for.
 */
#ifndef SONDE_HEAP_ATTACH_H
#define SONDE_HEAP_ATTACH_H

#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

struct heap_attached {
	uint32_t slots, objects;  /* words that lead to us, in so many files */
	uint32_t stops;           /* of one thread at a time */
	uint64_t longest_stop_ns, stopped_ns; /* the longest one, and all together */
};

/* Whether it lets our library in at all; as inject_open() says. */
int heap_attach_possible(pid_t pid, struct err *err);

/*
 * Puts the library in and makes the shared memory, as `wish` (heap_collector_environment()) says. *ret_fd is it, the caller's; the
 * program writes nothing yet. Fails as inject_open() and inject_load(), and -EBUSY: it is watched already.
 */
int heap_attach_share(pid_t pid, const char *wish, int *ret_fd, struct heap_attached *ret, struct err *err);

/* From here on its calls are written down. *ret goes on counting. */
int heap_attach_begin(pid_t pid, struct heap_attached *ret, struct err *err);

/* Its calls are its own again, and its memory is given back. The library stays, asleep. */
int heap_attach_end(pid_t pid, struct heap_attached *ret, struct err *err);

#endif
