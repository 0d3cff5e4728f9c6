/* SPDX-License-Identifier: BSD-2-Clause */
/* Between jitdump.c (the file and its index) and jitdump_source.c (names and lines). */
#ifndef SONDE_SYMBOL_JITDUMP_PRIV_H
#define SONDE_SYMBOL_JITDUMP_PRIV_H

#include "symbol/jitdump.h"
#include "symbol/symbol_priv.h"

/* A code load record. Pieces are in the order of the file, so their offsets ascend. */
struct jit_piece {
	uint64_t address; /* where it was loaded first */
	uint64_t offset;
	uint64_t lines_offset;  /* the debug entries of its JIT_CODE_DEBUG_INFO */
	uint64_t unwind_offset; /* the data of its JIT_CODE_UNWINDING_INFO */
	uint32_t size;
	uint32_t lines_bytes, lines_count; /* 0: none */
	uint32_t unwind_bytes, unwind_hdr_bytes;
	uint32_t name_bytes; /* without its NUL; the name stands right before the code */
};

/* The piece whose code holds the file offset, NULL when none does. */
const struct jit_piece *jitdump_piece_at(const struct jitdump *d, uint64_t offset);

/* How far above the true ones the addresses of the debug entries are. */
uint64_t jitdump_line_shift(const struct jitdump *d);

#endif
