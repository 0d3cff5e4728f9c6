/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The code that a diverted thread runs, and what it reads: both are written behind the end of a program segment of
 * the target, where nothing else ever looks (place.c), the block right after the code.
 *
 * The code is made so that it needs nobody. Wherever it wants its tracer it sends its own thread a signal that
 * nothing happens by (SIGURG, or another that has no handler), which stops a traced thread and nobody else. With
 * a tracer, the thread stands at inject_code_met then, and the tracer looks, calls on, or gives it back its registers.
 * Without one it runs on: it closes and unmaps what it was given, and takes back its scheduling policy, its signal mask and the registers of
 * `resume` by itself, with the interrupted call begun again. So a tracer may die at any moment.
 *
 * Entries, as the program counter is set: inject_code_prepare makes memory and a memfd; inject_code_call runs
 * struct inject_call at the start of that memory; inject_code_finish gives both back. All end at inject_code_met.
 * Registers between them, by architecture: the memory or an error, the memfd or an error, extended state
 * to be restored (0: none), whether finish is to meet as well (1) or to go home (0).
 */
#ifndef SONDE_HEAP_INJECT_CODE_H
#define SONDE_HEAP_INJECT_CODE_H

/* Offsets that the assembler needs, too. */
#define BLOCK_BYTES_AT 24
#define BLOCK_SIGNAL_AT 32
#define BLOCK_MASK_AT 40
#define BLOCK_POLICY_AT 48
#define BLOCK_PRIORITY_AT 56
#define BLOCK_NAME_AT 64
#define BLOCK_RESUME_AT 128

#define CALL_ARGS_AT 8
#define CALL_RESULT_AT 56
#define CALL_ERRNO_AT 64

#ifndef __ASSEMBLER__
#include <stddef.h>
#include <stdint.h>

#define INJECT_MAGIC 0x31637270656a6e69ull

struct inject_block {
	uint64_t magic;
	uint64_t region; /* what inject_code_prepare got, once it is known; 0 */
	uint64_t tid;    /* who runs this */
	uint64_t region_bytes;
	uint64_t signal; /* by which it tells that it is there */
	uint64_t mask;   /* its signal mask, before */
	int64_t policy;  /* its scheduling policy, before; -1: that was left alone */
	uint64_t priority; /* that goes with it: 0 */
	char name[64];   /* of the memfd */
	uint64_t resume[40]; /* registers as they are given back; order: of the architecture */
};

/* At the start of the memory. */
struct inject_call {
	uint64_t function, args[6], result;
	uint64_t errno_location; /* function */
};

_Static_assert(offsetof(struct inject_block, region_bytes) == BLOCK_BYTES_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, signal) == BLOCK_SIGNAL_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, mask) == BLOCK_MASK_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, policy) == BLOCK_POLICY_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, priority) == BLOCK_PRIORITY_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, name) == BLOCK_NAME_AT, "known to the code");
_Static_assert(offsetof(struct inject_block, resume) == BLOCK_RESUME_AT, "known to the code");
_Static_assert(offsetof(struct inject_call, args) == CALL_ARGS_AT, "known to the code");
_Static_assert(offsetof(struct inject_call, result) == CALL_RESULT_AT, "known to the code");
_Static_assert(offsetof(struct inject_call, errno_location) == CALL_ERRNO_AT, "known to the code");

extern const uint8_t inject_code_start[], inject_code_prepare[], inject_code_call[], inject_code_finish[],
	inject_code_met[], inject_code_end[];
#endif

#endif
