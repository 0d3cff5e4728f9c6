/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/python/interleave.h"

/* Frames are not larger than this: what looks so goes on on another stack (a signal's, a coroutine's). A marker
 * in no known frame, for one could not be unwound exactly, is looked for in the next that ends this near above. */
#define NEAR_BYTES (1u << 20)

static bool is_near(uint64_t low, uint64_t high)
{
	return high > low && high - low < NEAR_BYTES;
}

/* The native frame that holds the marker. */
static size_t frame_of_marker(const struct native_stack *n, uint64_t marker)
{
	uint64_t low = n->sp;
	size_t nearest = n->count;

	for (size_t i = 0; i < n->count; i++) {
		if (low && marker >= low && marker < n->frames[i].cfa && is_near(low, n->frames[i].cfa))
			return i;
		low = n->frames[i].cfa;
	}
	for (size_t i = 0; i < n->count; i++)
		if (is_near(marker, n->frames[i].cfa) &&
			(nearest == n->count || n->frames[i].cfa < n->frames[nearest].cfa))
			nearest = i;
	return nearest;
}

/* Below the stack pointer is what has been returned from. */
static bool is_stale(const struct native_stack *n, uint64_t marker)
{
	return n->sp && is_near(marker, n->sp);
}

/* Frames from `i` up to and with their entry belong to one call of the evaluation function. */
static size_t group_end(const struct python_frame *frames, size_t i, size_t count)
{
	while (i < count && !frames[i].entry)
		i++;
	return i < count ? i + 1 : count;
}

static bool has_markers(const struct python_frame *frames, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (frames[i].marker)
			return true;
	return false;
}

static size_t by_markers(const struct native_stack *n, const struct python_frame *frames, size_t count,
	size_t *ret_before)
{
	size_t stale = 0, end;

	for (size_t i = 0; i < count; i = end) {
		uint64_t marker;
		size_t at;

		end = group_end(frames, i, count);
		marker = frames[end - 1].marker;
		at = !marker ? n->count : is_stale(n, marker) ? PYTHON_STALE : frame_of_marker(n, marker);
		stale += at == PYTHON_STALE ? end - i : 0;
		while (i < end)
			ret_before[i++] = at;
	}
	return stale;
}

/*
 * Without markers each Python frame is one call of the evaluation function, and these stand in the same
 * order. Where there are more or fewer of the one than of the other, the newest call has not got its frame yet or
 * has given it up, so both are counted from the outermost; a native stack that was cut off is counted
 * from the innermost.
 */
static void by_order(const struct native_stack *n, size_t count, size_t *ret_before)
{
	size_t calls = 0, surplus, frame;

	for (size_t i = 0; i < n->count; i++)
		calls += n->evaluates && n->evaluates(n->ctx, &n->frames[i]);
	surplus = n->rooted && calls > count ? calls - count : 0; /* innermost calls without a frame */
	frame = n->rooted && count > calls ? count - calls : 0;   /* innermost frames without a call */
	for (size_t i = 0; i < frame; i++)
		ret_before[i] = 0;
	for (size_t i = 0; i < n->count && calls && frame < count; i++) {
		if (!n->evaluates(n->ctx, &n->frames[i]))
			continue;
		if (surplus)
			surplus--;
		else
			ret_before[frame++] = i;
	}
	while (frame < count)
		ret_before[frame++] = n->count;
}

/* Where the outermost frames are missing, calls are counted from the innermost: one a group of frames. */
static void by_order_from_leaf(const struct native_stack *n, const struct python_frame *frames, size_t count,
	size_t *ret_before)
{
	size_t at = 0, end;

	for (size_t i = 0; i < count; i = end, at++) {
		end = group_end(frames, i, count);
		while (at < n->count && !(n->evaluates && n->evaluates(n->ctx, &n->frames[at])))
			at++;
		if (at > n->count)
			at = n->count;
		while (i < end)
			ret_before[i++] = at;
	}
}

size_t python_interleave(const struct native_stack *native, const struct python_frame *frames, size_t count,
	size_t *ret_before)
{
	if (has_markers(frames, count))
		return by_markers(native, frames, count, ret_before);
	if (count && frames[count - 1].missing)
		by_order_from_leaf(native, frames, count, ret_before);
	else
		by_order(native, count, ret_before);
	return 0;
}
