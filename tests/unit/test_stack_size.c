/* SPDX-License-Identifier: BSD-2-Clause */
#include "test.h"

#include "sample/perf/perf_priv.h"

static const struct stack_seen cut = {.cut = true, .needed = 8000};
static const struct stack_seen shallow = {.needed = 500};

/* Of the next `count` stacks so many in a hundred are cut; how often the level changed. */
static unsigned feed(struct stack_size *s, unsigned count, unsigned percent, uint32_t needed)
{
	struct stack_seen whole = {.needed = needed};
	unsigned changes = 0, debt = 0;

	for (unsigned i = 0; i < count; i++) {
		debt += percent;
		changes += stack_size_note(s, debt >= 100 ? cut : whole, STACK_ROOM);
		debt %= 100;
	}
	return changes;
}

TEST(sizes_are_what_the_kernel_takes)
{
	check_u64(stack_size_bytes(STACK_SIZE_FIRST), 8192);
	check_u64(stack_size_bytes(STACK_SIZE_MOST), PERF_MAX_STACK_BYTES);
	for (unsigned level = 0; level < STACK_SIZE_COUNT; level++) {
		check(stack_size_bytes(level) % 8 == 0);
		check(!level || stack_size_bytes(level) > stack_size_bytes(level - 1));
		check_u64(stack_size_level(stack_size_bytes(level)), level);
	}
	check_u64(stack_size_level(1), STACK_SIZE_FIRST);
	check_u64(stack_size_level(8200), STACK_SIZE_16K);
	check_u64(stack_size_level(1 << 20), STACK_SIZE_MOST);
}

TEST(a_thread_starts_small_and_stays_so)
{
	struct stack_size s = {0};

	check_u64(feed(&s, 100000, 0, 3000), 0);
	check_u64(feed(&s, 100000, 2, 3000), 0); /* some are always cut */
	check_u64(s.level, STACK_SIZE_FIRST);
}

TEST(a_thread_that_is_cut_grows)
{
	struct stack_size s = {0};

	check_u64(feed(&s, 7, 100, 0), 0);
	check(stack_size_note(&s, cut, STACK_ROOM));
	check_u64(s.level, STACK_SIZE_16K);
	/* It counts anew from there. */
	check_u64(feed(&s, 7, 100, 0), 0);
	check(stack_size_note(&s, cut, STACK_ROOM));
	check_u64(feed(&s, 1000, 100, 0), 1);
	check_u64(s.level, STACK_SIZE_MOST);

	struct stack_size some = {0};

	check(feed(&some, 200, 10, 3000) > 0);
}

/* What was long ago does not keep a thread from growing. */
TEST(a_thread_that_becomes_deep_grows)
{
	struct stack_size s = {0};

	feed(&s, 100000, 0, 3000);
	check_u64(feed(&s, 24, 100, 0) > 0, 1);
}

TEST(a_thread_gives_back_once)
{
	struct stack_size s = {0};

	feed(&s, 8, 100, 0);
	check_u64(s.level, STACK_SIZE_16K);
	/* 6 KB would fit into 8, and not with room to spare. */
	check_u64(feed(&s, 5000, 0, 6000), 0);
	check_u64(feed(&s, 5000, 0, 2000), 1);
	check_u64(s.level, STACK_SIZE_FIRST);
	feed(&s, 13, 100, 0); /* of some 400 that it remembers */
	check_u64(s.level, STACK_SIZE_16K);
	check_u64(feed(&s, 5000, 0, 2000), 0); /* not to and fro */
}

TEST(no_room_no_growth)
{
	struct stack_size s = {0};

	check(stack_room_at(STACK_RATE_BYTES_S) == STACK_ROOM);
	check(stack_room_at(STACK_RATE_BYTES_S + 1) == STACK_ROOM_NONE);
	check(stack_room_at(2 * (uint64_t)STACK_RATE_BYTES_S) == STACK_ROOM_OVER);
	for (int i = 0; i < 100; i++)
		check(!stack_size_note(&s, cut, STACK_ROOM_NONE));
	check(stack_size_note(&s, cut, STACK_ROOM));
	check(stack_size_note(&s, cut, STACK_ROOM_OVER));
	check(!stack_size_note(&s, shallow, STACK_ROOM_OVER));
	check_u64(s.level, STACK_SIZE_FIRST);
}

/* ---- whose events count ---- */

TEST(threads_are_found_again)
{
	struct table t = {0};
	size_t seen = 0;

	check(!thread_table_find(&t, 1) && !thread_table_next(&t, NULL));
	for (pid_t tid = 1; tid <= 1000; tid++)
		check(thread_table_add(&t, tid));
	for (struct perf_thread *th = NULL; (th = thread_table_next(&t, th));)
		seen++;
	check_u64(seen, 1000);
	for (pid_t tid = 1; tid <= 1000; tid += 2)
		thread_table_remove(&t, thread_table_find(&t, tid));
	check(!thread_table_find(&t, 501) && thread_table_find(&t, 502)->tid == 502);
	check_u64(t.count, 500);
	thread_table_release(&t);
}

TEST(a_source_holds_from_a_time_on)
{
	struct table t = {0};
	struct perf_thread *root = thread_table_add(&t, 10), *child = thread_table_add(&t, 11);

	thread_table_set_source(&t, root, 10, 0);
	check_u64(root->inheritors, 0);
	thread_table_set_source(&t, child, 10, 0);
	check_u64(root->inheritors, 1);
	check(thread_source_at(child, 0) == 10 && thread_source_at(child, 99) == 10);
	thread_table_set_source(&t, child, 11, 50);
	check_u64(root->inheritors, 0);
	check_u64(child->inheritors, 0);
	check(thread_source_at(child, 49) == 10 && thread_source_at(child, 50) == 11);
	thread_table_release(&t);
}

/* A sampler without a kernel: records by hand. Opening an event fails, as for a thread that is gone. */
struct world {
	struct perf_sampler s;
	struct watched_event of_root, of_child;
};

static void world_init(struct world *w)
{
	*w = (struct world){.of_root = {.tid = 10}, .of_child = {.tid = 11}};
	thread_table_set_source(&w->s.threads, thread_table_add(&w->s.threads, 10), 10, 0);
}

TEST(inherited_samples_count_once)
{
	static struct world w;
	struct perf_sampler *s = &w.s;

	world_init(&w);
	perf_thread_forked(s, 10, 11, 100);
	perf_thread_forked(s, 10, 11, 101); /* by another event of the same thread */
	check_u64(thread_table_find(&s->threads, 10)->inheritors, 1);
	check(perf_sampled_thread(s, &w.of_root, 11, 200));
	check(!perf_is_second(s, &w.of_root, 11, 200));
	/* It gets its own at 300. */
	thread_table_set_source(&s->threads, thread_table_find(&s->threads, 11), 11, 300);
	check(perf_sampled_thread(s, &w.of_root, 11, 299));
	check(!perf_sampled_thread(s, &w.of_child, 11, 299));
	check(!perf_sampled_thread(s, &w.of_root, 11, 300) && perf_is_second(s, &w.of_root, 11, 300));
	check(perf_sampled_thread(s, &w.of_child, 11, 300));
	/* What it starts: before, the root's; after, its. */
	perf_thread_forked(s, 11, 12, 250);
	perf_thread_forked(s, 11, 13, 2 * 1000000000ull);
	check(thread_table_find(&s->threads, 12)->source == 10);
	check(thread_table_find(&s->threads, 13)->source == 11);
	perf_thread_exited(s, 12);
	check(!thread_table_find(&s->threads, 12));
	thread_table_release(&s->threads);
}

/* Its events stay as long as others have copies of them. */
TEST(a_thread_that_ends_before_its_children)
{
	static struct world w;
	struct perf_sampler *s = &w.s;

	world_init(&w);
	perf_thread_forked(s, 10, 11, 100);
	perf_thread_forked(s, 11, 12, 200);
	perf_thread_exited(s, 10);
	perf_thread_exited(s, 10);
	check(thread_table_find(&s->threads, 10)->gone);
	check(perf_sampled_thread(s, &w.of_root, 12, 300));
	perf_thread_exited(s, 11);
	check(thread_table_find(&s->threads, 10));
	perf_thread_exited(s, 12);
	check_u64(s->threads.count, 0);
	thread_table_release(&s->threads);
}

/* Nobody told where a thread came from, or wrongly: it is not lost for that. */
TEST(threads_of_unknown_origin_are_sampled)
{
	static struct world w;
	struct perf_sampler *s = &w.s;
	int lost = 0;

	world_init(&w);
	check(perf_sampled_thread(s, &w.of_root, 77, 100));
	perf_thread_forked(s, 10, 11, 100);
	perf_thread_forked(s, 11, 12, 200);
	while (!perf_sampled_thread(s, &w.of_child, 12, 300 + (uint64_t)lost) && lost < 100)
		lost++;
	check(lost > 2 && lost < 20);
	thread_table_release(&s->threads);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(sizes_are_what_the_kernel_takes),
		T(a_thread_starts_small_and_stays_so), T(a_thread_that_is_cut_grows),
		T(a_thread_that_becomes_deep_grows), T(a_thread_gives_back_once),
		T(no_room_no_growth), T(threads_are_found_again), T(a_source_holds_from_a_time_on),
		T(inherited_samples_count_once), T(a_thread_that_ends_before_its_children),
		T(threads_of_unknown_origin_are_sampled));
}
