/* SPDX-License-Identifier: BSD-2-Clause */
/* The unwind information that a jitdump has of one function. */
#ifndef SONDE_SAMPLE_JIT_UNWIND_H
#define SONDE_SAMPLE_JIT_UNWIND_H

#include "unwind/unwind.h"

/* Bytes as they stand in the dump, borrowed for as long as the module lives. `hdr_bytes` of
 * `unwind_bytes` are the .eh_frame_hdr, in front of the .eh_frame or behind it; not more than those. */
struct jit_unwind_input {
	const uint8_t *code, *unwind;
	size_t code_bytes, unwind_bytes, hdr_bytes;
	uint64_t address; /* of the code in the module that is made */
};

/* NULL: there is nothing that covers the function, or memory ran out. */
struct unwind_module *jit_unwind_new(const struct jit_unwind_input *input);

#endif
