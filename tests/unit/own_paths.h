/* SPDX-License-Identifier: BSD-2-Clause */
/* Walks by paths beside walks by rules: both must come to the same stack. */
#ifndef TESTS_UNIT_OWN_PATHS_H
#define TESTS_UNIT_OWN_PATHS_H

#include "heap/preload/steps.h"

/* The next walk of `state` is without paths. */
static inline void paths_skip(struct walk_state *state)
{
	state->paths_off = 1;
}

/* After such a walk, which came to `result`: whether paths of this state lead to the same. *ret_known: by paths that were
 * there; what is walked by rules that way is always the same. */
static inline bool paths_agree(const struct walk_memory *memory, struct walk_state *state, const struct walk_start *start,
	enum walk_result result, bool *ret_known)
{
	struct walk w = {.m = memory, .s = state, .before = {.count = UINT32_MAX}};
	struct walk_readable before = state->readable;
	enum walk_paths_result paths;
	uint64_t hash = 0;

	*ret_known = false;
	if (!state->readable.count || !state->base)
		return true;
	paths = walk_paths(&w, start, &hash);
	if (result == WALK_RAW)
		state->readable = before;
	*ret_known = paths == WALK_PATHS_KNOWN;
	if (paths == WALK_PATHS_DEEP || result == WALK_CUT)
		return true;
	if (paths == WALK_PATHS_LOST || result == WALK_RAW)
		return paths == WALK_PATHS_LOST && result == WALK_RAW;
	return state->count && hash == state->frames[state->count - 1].hash;
}

#endif
