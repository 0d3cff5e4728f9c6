/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much of a thread's stack is copied while it stands stopped: as much as its last stacks took,
 * and some more. The session learns that when it unwinds, the tracer needs it at the next stop.
 *
 * A table of fixed size, by thread id; threads that share a place get what the greedier one needs. One
 * thread of ours writes, any may read.
 */
#ifndef SONDE_SAMPLE_PTRACE_DUMP_SIZE_H
#define SONDE_SAMPLE_PTRACE_DUMP_SIZE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define DUMP_LEAST_BYTES 4096u
#define DUMP_FIRST_BYTES 16384u
#define DUMP_MOST_BYTES 65536u
#define DUMP_PLACES 4096u

struct dump_sizes {
	uint32_t most; /* asked for by the user; 0: DUMP_MOST_BYTES */
	_Atomic uint32_t bytes[DUMP_PLACES]; /* 0: not known yet */
};

/* A multiple of 8, at most DUMP_MOST_BYTES. */
size_t dump_size_of(const struct dump_sizes *d, pid_t tid);

/* A stack of this thread took `used` bytes of its copy; `short_of`: and more than there were. */
void dump_size_learn(struct dump_sizes *d, pid_t tid, uint32_t used, bool short_of);

#endif
