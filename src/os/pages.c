/* SPDX-License-Identifier: BSD-2-Clause */
#include "os/pages.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/rights.h"

/* linux/fs.h since 6.7: struct pm_scan_arg, struct page_region, PAGEMAP_SCAN. */
struct scan_region {
	uint64_t start, end, categories;
};
struct scan {
	uint64_t size, flags, start, end, walk_end;
	uint64_t vec, vec_len, max_pages;
	uint64_t inverted, mask, any_of, returned;
};
_Static_assert(sizeof(struct scan) == 96, "the kernel's");
#define SCAN _IOWR('f', 16, struct scan)
#define SCAN_PRESENT (1u << 3)
#define SCAN_SWAPPED (1u << 4)
#define SCAN_ZERO (1u << 5)

#define REGIONS 512u
#define WORDS 4096u

/* Documentation/admin-guide/mm/pagemap.rst */
#define WORD_PRESENT (1ull << 63)
#define WORD_SWAPPED (1ull << 62)

static int scan_once(const struct pages *p, struct scan *scan, struct scan_region *regions)
{
	scan->size = sizeof(*scan);
	scan->vec = (uint64_t)(uintptr_t)regions;
	scan->vec_len = REGIONS;
	scan->any_of = SCAN_PRESENT | SCAN_SWAPPED;
	scan->returned = SCAN_PRESENT | SCAN_SWAPPED | SCAN_ZERO;
	return ioctl(p->fd, SCAN, scan);
}

static int open_pagemap(pid_t pid)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/pagemap", (int)pid);
	return open(path, O_RDONLY | O_CLOEXEC);
}

int pages_open(pid_t pid, struct pages *ret, struct err *err)
{
	struct scan_region regions[REGIONS];
	struct scan scan = {.start = 0, .end = 0};
	int fd = open_pagemap(pid);

	if (fd < 0)
		return errno == ENOENT ? err_set(err, ESRCH, "process %d is gone", (int)pid)
				       : rights_read_refused(errno, pid, "pages", err);
	*ret = (struct pages){.fd = fd, .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
	scan.end = ret->page_bytes;
	ret->scan = scan_once(ret, &scan, regions) >= 0;
	return 0;
}

void pages_close(struct pages *p)
{
	if (p->fd >= 0)
		close(p->fd);
	p->fd = -1;
}

/* Runs of earlier calls, which end at `before`, are not made longer. */
static int add(struct page_runs *ret, size_t before, uint64_t start, uint64_t end, enum page_state state, struct err *err)
{
	struct page_run *last = ret->len > before ? &ret->data[ret->len - 1] : NULL;

	if (last && last->end == start && last->state == state) {
		last->end = end;
		return 0;
	}
	return vec_push(ret, (struct page_run){start, end, state}) ? err_nomem(err) : 0;
}

static int runs_by_scan(const struct pages *p, uint64_t start, uint64_t end, struct page_runs *ret, struct err *err)
{
	struct scan_region regions[REGIONS];
	size_t before = ret->len;

	while (start < end) {
		struct scan scan = {.start = start, .end = end};
		int got = scan_once(p, &scan, regions), rc = 0;

		if (got < 0)
			return errno == ESRCH ? err_set(err, ESRCH, "the process is gone")
					      : err_errno(err, errno, "asking for pages");
		for (int i = 0; !rc && i < got; i++)
			rc = add(ret, before, regions[i].start, regions[i].end,
				regions[i].categories & SCAN_SWAPPED ? PAGE_SWAPPED
				: regions[i].categories & SCAN_ZERO  ? PAGE_ZERO
								     : PAGE_RESIDENT, err);
		if (rc)
			return rc;
		if (scan.walk_end <= start)
			break;
		start = scan.walk_end;
	}
	return 0;
}

static int runs_by_words(const struct pages *p, uint64_t start, uint64_t end, struct page_runs *ret, struct err *err)
{
	uint64_t words[WORDS];
	size_t before = ret->len;

	while (start < end) {
		uint64_t left = (end - start) / p->page_bytes, want = left < WORDS ? left : WORDS;
		ssize_t got = pread(p->fd, words, want * sizeof(words[0]),
			(off_t)(start / p->page_bytes * sizeof(words[0])));

		if (got <= 0)
			return got ? err_errno(err, errno, "asking for pages") : 0;
		for (size_t i = 0; i < (size_t)got / sizeof(words[0]); i++, start += p->page_bytes) {
			int rc = !(words[i] & (WORD_PRESENT | WORD_SWAPPED)) ? 0
				: add(ret, before, start, start + p->page_bytes,
					words[i] & WORD_PRESENT ? PAGE_RESIDENT : PAGE_SWAPPED, err);

			if (rc)
				return rc;
		}
	}
	return 0;
}

int pages_runs(const struct pages *p, uint64_t start, uint64_t end, struct page_runs *ret, struct err *err)
{
	if (p->scan)
		return runs_by_scan(p, start, end, ret, err);
	if (end - start > PAGES_MOST_BYTES)
		return err_set(err, EFBIG, "too many pages to ask for each of them");
	return runs_by_words(p, start, end, ret, err);
}

size_t pages_there(pid_t tid, uint64_t addr, size_t size)
{
	uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), start = addr & -page_bytes, at = start, words[64];
	size_t wanted = (size + (size_t)(addr - start) + page_bytes - 1) / page_bytes, count = 0;
	int fd = open_pagemap(tid);

	if (fd < 0)
		return 0;
	while (wanted && count == (at - start) / page_bytes) {
		size_t ask = wanted < 64 ? wanted : 64;
		ssize_t got = pread(fd, words, ask * 8, (off_t)(at / page_bytes * 8));

		for (ssize_t i = 0; i < got / 8 && words[i] & (WORD_PRESENT | WORD_SWAPPED); i++)
			count++;
		at += ask * page_bytes;
		wanted -= ask;
	}
	close(fd);

	uint64_t end = start + count * page_bytes;

	return end <= addr ? 0 : end - addr < size ? (size_t)(end - addr) : size;
}
