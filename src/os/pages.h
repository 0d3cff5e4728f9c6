/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which pages of a process are in memory, by /proc/PID/pagemap: whoever may read the process' memory may ask.
 *
 * Asking touches no page. Since Linux 6.7 the kernel is asked for runs of pages (PAGEMAP_SCAN), so mappings of
 * terabytes with little in them cost nothing; before, each page is asked for, and a range of more than
 * PAGES_MOST_BYTES is refused (-EFBIG).
 */
#ifndef SONDE_OS_PAGES_H
#define SONDE_OS_PAGES_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/vec.h"

#define PAGES_MOST_BYTES (1ull << 40)

enum page_state {
	PAGE_RESIDENT = 1, /* counts in RSS */
	PAGE_ZERO,         /* the kernel's page of zeros, as it was only read: counts nowhere */
	PAGE_SWAPPED,
};

/* Pages [start, end) in the same state. */
struct page_run {
	uint64_t start, end;
	enum page_state state;
};
VEC_TYPE(page_runs, struct page_run);

struct pages {
	int fd;
	bool scan;         /* there is PAGEMAP_SCAN */
	uint64_t page_bytes;
};

/* -EACCES and others: not ours to ask; the words say so. */
int pages_open(pid_t pid, struct pages *ret, struct err *err);
void pages_close(struct pages *p);

/* Appends what is not absent in [start, end), multiples of the page size, in ascending order. Without PAGEMAP_SCAN the
 * page of zeros counts as resident: it cannot be told from others. */
int pages_runs(const struct pages *p, uint64_t start, uint64_t end, struct page_runs *ret, struct err *err);

/* How many of the `size` bytes from `addr` on lie in pages that are there, without a gap: to read these, nobody has to
 * bring a page first. That somebody may be a thread of the process (userfaultfd), which may stand still. 0 when nobody
 * can be asked. */
size_t pages_there(pid_t tid, uint64_t addr, size_t size);

#endif
