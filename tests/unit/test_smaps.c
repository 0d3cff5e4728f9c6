/* SPDX-License-Identifier: BSD-2-Clause */
/* smaps as text, and our own pages. */
#include "test.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/vec.h"
#include "os/pages.h"
#include "os/smaps.h"

VEC_TYPE(mappings, struct smaps_mapping);

static int take(void *ctx, const struct smaps_mapping *m)
{
	return vec_push((struct mappings *)ctx, *m);
}

static int parse(const char *text, struct mappings *ret)
{
	static char copy[4096];

	snprintf(copy, sizeof(copy), "%s", text);
	ret->len = 0;
	return smaps_parse(copy, take, ret);
}

TEST(smaps_text)
{
	struct mappings m = {0};

	check(!parse("560000000000-560000002000 r-xp 00001000 fe:00 77 /usr/bin/some thing\n"
		     "Size:                  8 kB\nRss:                   8 kB\nPss:                   3 kB\n"
		     "Shared_Clean:          4 kB\nShared_Dirty:          0 kB\nPrivate_Clean:         0 kB\n"
		     "Private_Dirty:         4 kB\nAnonymous:             4 kB\nVmFlags: rd ex mr mw me \n"
		     "7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]\nRss: 12 kB\nSwap: 16 kB\nSwapPss: 5 kB\n"
		     "AnonHugePages: 4 kB\nLazyFree: 4 kB\nTHPeligible:           0\nVmFlags: rd wr gd ac hg", &m));
	check_u64(m.len, 2);
	if (m.len != 2)
		return;
	check_u64(m.data[0].m.start, 0x560000000000);
	check_u64(m.data[0].sizes.rss, 8192);
	check_u64(m.data[0].sizes.pss, 3072);
	check_u64(m.data[0].sizes.shared, 4096);
	check_u64(m.data[0].sizes.private, 4096);
	check_u64(m.data[0].sizes.dirty, 4096);
	check_u64(m.data[0].sizes.anonymous, 4096);
	check(!m.data[0].grows_down && m.data[0].m.exec);
	check_u64(m.data[1].sizes.rss, 12288);
	check_u64(m.data[1].sizes.swap, 16384);
	check_u64(m.data[1].sizes.anon_huge, 4096);
	check_u64(m.data[1].sizes.lazy_free, 4096);
	check(m.data[1].grows_down && m.data[1].huge_advised);
	vec_release(&m);
}

TEST(smaps_text_that_is_none)
{
	struct mappings m = {0};

	check(!parse("", &m) && !m.len);
	check(!parse("\n\n\n", &m) && !m.len);
	check(!parse("Rss: 4 kB\nhello\n", &m) && !m.len);
	/* Numbers before the first mapping are nobody's. */
	check(!parse("Rss: 4 kB\n1000-2000 rw-p 0 0:0 0\nRss: x kB\nRss\nRss:\n:\nrss: 4 kB\nRss: 99999999999999999999 kB", &m));
	check_u64(m.len, 1);
	/* Its end is not behind its beginning. */
	check(!parse("2000-1000 rw-p 0 0:0 0\nRss: 4 kB\n", &m) && !m.len);
	vec_release(&m);
}

static uint64_t bytes_in(const struct page_runs *runs, enum page_state state)
{
	uint64_t sum = 0;

	vec_each(runs, r)
		sum += r->state == state ? r->end - r->start : 0;
	return sum;
}

/* Of 64 pages 8 are written, 4 only read. */
TEST(our_own_pages)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start, resident;
	char *at = mmap(NULL, 64 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct page_runs runs = {0};
	struct pages p;
	struct err err = {0};

	check(at != MAP_FAILED);
	madvise(at, 64 * page, MADV_NOHUGEPAGE);
	for (uint64_t i = 4; i < 12; i++)
		at[i * page] = 1;
	for (uint64_t i = 20; i < 24; i++)
		(void)*(volatile char *)(at + i * page);
	start = (uint64_t)(uintptr_t)at;
	check(!pages_open(getpid(), &p, &err));
	check(!pages_runs(&p, start, start + 64 * page, &runs, &err));
	resident = bytes_in(&runs, PAGE_RESIDENT);
	check_u64(resident + bytes_in(&runs, PAGE_ZERO), 12 * page);
	check_u64(resident, p.scan ? 8 * page : 12 * page);
	check(runs.len && runs.data[0].start == start + 4 * page && runs.data[0].end == start + 12 * page);
	/* The same again does not make earlier runs longer. */
	check(!pages_runs(&p, start + 12 * page, start + 64 * page, &runs, &err));
	check_u64(runs.data[0].end, start + 12 * page);
	p.scan = false;
	runs.len = 0;
	check(!pages_runs(&p, start, start + 64 * page, &runs, &err));
	check_u64(bytes_in(&runs, PAGE_RESIDENT), 12 * page);
	check(pages_runs(&p, 0, PAGES_MOST_BYTES + page, &runs, &err) < 0 && err.text[0]);
	pages_close(&p);
	vec_release(&runs);
	munmap(at, 64 * page);
}

/* Of 96 pages all are there but the 80th. */
TEST(pages_up_to_a_gap)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), start;
	char *at = mmap(NULL, 96 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	check(at != MAP_FAILED);
	start = (uint64_t)(uintptr_t)at;
	memset(at, 1, 96 * page);
	madvise(at + 80 * page, page, MADV_DONTNEED);
	check_u64(pages_there(getpid(), start, 5), 5);
	check_u64(pages_there(getpid(), start + 8, 3 * page), 3 * page);
	check_u64(pages_there(getpid(), start + 8, 90 * page), 80 * page - 8);
	check_u64(pages_there(getpid(), start + 80 * page - 1, 2), 1);
	check_u64(pages_there(getpid(), start + 80 * page, 2 * page), 0);
	check_u64(pages_there(getpid(), start + 95 * page + 8, page - 8), page - 8);
	check_u64(pages_there(getpid(), UINT64_MAX - 100, 50), 0);
	check_u64(pages_there(0x3ffffff, start, 5), 0);
	munmap(at, 96 * page);
}

TEST(a_process_that_is_not_there)
{
	struct mappings m = {0};
	struct smaps_process process;
	struct pages p;
	struct err err = {0};

	check(smaps_read(0x3ffffff, take, &m, &err) == -ESRCH && err.text[0]);
	check(smaps_process_read(0x3ffffff, &process, &err) == -ESRCH);
	check(pages_open(0x3ffffff, &p, &err) == -ESRCH);
	check(!smaps_read(getpid(), take, &m, &err) && m.len > 5);
	check(!smaps_process_read(getpid(), &process, &err) && process.threads == 1 && process.rss && process.page_tables);
	vec_release(&m);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(smaps_text), T(smaps_text_that_is_none), T(our_own_pages),
		T(pages_up_to_a_gap), T(a_process_that_is_not_there));
}
