/* SPDX-License-Identifier: BSD-2-Clause */
/* Which native frame runs which Python frames. */
#include "test.h"

#include "sample/python/interleave.h"

/* Frames of 0x100 bytes each, the innermost from 0x1000 on; odd ones evaluate. */
#define SP 0x1000u
#define FRAME_BYTES 0x100u

static struct unwind_frame frames[8];

static bool is_odd(void *ctx, const struct unwind_frame *frame)
{
	(void)ctx;
	return (frame - frames) % 2;
}

static struct native_stack stack_of(size_t count, bool rooted)
{
	for (size_t i = 0; i < count; i++)
		frames[i] = (struct unwind_frame){.cfa = SP + (i + 1) * FRAME_BYTES};
	return (struct native_stack){frames, count, SP, rooted, is_odd, NULL};
}

static struct python_frame inner(void)
{
	return (struct python_frame){0};
}

static struct python_frame entry(uint64_t marker)
{
	return (struct python_frame){.entry = true, .marker = marker};
}

TEST(frames_go_to_the_call_that_runs_them)
{
	struct native_stack n = stack_of(6, true);
	struct python_frame p[] = {inner(), entry(0x1110), inner(), inner(), entry(0x13f8)};
	size_t before[5];

	check_u64(python_interleave(&n, p, 5, before), 0);
	check_u64(before[0], 1);
	check_u64(before[1], 1);
	check_u64(before[2], 3);
	check_u64(before[4], 3);
}

TEST(what_was_returned_from_is_stale)
{
	struct native_stack n = stack_of(4, true);
	struct python_frame p[] = {inner(), entry(0xff8), entry(0x1108)};
	size_t before[3];

	check_u64(python_interleave(&n, p, 3, before), 2);
	check_u64(before[0], PYTHON_STALE);
	check_u64(before[1], PYTHON_STALE);
	check_u64(before[2], 1);
}

TEST(outside_of_a_stack_that_is_cut_off)
{
	struct native_stack n = stack_of(2, false);
	struct python_frame p[] = {entry(0x1010), entry(0x1800), inner()};
	size_t before[3];

	check_u64(python_interleave(&n, p, 3, before), 0);
	check_u64(before[0], 0);
	check_u64(before[1], 2);
	check_u64(before[2], 2); /* its entry was not among what was copied */
}

TEST(a_frame_on_another_stack_between)
{
	struct native_stack n = stack_of(5, true);
	struct python_frame p[] = {entry(0x7f0010), entry(0x1210)};
	size_t before[2];

	frames[1].cfa = 0x7f0000; /* a signal handler's stack */
	frames[2].cfa = 0x7f0100;
	frames[3].cfa = 0x1180;
	frames[4].cfa = 0x1280;
	check_u64(python_interleave(&n, p, 2, before), 0);
	check_u64(before[0], 2);
	check_u64(before[1], 4);
}

TEST(without_markers_by_order)
{
	struct native_stack n = stack_of(8, true); /* calls at 1, 3, 5, 7 */
	struct python_frame p[] = {entry(0), entry(0), entry(0), entry(0)};
	size_t before[4];

	check_u64(python_interleave(&n, p, 4, before), 0);
	check_u64(before[0], 1);
	check_u64(before[3], 7);
}

TEST(a_call_that_has_no_frame_yet)
{
	struct native_stack n = stack_of(8, true);
	struct python_frame p[] = {entry(0), entry(0), entry(0)};
	size_t before[3];

	python_interleave(&n, p, 3, before);
	check_u64(before[0], 3);
	check_u64(before[2], 7);
}

TEST(without_the_outermost_from_the_innermost_call)
{
	struct native_stack n = stack_of(8, true); /* calls at 1, 3, 5, 7 */
	struct python_frame generator[] = {inner(), {.missing = true}};
	struct python_frame each[] = {entry(0), entry(0), {.missing = true}};
	size_t before[3];

	check_u64(python_interleave(&n, generator, 2, before), 0);
	check_u64(before[0], 1);
	check_u64(before[1], 1);
	check_u64(python_interleave(&n, each, 3, before), 0);
	check_u64(before[0], 1);
	check_u64(before[1], 3);
	check_u64(before[2], 5);
	n.evaluates = NULL;
	check_u64(python_interleave(&n, generator, 2, before), 0);
	check_u64(before[1], 8);
}

TEST(frames_beyond_a_cut)
{
	struct native_stack n = stack_of(4, false); /* calls at 1, 3 */
	struct python_frame p[] = {entry(0), entry(0), entry(0)};
	size_t before[3];

	python_interleave(&n, p, 3, before);
	check_u64(before[0], 1);
	check_u64(before[1], 3);
	check_u64(before[2], 4);
}

TEST(no_native_frames_at_all)
{
	struct native_stack n = stack_of(0, false);
	struct python_frame p[] = {inner(), entry(0x1110)}, q[] = {entry(0)};
	size_t before[2];

	check_u64(python_interleave(&n, p, 2, before), 0);
	check_u64(before[1], 0);
	python_interleave(&n, q, 1, before);
	check_u64(before[0], 0);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(frames_go_to_the_call_that_runs_them), T(what_was_returned_from_is_stale),
		T(outside_of_a_stack_that_is_cut_off), T(a_frame_on_another_stack_between),
		T(without_the_outermost_from_the_innermost_call),
		T(without_markers_by_order), T(a_call_that_has_no_frame_yet), T(frames_beyond_a_cut),
		T(no_native_frames_at_all));
}
