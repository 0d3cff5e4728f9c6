/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * perf_event_open and its rings: opening events, and getting records out of shared memory.
 *
 * Facts only: which events exist to be opened, on which threads, is the sampler's policy
 * (sample/perf/). Records are the kernel's, but shared memory is memory: sizes are checked here
 * before anyone sees them.
 */
#ifndef SONDE_OS_PERF_EVENT_H
#define SONDE_OS_PERF_EVENT_H

#include <linux/perf_event.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* A descriptor (close-on-exec), or -errno. */
int perf_event_open(struct perf_event_attr *attr, pid_t tid, int cpu, int group_fd);

/* The same for all threads of a cgroup (v2) and those below it, while they run on `cpu`; the
 * descriptor is of the cgroup's directory. */
int perf_event_open_cgroup(struct perf_event_attr *attr, int cgroup_fd, int cpu);

/* One number from a sysctl file under /proc/sys/kernel, `fallback` when it cannot be read. */
int perf_sysctl(const char *name, int fallback);

/* Largest sample_stack_user the kernel takes: below 64 KB and a multiple of 8. */
#define PERF_MAX_STACK_BYTES 65528u

/*
 * A ring: one control page and 2^n data pages that the kernel fills and we empty.
 *
 * Protocol (perf_event_open(2), "MMAP layout"): data_head is loaded with acquire before the data
 * is read, data_tail is stored with release after it was consumed.
 */
struct perf_ring {
	struct perf_event_mmap_page *page; /* NULL: not mapped */
	const uint8_t *data;
	size_t data_bytes; /* a power of two */
	uint64_t head;     /* as of perf_ring_begin() */
	uint64_t tail;     /* consumed by us */
	size_t peeked;     /* size of the record that was peeked at */
	uint8_t *linear;   /* a record that wraps is copied here */
};

#define PERF_RECORD_MAX_BYTES 65536u

/* Maps a ring of `pages` data pages (a power of two) over the event. -EPERM: over the mlock
 * limit of this user. */
int perf_ring_map(struct perf_ring *r, int fd, size_t pages);
void perf_ring_unmap(struct perf_ring *r);

/* Looks at what is there now; returns the number of bytes. */
size_t perf_ring_begin(struct perf_ring *r);

/* The oldest record of those perf_ring_begin() saw, valid until perf_ring_pop(); NULL when there
 * is none, or what is there makes no sense (it is dropped then and *ret_malformed set). */
const struct perf_event_header *perf_ring_peek(struct perf_ring *r, bool *ret_malformed);

/* Moves on past the record that perf_ring_peek() gave and hands its space back to the kernel. */
void perf_ring_pop(struct perf_ring *r);

/*
 * A second look at a ring, from another thread than the one that empties it. Positions count bytes
 * from the ring's beginning; what lies before the tail may be overwritten at any time, so after
 * having looked at a record, see whether the tail has passed it.
 */
uint64_t perf_ring_head(const struct perf_ring *r); /* what the kernel has written */
uint64_t perf_ring_tail(const struct perf_ring *r); /* what was handed back */

/* The 8 bytes at a position that is a multiple of 8. */
uint64_t perf_ring_word(const struct perf_ring *r, uint64_t position);

#endif
