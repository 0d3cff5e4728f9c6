/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Where functions start in a file whose call frame information does not say so: symbols, the targets of
 * all direct calls in its code, and aligned places that open a frame. A few starts that are none must be expected (bytes that
 * look like a call), and functions that are only called through pointers are missing.
 */
#ifndef SONDE_UNWIND_FUNCTION_INDEX_H
#define SONDE_UNWIND_FUNCTION_INDEX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/vec.h"
#include "unwind/unwind.h"

/* Code beyond this is not searched for calls. */
#define FUNCTION_INDEX_TEXT_BYTES (16u << 20)

VEC_TYPE(function_starts, uint64_t);

struct function_index {
	struct function_starts starts; /* ascending, once built */
	bool built;
};

/* Looks for all of them, once. Where memory runs out there are fewer. */
void function_index_build(struct function_index *x, const struct unwind_module_input *input);

/* The last start at or below `vaddr`; false when there is none. */
bool function_index_before(const struct function_index *x, uint64_t vaddr, uint64_t *ret);

void function_index_release(struct function_index *x);

#endif
