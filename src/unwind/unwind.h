/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The unwinder: registers and stack bytes in, return addresses out.
 *
 * It opens no file, reads no /proc and prints nothing. The caller hands it the sections of each
 * object file once (struct unwind_module) and, for each walk, a way to find the mapping of an
 * address and to read memory (struct unwind_target); so the same code serves a live process, a
 * stack dump, a core file and a fuzzer.
 *
 * Layers, each in its own files and testable alone:
 *   cfi      .eh_frame / .debug_frame bytes -> rows of rules         (cfi.h)
 *   table    pc -> rule of one module, rows expanded lazily per FDE  (table.h)
 *   expr     DWARF expressions with memory reads                     (expr.h)
 *   arch     what x86-64 and aarch64 know beyond CFI                 (arch.h)
 *   walk     one frame after another, until the root or a reason     (walk.c)
 *
 * What may be relied on: no walk allocates more than lazily expanded rows; every walk ends (frame
 * limit, and the CFA must make progress); nothing a target or a file holds makes it read outside
 * the bytes it was given. A module may be shared by many targets and one thread at a time.
 */
#ifndef SONDE_UNWIND_UNWIND_H
#define SONDE_UNWIND_UNWIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum unwind_arch {
	UNWIND_X86_64,
	UNWIND_AARCH64,
};

/* Registers by DWARF number. x86-64 (psABI, figure 3.36): 0 rax, 1 rdx, 2 rcx, 3 rbx, 4 rsi,
 * 5 rdi, 6 rbp, 7 rsp, 8-15 r8-r15, 16 return address. aarch64 (aadwarf64): 0-30 x0-x30, 31 sp,
 * 32 pc. The pc of a frame always stands in UNWIND_REG_PC of its architecture. */
#define UNWIND_MAX_REGS 33
#define UNWIND_X86_RBP 6
#define UNWIND_X86_RSP 7
#define UNWIND_X86_PC 16
#define UNWIND_A64_FP 29
#define UNWIND_A64_LR 30
#define UNWIND_A64_SP 31
#define UNWIND_A64_PC 32

struct unwind_regs {
	uint64_t value[UNWIND_MAX_REGS];
	uint64_t known; /* bit i: value[i] holds the register's value in this frame */
};

/* ---- modules: one object file, shared by all processes that map it ---- */

/* Bytes of a section as they would stand in memory at `vaddr` (the file's own addresses, before
 * any load bias). The bytes are borrowed and must outlive the module. size 0: not there. */
struct unwind_section {
	const uint8_t *bytes;
	size_t size;
	uint64_t vaddr;
};

/* Half-open [start, end) in module addresses. */
struct unwind_range {
	uint64_t start, end;
};

struct unwind_module_input {
	enum unwind_arch arch;
	struct unwind_section eh_frame;
	struct unwind_section eh_frame_hdr; /* only a hint: may be absent, stale or unsorted */
	struct unwind_section debug_frame;  /* decompressed */
	const struct unwind_section *text;  /* executable segments, to look at call instructions */
	size_t text_count;
	/* Functions that are the bottom of every stack they are on (_start, __clone, goexit...), for
	 * files without CFI that would say so. */
	const struct unwind_range *roots;
	size_t root_count;
	uint64_t entry; /* e_entry of an executable, whose code is the bottom too; 0: none */
	/* Where .got/.data based pointer encodings count from (DW_EH_PE_datarel outside the hdr). */
	uint64_t data_base;
	/* Names the starts of functions, for code that call frame information leaves out: asked once,
	 * when first needed; `functions` is handed back and must outlive the module. May be NULL. */
	void (*each_function)(void *functions, void (*take)(void *ctx, uint64_t vaddr), void *ctx);
	void *functions;
	bool go; /* built by the Go linker: frame pointers kept, .debug_frame silent about rbp */
};

struct unwind_module;

/* Indexes the call frame information; rows are expanded later, as addresses are looked up. Input
 * arrays (not the section bytes) are copied. Broken CFI is not an error: what can be read is
 * used. 0 or -ENOMEM; *ret untouched then. */
int unwind_module_new(
	const struct unwind_module_input *input, struct unwind_module **ret, struct err *err);
void unwind_module_free(struct unwind_module *m);

struct unwind_module_stats {
	size_t fdes, rows, rules; /* rows and rules: expanded so far */
	size_t table_bytes;       /* memory held by the FDE index, rows and rules */
};
void unwind_module_stats(const struct unwind_module *m, struct unwind_module_stats *ret);

/* Expands every FDE now (benchmarks and verification; a recorder never needs it). 0 or -ENOMEM. */
int unwind_module_expand_all(struct unwind_module *m);

/* ---- targets: one address space ---- */

/* One mapping of a target: [start, end) in its address space. module == NULL: anonymous or JIT
 * memory, or a file that could not be opened. id is the caller's own number, handed back in each
 * frame. module address = address - bias. */
struct unwind_mapping {
	uint64_t start, end;
	uint64_t bias;
	struct unwind_module *module;
	uint32_t id;
	bool executable;
	bool uretprobes;       /* the kernel's page whose address stands where a return address was */
	bool holds_other_code; /* true of this address alone: ask again for the next in the range */
};

struct unwind_dump;
struct unwind_frame;

enum unwind_tail {
	UNWIND_TAIL_OK,
	UNWIND_TAIL_UNREADABLE,
	UNWIND_TAIL_CHANGED, /* the thread has returned from frames of the sample meanwhile */
};

struct unwind_target {
	enum unwind_arch arch;
	void *ctx;
	/* The mapping that holds `addr`; false when nothing is mapped there. */
	bool (*find_mapping)(void *ctx, uint64_t addr, struct unwind_mapping *ret);
	/* Copies `len` bytes at `addr` of the target; false when they cannot all be read. For code
	 * bytes and data outside the dump; never called for addresses inside it. May be NULL. */
	bool (*read_memory)(void *ctx, uint64_t addr, void *buf, size_t len);
	/*
	 * Stack bytes that the dump does not hold, as they stand now: a window that holds at least
	 * the 8 bytes at `addr`, valid until the next call in the same walk. `frames` are those
	 * found so far; the caller makes sure that they still stand (each frame's `slot` still
	 * holds its pc, up to address_mask), for then nothing above them has been returned through. May be NULL: then
	 * a stack that leaves the dump ends truncated.
	 */
	enum unwind_tail (*read_tail)(void *ctx, const struct unwind_frame *frames, size_t count,
		uint64_t addr, struct unwind_dump *ret);
	/* Bits of a return address that are address (aarch64 pointer authentication); 0: all. */
	uint64_t address_mask;
	/* The highest address of the thread's first stack (top of the argument block), 0: not known. */
	uint64_t stack_end;
	/* Registers as they are in each frame, for whoever wants to read variables: room for those of
	 * the first frame_regs_limit frames, NULL: not wanted. Those that are not known there have no bit. */
	struct unwind_regs *frame_regs;
	size_t frame_regs_limit;
};

/* The part of the stack that was copied at the time of the sample: `size` bytes at `start`. */
struct unwind_dump {
	uint64_t start;
	const void *bytes;
	size_t size;
};

/* ---- walks ---- */

/* How a frame was found from the one below it (docs/heuristics/). */
enum unwind_how {
	UNWIND_SAMPLED, /* the interrupted frame itself */
	UNWIND_CFI,     /* call frame information (or the signal frame layout) */
	UNWIND_FP,      /* frame pointer; return address preceded by a call, CFA growing */
	UNWIND_LEAF,    /* return address at the top of the stack, preceded by a call */
	UNWIND_SCAN,    /* first plausible return address above; a guess */
	UNWIND_PROLOGUE, /* what the function's instructions do to the stack; preceded by a call */
	UNWIND_HOW_COUNT,
};

/* Where the return address was read. */
enum unwind_source {
	UNWIND_FROM_DUMP,
	UNWIND_FROM_LIVE, /* read_tail or read_memory, after the sample was taken */
	UNWIND_FROM_REGS, /* a register: link register, or the sample itself */
};

struct unwind_frame {
	uint64_t pc;         /* in the target's address space, as found */
	uint64_t vaddr;      /* pc - bias of its mapping; == pc where there is none */
	uint64_t cfa;        /* 0 where not known (last frame) */
	uint64_t slot;       /* where on the stack the pc was read; 0: nowhere (a register) */
	uint32_t mapping_id; /* struct unwind_mapping.id; UINT32_MAX: not mapped */
	uint8_t how;         /* enum unwind_how */
	uint8_t source;      /* enum unwind_source */
	bool is_return;      /* pc is a return address: the call is the instruction before it */
};

/* Why a walk ended. Only UNWIND_ROOT is a whole stack. */
enum unwind_end {
	UNWIND_ROOT,
	UNWIND_TRUNCATED,   /* the next bytes lie beyond the dump and could not be read */
	UNWIND_NO_RULE,     /* no CFI and no fallback that holds */
	UNWIND_BAD_RULE,    /* a rule that cannot be evaluated (register or memory not known) */
	UNWIND_BAD_ADDRESS, /* a return address outside executable memory */
	UNWIND_NO_PROGRESS, /* the CFA did not move up */
	UNWIND_FRAME_LIMIT,
	UNWIND_NO_REGS, /* the sample carried no usable registers */
	UNWIND_CHANGED, /* left the dump, and the target has gone on since: truncated as well */
	UNWIND_END_COUNT,
};

/* A stable lower-case word for each end: "root", "truncated", "no-rule"... */
const char *unwind_end_name(enum unwind_end end);
const char *unwind_how_name(enum unwind_how how);

/* Caches shared by all walks of one thread of ours. */
struct unwinder;

int unwinder_new(struct unwinder **ret, struct err *err);
void unwinder_free(struct unwinder *u);

/* Forgets everything cached about a module; call before unwind_module_free(). */
void unwinder_forget(struct unwinder *u, const struct unwind_module *m);

struct unwinder_stats {
	uint64_t walks, frames, cache_hits, cache_misses;
};
void unwinder_stats(const struct unwinder *u, struct unwinder_stats *ret);

/* Walks one stack, leaf first, into frames[0..limit). `regs` and `dump` are as sampled; dump may
 * be NULL (every byte then comes from read_memory). Returns the number of frames (0 only for
 * UNWIND_NO_REGS) and says in *ret_end why it ended. */
size_t unwinder_walk(struct unwinder *u, const struct unwind_target *target,
	const struct unwind_regs *regs, const struct unwind_dump *dump, struct unwind_frame *frames,
	size_t limit, enum unwind_end *ret_end);

#endif
