/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * How much memory a process has, as its kernel tells it: by mapping (/proc/PID/smaps), and in all.
 *
 * The kernel writes smaps a few mappings at a time, so the numbers of one mapping belong together and those of
 * two do not. The sum of all is RSS, and what counts: VmRSS of status is kept in counters that each thread adds to
 * now and then, and may be off by some pages.
 */
#ifndef SONDE_OS_SMAPS_H
#define SONDE_OS_SMAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "os/proc.h"

/* All in bytes. What the kernel does not tell is 0. */
struct smaps_sizes {
	uint64_t rss, pss;
	uint64_t shared, private;            /* of rss: mapped by others too, by nobody else */
	uint64_t anonymous;                  /* of rss: not a page of the file that is mapped */
	uint64_t dirty;                      /* of rss */
	uint64_t anon_huge, shmem_huge, file_huge; /* of rss: mapped as huge pages */
	uint64_t lazy_free;                  /* of rss: MADV_FREE, the kernel may take them */
	uint64_t locked;
	uint64_t swap;                       /* not in rss */
	uint64_t hugetlb;                    /* not in rss */
};

struct smaps_mapping {
	struct proc_mapping m; /* its path is valid during the call */
	struct smaps_sizes sizes;
	bool grows_down;       /* VmFlags gd: the first stack */
	bool huge_advised;     /* hg */
};

/* For each mapping in ascending order; stops and returns its value when it is not 0. */
typedef int (*smaps_each_fn)(void *ctx, const struct smaps_mapping *m);

/* -ESRCH, -EACCES: not ours to read; or -errno. */
int smaps_read(pid_t pid, smaps_each_fn each, void *ctx, struct err *err);

/* The text of such a file, which is changed. Lines that are none are passed over. */
int smaps_parse(char *text, smaps_each_fn each, void *ctx);

/* What the kernel counts for the process as a whole, in bytes (proc_pid_status(5)). */
struct smaps_process {
	uint64_t rss, anonymous, file, shared; /* VmRSS and its parts */
	uint64_t page_tables, swap, locked, hugetlb;
	uint64_t peak_rss;
	uint64_t threads;
};
int smaps_process_read(pid_t pid, struct smaps_process *ret, struct err *err);

#endif
