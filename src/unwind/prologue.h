/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The caller by what the code around a pc does to the stack (flow.h), checked against the stack.
 *
 * What the code says is kept for each pc: in the cache of pc_cache.h for files, and for memory that
 * is no file in one whose keys hold the bytes around the pc, for such code may be replaced.
 * docs/heuristics/prologue.md.
 */
#ifndef SONDE_UNWIND_PROLOGUE_H
#define SONDE_UNWIND_PROLOGUE_H

#include "unwind/flow.h"
#include "unwind/walk_priv.h"

/* What the code says of the frame of `pc`, which no rule covers; `info` as walk_pc_info() gave it.
 * False when it says nothing. */
bool walk_shape(struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return,
	struct pc_info info, struct frame_shape *ret);

/* How far the CFA of the frame we stand on lies above sp and above the frame pointer, in a file, by the code
 * from the function's first instruction at `start` on. False where it does not say both. */
bool walk_depth(struct walk *w, uint64_t start, int32_t *ret_depth, int32_t *ret_above_fp);

/* The caller by that. UNWIND_NO_RULE where the stack does not bear it out. */
int step_by_shape(struct walk *w, const struct frame_shape *shape, struct step *s);

#endif
