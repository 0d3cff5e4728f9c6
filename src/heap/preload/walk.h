/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The stack of the calling thread as a node of the shared tree: walked by the tables that the collector made
 * (heap/tables.h), and only as far as it differs from the thread's last one.
 *
 * Called inside malloc: it allocates nothing, takes no lock, calls nothing but what is inline here, and does not
 * fault whatever the stack holds.
 */
#ifndef SONDE_HEAP_PRELOAD_WALK_H
#define SONDE_HEAP_PRELOAD_WALK_H

#include <stdbool.h>
#include <stdint.h>

#include "heap/share.h"

/* The shared memory as it is mapped here; of the process. */
struct walk_memory {
	struct share_header *header;
	uint32_t *index;
	struct share_node *nodes;
	const uint8_t *tables; /* SHARE_TABLES_BYTES, read-only */
};

/* What is kept of a thread between two walks: zeroed memory of walk_state_bytes(), page aligned and private to the
 * thread; pages of it that deep stacks do not need are never touched. */
struct walk_state;
uint64_t walk_state_bytes(void);

/* Registers in the frame that called the hook: `pc` is the return address into it, `sp` its stack pointer after the
 * call, `fp` its frame pointer register (x86-64 rbp, aarch64 x29). */
struct walk_start {
	uint64_t pc, sp, fp;
};

enum walk_result {
	WALK_WHOLE, /* it reaches the bottom of the stack */
	WALK_CUT,   /* it is cut: too deep, or no room for its nodes (counted in header->lost) */
	WALK_RAW,   /* a frame has no rule here: the collector has to walk it, from registers and bytes */
};

/* *ret_node: of the innermost frame; with WALK_RAW SHARE_STACK_NONE. */
enum walk_result walk_stack(const struct walk_memory *memory, struct walk_state *state,
	const struct walk_start *start, uint32_t *ret_node);

/*
 * Right after walk_stack(): the same stack with the thread's Python frames in it, by what share_python says, which is SHARE_PYTHON_READY: a node of
 * both, or `native` where there are none. Where there was no node, the node of the Python frames. `self`: pthread_self(). It follows what stands in memory as far as that can be
 * read, and no further than so many frames; a chain that makes no sense ends there.
 *
 * `tell_code` is called for each code object that this thread has not told so far, and says whether it was written down;
 * what it reads of it, it asks walk_python_can_read() for first. tell_call: the same for a return address in the
 * function that runs Python code, as far as that leaves a mark on its stack (from 3.10 on).
 */
struct walk_python_teller {
	bool (*tell_code)(void *ctx, const struct share_python *python, uint64_t code, uint64_t key);
	bool (*tell_call)(void *ctx, uint64_t pc);
	void *ctx;
};
uint32_t walk_python(const struct walk_memory *memory, struct walk_state *state, uint64_t self, uint32_t native,
	const struct walk_python_teller *teller);

/* Whether [at, at + bytes) can be read during walk_python(). */
bool walk_python_can_read(struct walk_state *state, uint64_t at, uint64_t bytes);

/* Whether a frame of the stack is one of the evaluation function's. */
bool walk_python_evaluates(const struct walk_memory *memory, uint32_t node);

/* After fork, in the child: node numbers of before mean nothing any more. */
void walk_forget(struct walk_state *state);

#endif
