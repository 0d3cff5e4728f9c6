/* SPDX-License-Identifier: BSD-2-Clause */
/* What is shown of allocations. */
#include "test.h"

#include <math.h>
#include <stdlib.h>

#include "alloc_fail.h"
#include "profile/heap_diff.h"
#include "small_heap.h"
#include "view/heap_priv.h"

static const struct term screen = {.unicode = true, .columns = 80, .rows = 24};

typedef int view_fn(const struct profile *p, const struct view_options *o, struct buf *out, struct err *err);

static struct buf draw(view_fn *view, const struct view_options *o, bool sampled, const struct profile_load_options *load)
{
	struct profile *p = heap_profile_of(sampled, END_TARGET_EXITED, load);
	struct buf out = {0};

	check(p && !view(p, o, &out, NULL));
	profile_free(p);
	return out;
}

TEST(summary_is_one_screen)
{
	struct view_options o = {.term = screen};
	struct buf out = draw(view_summary, &o, false, NULL);

	check_str(out.data,
		"server --port 80 · 60.0 s · every allocation\n"
		"Live    21 MiB in 5,361 blocks at the end · peak 52 MiB at 30.0 s\n"
		"Asked   57 MiB in 67,161 calls, 89.3% of them temporary\n"
		"Time    ▁▁▁▁▂▂▂▂▃▃▃▃▃▄▄▄▄▄▄██▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄▄  up to 52 MiB\n"
		"Threads server 100 57 MiB, io 101 586 KiB\n"
		"Freed   by other threads: io 101 → server 100 586 KiB in 600\n"
		"Lost    7 calls of the allocator before there was anything to write to\n"
		"  → remember (server.c:70) grows all the time: 960 KiB a minute (956 KiB to 964 KiB)\n"
		"\n"
		"  #       live     blocks      asked   temp  time        who holds most memory\n"
		"  1     20 MiB      5,120     20 MiB      -  ▃▅████████  fill (cache.c:20)\n"
		"       main › fill\n"
		"  2    960 KiB        240    960 KiB      -  ▁▂▃▄▅▅▆▇██  remember (server.c:70)\n"
		"       grows 960 KiB a minute · main › answer › remember\n"
		"  3  200 bytes          1    234 KiB      -  ██████████  grow (server.c:110)\n"
		"       main › grow\n"
		"    --site N tells all about one; --sort leaked, growth, peak, total, temporary, cross, wasted\n");
	buf_release(&out);
}

TEST(sampled_numbers_have_intervals)
{
	struct view_options o = {.term = screen, .heap_order = HEAP_BY_TOTAL, .top = 2};
	struct buf out = draw(view_summary, &o, true, NULL);

	check(strstr(out.data, "sampled, one in 64 KiB\n"));
	check(strstr(out.data, "Live    21 MiB (19 MiB to 23 MiB) in 5,361 blocks"));
	check(strstr(out.data, "960 KiB a minute (395 KiB to 1.5 MiB)"));
	check(strstr(out.data, "  1     32 MiB          -     32 MiB      -      ██      burst (server.c:100)\n"
			       "       32 MiB to 32 MiB · main › burst\n"));
	check(strstr(out.data, "    and 3 more: -n 5, or --text\n"));
	buf_release(&out);
}

TEST(a_range_says_what_it_is)
{
	struct profile_load_options load = {.filter = {.heap_from_ns = 10 * NS_PER_S, .heap_to_ns = 25 * NS_PER_S}};
	struct view_options o = {.term = screen, .heap_order = HEAP_BY_GROWTH, .top = 1};
	struct buf out = draw(view_summary, &o, false, &load);

	check(strstr(out.data, "From 10.0 s to 25.0 s: live memory went from 10 MiB to 20 MiB\n"));
	check(strstr(out.data, "  1     10 MiB      5,120     10 MiB      -  "));
	buf_release(&out);
}

TEST(text_has_everything)
{
	static const char *const has[] = {"allocator of /lib/libc.so.6, from its start\n", "Sizes of all blocks, from\n",
		"    64 bytes         60,000  ", "Live bytes by their age, from\n", "Bytes the allocator gave above",
		"not seen allocated  thread\n", "  io 101 → server 100 586 KiB in 600\n",
		"  1,199 times, 720 of them to another place, from 100 bytes on average: grow (server.c:110)\n"};
	struct view_options o = {.term = screen};
	struct buf out = draw(view_text, &o, false, NULL);

	for (size_t i = 0; i < sizeof(has) / sizeof(has[0]); i++)
		if (!strstr(out.data, has[i])) {
			printf("missing: %s\n", has[i]);
			check(false);
		}
	buf_release(&out);
}

TEST(one_site_in_full)
{
	struct view_options o = {.term = screen, .heap_site = 2};
	struct buf out = draw(view_summary, &o, false, NULL);

	check(strstr(out.data, "Site 2 by live: remember (server.c:70)\n"));
	check(strstr(out.data, "  leaked                     960 KiB in 240 blocks\n"));
	check(strstr(out.data, "  over time               grows all the time, by 960 KiB a minute (956 KiB to 964 KiB)\n"));
	check(strstr(out.data, "      operator new(unsigned long) in server\n      remember (server.c:70)\n"));
	buf_release(&out);
	o.heap_site = 99;
	out = draw(view_summary, &o, false, NULL);
	check(strstr(out.data, "There is no site 99: there are 5.\n"));
	buf_release(&out);
}

TEST(json_keeps_its_keys)
{
	struct view_options o = {.top = 2, .heap_order = HEAP_BY_LEAKED};
	struct buf out = draw(view_json, &o, false, NULL);
	const char *heap = out.data ? strstr(out.data, "\"heap\":") : NULL;

	check(out.data && strstr(out.data, "\"mode\":\"heap\""));
	check(heap && strstr(heap, "\"heap\":{\"from_ns\":0,\"to_ns\":60000000000,\"sampled\":false,"
		"\"live_bytes\":21954760,\"live_count\":5361,\"leaked_bytes\":21954760,\"leaked_count\":5361,"
		"\"total_bytes\":60188992,\"total_count\":67161,\"temporary_count\":60000,\"temporary_bytes\":3840000,"
		"\"cross_thread_frees\":600,\"cross_thread_bytes\":600000,\"realloc_count\":1199,\"realloc_moved\":720,"
		"\"realloc_old_bytes\":119900,\"peak_bytes\":55017672,\"peak_ns\":30000000000,\"ci95\":[21954760,21954760],"));
	check(heap && strstr(heap, "\"sites\":[\n  {\"name\":\"fill\",\"module\":\"server\",\"kind\":\"malloc\",\"file\":\"cache.c\",\"line\":20,"
				   "\"live_bytes\":20971520,\"live_count\":5120,\"leaked_bytes\":20971520,\"leaked_count\":5120,"));
	check(heap && strstr(heap, "\"growth\":{\"trend\":\"grows\",\"bytes_per_s\":16384.000,\"ci95\":[163"));
	check(heap && !strstr(heap, "\"name\":\"burst\""));
	buf_release(&out);
}

/* The first 25 seconds, and all of it. */
TEST(differences_are_by_name)
{
	struct profile_load_options load = {.filter = {.heap_to_ns = 25 * NS_PER_S}};
	struct profile *p[2] = {heap_profile_of(false, END_TARGET_EXITED, &load),
		heap_profile_of(false, END_TARGET_EXITED, NULL)};
	const struct profile *const both[2] = {p[0], p[1]};
	struct view_options o = {.term = screen};
	struct heap_diff d = {0};
	struct buf out = {0};

	check(!heap_diff_build(both, HEAP_BY_LIVE, &d, NULL));
	check_str(d.changes.data[0].name, "remember");
	check_u64(heap_difference(d.changes.data[0].sum, HEAP_BY_LIVE), 35 * 16384);
	check(d.changes.data[0].sure && d.changes.data[0].line == 70);
	heap_diff_release(&d);
	check(!view_heap_diff(both, &o, &out, NULL));
	check(strstr(out.data, "Live  20 MiB → 21 MiB"));
	check(strstr(out.data, "    +560 KiB     400 KiB     960 KiB      remember (server.c:70)\n"));
	buf_clear(&out);
	o.heap_order = HEAP_BY_PEAK;
	check(!view_heap_diff_json(both, &o, &out, NULL));
	check(strstr(out.data, "{\"name\":\"burst\",\"module\":\"server\",\"file\":\"server.c\",\"line\":100,"
			       "\"change\":33554432,\"ci95\":[33554432,33554432],\"sure\":true,"));
	buf_release(&out);
	profile_free(p[0]);
	profile_free(p[1]);
}

TEST(other_builds_have_other_lines)
{
	struct profile *p[2] = {heap_profile_of(false, END_TARGET_EXITED, NULL),
		heap_profile_of(false, END_TARGET_EXITED, NULL)};
	const struct profile *const both[2] = {p[0], p[1]};
	struct heap_diff d = {0};

	vec_each(&p[1]->modules, m)
		m->build_id[0] ^= 1;
	p[1]->modules.data[0].name = "server-1.3";
	vec_each(&p[1]->levels, l)
		l->line += l->line ? 5 : 0;
	check(!heap_diff_build(both, HEAP_BY_LIVE, &d, NULL));
	check_u64(d.changes.len, 5);
	vec_each(&d.changes, c)
		check(heap_difference(c->sum, HEAP_BY_LIVE) == 0 && c->line == 0);
	heap_diff_release(&d);
	profile_free(p[0]);
	profile_free(p[1]);
}

static void run_out(view_fn *view, size_t site)
{
	struct profile *p = heap_profile_of(true, END_DURATION, NULL);
	struct view_options o = {.term = screen, .heap_site = site};
	int rc = -ENOMEM;

	for (uint64_t n = 0; p && rc == -ENOMEM && n < 100000; n++) {
		struct buf out = {0};

		alloc_fail_begin(n);
		rc = view(p, &o, &out, NULL);
		if (!alloc_fail_end())
			check(!rc);
		buf_release(&out);
	}
	check(!rc);
	profile_free(p);
}

TEST(memory_may_run_out_anywhere)
{
	run_out(view_summary, 0);
	run_out(view_summary, 1);
	run_out(view_text, 0);
	run_out(view_json, 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(summary_is_one_screen), T(sampled_numbers_have_intervals), T(a_range_says_what_it_is),
		T(text_has_everything), T(one_site_in_full), T(json_keeps_its_keys), T(differences_are_by_name),
		T(other_builds_have_other_lines), T(memory_may_run_out_anywhere));
}
