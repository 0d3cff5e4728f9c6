/* SPDX-License-Identifier: BSD-2-Clause */
#include "arenas_image.h"

#include <errno.h>

#include "test.h"

#define NEWEST_WITH_FAST_BINS (IMAGE_VERSIONS - 2)

static uint64_t sum_of_states(const struct arenas *a)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < ARENAS_STATES; i++)
		sum += a->states[i].bytes;
	return sum;
}

static void layout_of(const struct image_version *v)
{
	bool cache = v->cache != 0, fast = v->fast_bins != 0;
	uint64_t struct_bytes = image_cache_bytes(v);
	struct image m;
	struct arenas a;

	check(image_make(&m, v));
	check(!image_walk(&m, &a, NULL));
	check(a.list.len == 2 && a.list.data[0].main && !a.list.data[1].main);
	check(a.list.data[0].address == m.main && a.list.data[1].address == m.other);
	check_u64(a.list.data[1].heaps, 2);
	check(a.list.data[0].system_bytes == BRK_BYTES && a.list.data[1].system_bytes == 2 * HEAP_BYTES);
	check_u64(a.list.data[0].threads, v->threads);
	/* Every byte of the heaps is something. */
	check_u64(sum_of_states(&a), BRK_BYTES + 2 * HEAP_BYTES);
	check(!a.states[ARENAS_UNSEEN].bytes && a.walks == 3 && !a.list.data[0].moved);
	check(a.states[ARENAS_FREE].bytes == 2 * 0x2080 && a.states[ARENAS_FREE].count == 4);
	check(a.states[ARENAS_FAST].bytes == (fast ? 2 * 0x80 : 0) && a.states[ARENAS_FAST].count == (fast ? 4 : 0));
	check(a.states[ARENAS_CACHED].bytes == (cache ? 2 * 3 * 0x30 : 0));
	check(a.thread_caches == (cache ? 2 : 0) && a.safe_linking == v->masked);
	check_u64(a.unsorted_bytes, 2 * 0x2000);
	check_u64(a.list.data[0].states[ARENAS_USED].bytes,
		0x40 + 0x20 + 0x1010 + 0x20 + (cache ? 0 : 3 * 0x30) + (fast ? 0 : 0x80));
	check_u64(a.list.data[0].states[ARENAS_OWN].bytes, struct_bytes);
	check(a.parameters && a.trim_threshold == 0x20000 && a.mmap_threshold == 0x21000 && a.first == BRK_AT);
	check(a.mapped_said.bytes == 0x5000 && a.mapped_said.count == 2);
	check(a.mapped.bytes == 0x5000 && a.mapped.count == 2 && m.mapped == 0x5000);
	check_u64(a.largest_free, a.list.data[0].states[ARENAS_TOP].bytes);
	/* What was said bit by bit is the sum. */
	for (size_t i = 0; i < ARENAS_STATES; i++)
		check(m.said[i].bytes == a.states[i].bytes && m.said[i].count == a.states[i].count);
	arenas_release(&a);
	image_release(&m);
}

TEST(layouts_of_all_versions)
{
	for (size_t i = 0; i < IMAGE_VERSIONS; i++)
		layout_of(&image_versions[i]);
}

TEST(sizes_are_counted_by_class)
{
	struct image m;
	struct arenas a;

	check(image_make(&m, &image_versions[NEWEST_WITH_FAST_BINS]));
	check(!image_walk(&m, &a, NULL));
	check(a.free_classes[7].count == 2 && a.free_classes[7].bytes == 2 * 0x80);
	check(a.free_classes[13].count == 2 && a.free_classes[13].bytes == 2 * 0x2000);
	/* 0x1010 in each, and what fills the first heap of the second arena. */
	check(a.used_classes[12].count >= 2);
	/* Neither those in fastbins (0x40) nor those in caches (0x30) are in use. */
	check_u64(a.used_classes[6].count, 2);
	arenas_release(&a);
	image_release(&m);
}

/* A size that is none in the middle of the main heap: the walk goes on behind it, and covers every byte. */
TEST(a_damaged_block_is_passed_over)
{
	struct image m;
	struct arenas a;
	uint64_t at = BRK_AT + 0x290, bytes;

	check(image_make(&m, &image_versions[NEWEST_WITH_FAST_BINS]));
	image_put(&m, at + 8, 0xdeadbeef00000000ull);
	check(!image_walk(&m, &a, NULL));
	bytes = a.list.data[0].states[ARENAS_UNSEEN].bytes;
	check(bytes >= 0x40 && bytes <= 0x4000);
	check(a.list.data[0].moved && !a.list.data[1].moved);
	check_u64(sum_of_states(&a), BRK_BYTES + 2 * HEAP_BYTES);
	/* Five times, and twice for the other arena's heaps. */
	check(a.walks == 7 && m.begun == 7 && m.ended == 3);
	arenas_release(&a);
	image_release(&m);
}

/* A cache is believed as a whole or not at all. */
TEST(a_cache_with_a_wrong_count_is_none)
{
	struct image m;
	struct arenas a;

	check(image_make(&m, &image_versions[NEWEST_WITH_FAST_BINS]));
	image_put(&m, BRK_AT + 16, (uint64_t)4 << 16);
	check(!image_walk(&m, &a, NULL));
	check(a.thread_caches == 1 && a.states[ARENAS_CACHED].bytes == 3 * 0x30);
	arenas_release(&a);
	image_release(&m);
}

/* Links that lead in circles, or out of memory, end. */
TEST(lists_in_circles)
{
	struct image m;
	struct arenas a;

	check(image_make(&m, &image_versions[1]));
	/* The second fast block leads to the first one. */
	image_put(&m, m.other + m.v->header + 16, image_get(&m, m.main + m.v->header + 16));
	image_put(&m, m.main + m.v->header + 16, BRK_AT + 0x170);
	image_put(&m, BRK_AT + 0x170 + 8, 0x41);
	image_put(&m, BRK_AT + 0x170 + 16, BRK_AT + 0x170);
	check(!image_walk(&m, &a, NULL));
	arenas_release(&a);
	image_put(&m, m.other + image_top_at(m.v) + 16 + 2032 + 16, m.other);
	check_u64(image_walk(&m, &a, NULL), -ENOENT);
	image_release(&m);
}

TEST(no_arena_no_heap)
{
	struct image m;
	struct arenas a;
	struct err err = {0};

	check(image_make(&m, &image_versions[0]));
	/* The last bin is never used. */
	image_put(&m, m.main + image_top_at(m.v) + 16 + 126 * 16, 0);
	check(image_walk(&m, &a, &err) == -ENOENT && err.text[0]);
	image_release(&m);
}

/* Any word of an image may be anything. */
TEST(each_word_damaged)
{
	static const uint64_t values[] = {0, 1, 0x21, ~0ull, ~0ull << 4, HEAP_AT, BRK_AT + 0x290, 0x8000000000000001ull};
	struct image m;
	struct arenas a;

	check(image_make(&m, &image_versions[NEWEST_WITH_FAST_BINS]));
	for (uint64_t at = m.main; at < m.main + 2208; at += 8)
		for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++) {
			uint64_t was = image_get(&m, at);

			image_put(&m, at, values[i]);
			if (!image_walk(&m, &a, NULL))
				arenas_release(&a);
			image_put(&m, at, was);
		}
	image_release(&m);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(layouts_of_all_versions), T(sizes_are_counted_by_class), T(a_damaged_block_is_passed_over),
		T(a_cache_with_a_wrong_count_is_none), T(lists_in_circles), T(no_arena_no_heap), T(each_word_damaged));
}
