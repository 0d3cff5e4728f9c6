/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What an architecture knows beyond call frame information: its registers, what a call looks
 * like, what the kernel leaves on the stack for a signal, how code begins and ends.
 *
 * Functions take code bytes, never addresses to read: who may read what is the walk's business.
 * Both tables are always compiled in, so any host unwinds for any target. Adding an architecture
 * is one file and one row in arch_of().
 */
#ifndef SONDE_UNWIND_ARCH_H
#define SONDE_UNWIND_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "unwind/insn.h"
#include "unwind/unwind.h"

#define ARCH_NO_REG 255
#define ARCH_CALL_MAX 8	 /* bytes before a return address that arch.call_before() wants to see */
#define ARCH_CODE_MAX 16 /* bytes from a pc on that the other questions want to see */

enum call_form {
	CALL_NONE,     /* the bytes do not end in a call */
	CALL_DIRECT,   /* the target stands in the instruction */
	CALL_SLOT,     /* through memory at a fixed address (a GOT slot) */
	CALL_INDIRECT, /* through a register or computed memory */
};

struct call_site {
	enum call_form form;
	uint64_t target; /* CALL_DIRECT: what is called; CALL_SLOT: where its address stands */
};

/* Where an interrupted function that keeps frame pointers is, judged by its next instruction. */
enum frame_state {
	FRAME_SET_UP, /* nothing says otherwise: the frame pointer is this function's */
	FRAME_ENTRY,  /* nothing pushed yet, or all popped: return address on top (or in the LR) */
	FRAME_PUSHED, /* the caller's frame pointer is pushed, ours not set */
};

struct arch {
	uint8_t sp, fp, pc;
	uint8_t lr;	    /* ARCH_NO_REG: calls push the return address */
	uint8_t code_align; /* of every instruction; a power of two */
	uint64_t preserved; /* registers a callee must give back, by bit; without sp and pc */
	uint64_t address_mask;

	/* The call that ends where `code` ends. `ra` is the address of the byte after it. */
	struct call_site (*call_before)(const uint8_t *code, size_t len, uint64_t ra);

	/* The frame of the function whose next instruction is at `code`. */
	enum frame_state (*frame_state)(const uint8_t *code, size_t len);

	/* True when `code` is what a signal handler returns to: it calls rt_sigreturn. */
	bool (*is_sigreturn)(const uint8_t *code, size_t len);

	/* True when the code after a return address can only end the thread. */
	bool (*is_thread_exit)(const uint8_t *code, size_t len);

	/* True when `code`, which ends at a call, loads the stack pointer from memory: the call runs on
	 * another stack, as in systemstack() of the Go runtime. */
	bool (*changes_stack)(const uint8_t *code, size_t len);

	/* True when these instructions hold a prologue that sets up a frame pointer. */
	bool (*keeps_frame_pointer)(const uint8_t *code, size_t len);

	/* The slot a PLT stub at `at` jumps through; 0 when `code` is no such stub. */
	uint64_t (*plt_slot)(const uint8_t *code, size_t len, uint64_t at);

	/* The target of the direct jump that `code` begins with; 0 when it begins otherwise. */
	uint64_t (*jump)(const uint8_t *code, size_t len, uint64_t at);

	/* The instruction that `code` begins with. */
	struct insn (*decode)(const uint8_t *code, size_t len, uint64_t at);

	/* What flow.h keeps an eye on: sp, fp, and registers that are mostly found on the stack. */
	const uint8_t *followed;
	uint8_t followed_count;

	/* The kernel's signal frame at sp: register i (DWARF number; the last is the pc) stands at
	 * sp + sigframe[i]. */
	const uint16_t *sigframe;
	uint8_t sigframe_count;
};

extern const struct arch arch_x86_64, arch_aarch64;

static inline const struct arch *arch_of(enum unwind_arch arch)
{
	return arch == UNWIND_AARCH64 ? &arch_aarch64 : &arch_x86_64;
}

#endif
