/* SPDX-License-Identifier: BSD-2-Clause */
/* The account of RSS of ourselves, and how it is shown. */
#include "test.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "heap/rss.h"
#include "view/rss.h"

#define MB ((uint64_t)1 << 20)

static uint64_t sum(const struct rss *r)
{
	uint64_t all = 0;

	vec_each(&r->rows, row)
		all += row->bytes;
	return all;
}

static const struct rss_row *find(const struct rss *r, enum rss_kind kind, const char *name)
{
	vec_each(&r->rows, row)
		if (row->kind == kind && (!name || !strcmp(row->name, name)))
			return row;
	return NULL;
}

TEST(our_own_account)
{
	char *at = mmap(NULL, 16 * MB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	char *block = malloc(3 * MB);
	struct rss r;
	struct err err = {0};
	const struct rss_row *row;

	check(at != MAP_FAILED && block);
	for (uint64_t i = 0; i < 5 * MB; i += 4096)
		at[i] = 1;
	memset(block, 1, 3 * MB);
	check(!rss_account(getpid(), &r, &err));
	check_u64(sum(&r), r.bytes);
	row = find(&r, RSS_SHARED, "/dev/zero");
	/* We look at ourselves, and use pages of our stack meanwhile. */
	check(row && row->bytes <= 5 * MB && row->bytes + r.shrunk >= 5 * MB && row->size == 16 * MB);
	check(r.stacks.len == 1 && r.process.threads == 1 && !r.stackless);
	check(find(&r, RSS_FILE_TEXT, NULL) && find(&r, RSS_KERNEL, "[vdso]"));
	/* Nothing of this is there with a sanitizer's allocator. */
	if (r.has_arenas && r.arenas.mapped.count) {
		row = find(&r, RSS_HEAP_MAPPED, "");
		check(row && row->bytes + r.shrunk >= 3 * MB);
	}
	rss_release(&r);
	free(block);
	munmap(at, 16 * MB);
}

TEST(a_process_that_is_not_there)
{
	struct rss r;
	struct err err = {0};

	check(rss_account(0x3ffffff, &r, &err) == -ESRCH && err.text[0]);
}

/* A made-up account: 10 MiB of heap, 4 of which are free. */
static void make(struct rss *r)
{
	static struct rss_row rows[] = {
		{RSS_HEAP_USED, "", 6 * MB, 0, 7 * MB, 1234},
		{RSS_HEAP_CACHED, "", MB, 0, MB, 5},
		{RSS_HEAP_FREE, "", 3 * MB, 0, 3 * MB, 77},
		{RSS_STACK_USED, "", 8192, 0, 8 * MB, 1},
		{RSS_FILE_TEXT, "/usr/lib/one/libx.so", MB, 0, 2 * MB, 1},
		{RSS_FILE_TEXT, "/usr/lib/two/libx.so", MB / 2, 0, 2 * MB, 1},
		{RSS_FILE_DATA, "/usr/lib/one/libx.so", MB / 4, 0, 2 * MB, 1},
		{RSS_FILE_WRITTEN, "/usr/bin/prog\033[2J", 4096, 0, 0, 1},
		{RSS_ANONYMOUS, "a cache", 4096, 8192, 0, 3},
	};
	static struct rss_stack stacks[] = {{.tid = 7, .name = "prog", .start = 0, .end = 8 * MB, .sp = 1, .used = 8192}};
	static struct arena list[] = {{.address = 16, .main = true}};

	*r = (struct rss){.pid = 7, .name = "prog", .mappings = 9, .has_arenas = true, .shrunk = 4096, .stackless = 1};
	r->rows.data = rows;
	r->rows.len = sizeof(rows) / sizeof(rows[0]);
	r->stacks.data = stacks;
	r->stacks.len = 1;
	r->arenas.list.data = list;
	r->arenas.list.len = 1;
	r->arenas.trim_bytes = MB;
	r->arenas.largest_free = 65536;
	r->arenas.states[ARENAS_UNSEEN].bytes = 4096;
	r->bytes = sum(r);
	r->pss = r->bytes;
	r->process.threads = 2;
}

static bool has(const struct buf *text, const char *words)
{
	bool found = text->data && strstr(text->data, words);

	if (!found)
		printf("no '%s' in\n%s\n", words, text->data ? text->data : "");
	return found;
}

TEST(text)
{
	struct rss_options options = {.top = 2};
	struct buf out = {0};
	struct rss r;

	make(&r);
	check(!view_rss(&r, &options, &out, NULL));
	check(has(&out, "     6.0 MiB   51.0%    in use  1,234 blocks of 7.0 MiB\n"));
	check(has(&out, "free, between blocks in use  77 blocks\n"));
	/* Two files of that name: whole paths; the third one is beyond the top. */
	check(has(&out, "/usr/lib/one/libx.so  code 1.0 MiB, data 256 KiB\n"));
	check(has(&out, "/usr/lib/two/libx.so  code 512 KiB\n") && has(&out, "1 more file\n"));
	check(has(&out, "a cache  3 mappings, 8.0 KiB in swap\n"));
	check(has(&out, "4.0 MiB of the heap is free and kept by the allocator, in 1\narena."));
	check(has(&out, "would give back 1.0 MiB of it now") && has(&out, "that is fragmentation"));
	check(has(&out, "4.0 KiB of the heap were not walked") && has(&out, "The stack of 1 thread was not found"));
	check(has(&out, "4.0 KiB came while it was looked at"));
	buf_clear(&out);
	options.top = 20;
	check(!view_rss(&r, &options, &out, NULL));
	/* What would move the cursor is not printed. */
	check(has(&out, "prog?[2J") && !strchr(out.data, '\033'));
	buf_release(&out);
}

TEST(json)
{
	struct buf out = {0};
	struct rss r;

	make(&r);
	check(!view_rss_json(&r, &out, NULL));
	check(has(&out, "\"pid\":7,\"name\":\"prog\""));
	check(has(&out, "{\"kind\":\"heap_used\",\"name\":\"\",\"bytes\":6291456,\"swap_bytes\":0,\"size_bytes\":7340032,\"count\":1234}"));
	check(has(&out, "\"pages_refused\":null") && has(&out, "\"unseen_bytes\":4096"));
	check(out.len && out.data[out.len - 1] == '\n' && strchr(out.data, '\n') == out.data + out.len - 1);
	buf_clear(&out);
	r.has_arenas = false;
	snprintf(r.unseen, sizeof(r.unseen), "no \"right\"");
	check(!view_rss_json(&r, &out, NULL));
	check(has(&out, "\"glibc\":null") && has(&out, "\"pages_refused\":\"no \\\"right\\\"\""));
	buf_release(&out);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(our_own_account), T(a_process_that_is_not_there), T(text), T(json));
}
