/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Python frames among the native ones of the same thread, by address (docs/heuristics/python-frames.md).
 *
 * Each call of the interpreter's evaluation function leaves something of Python's in its own C frame, so
 * that the stack itself says which Python frames belong where: no symbols of the interpreter are needed,
 * and a native stack that ends too early still takes those frames that it has room for.
 */
#ifndef SONDE_SAMPLE_PYTHON_INTERLEAVE_H
#define SONDE_SAMPLE_PYTHON_INTERLEAVE_H

#include "python/python.h"
#include "unwind/unwind.h"

/* A thread's native frames, leaf first. */
struct native_stack {
	const struct unwind_frame *frames;
	size_t count;
	uint64_t sp;  /* of the innermost one; 0: not known */
	bool rooted;  /* it is whole */
	/* Whether a frame is one of the evaluation function's; asked only where there are no markers. */
	bool (*evaluates)(void *ctx, const struct unwind_frame *frame);
	void *ctx;
};

/* ret_before[i]: in front of which native frame, on the side of the leaf, Python frame i stands: that one
 * runs it. `native->count`: outside of all that are known. */
#define PYTHON_STALE SIZE_MAX /* the thread has returned from it since: it is not part of the stack */

/*
 * `frames` are one chain or several, one after the other, each innermost first. How many are stale.
 * Frames that follow each other keep their order: ret_before ascends within a chain, but for stale ones.
 */
size_t python_interleave(const struct native_stack *native, const struct python_frame *frames, size_t count,
	size_t *ret_before);

#endif
