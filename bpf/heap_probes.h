/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What heap_probes.bpf.c and heap/probes.c share: what is probed, and the events in the ring.
 *
 * The program runs at the entries of allocator functions. There it counts down bytes for the thread, as the library
 * does in the programs that take it (heap/preload/sample.h); where the count ends, the call is sampled, and only then it
 * runs again when the call returns, which tells the address. What was sampled and is live is in a table, in which
 * every free is looked up.
 *
 * A call that an allocator function makes of another one is part of that: it counts once, at the outermost.
 */
#ifndef SONDE_BPF_HEAP_PROBES_H
#define SONDE_BPF_HEAP_PROBES_H

#include <stdint.h>

#include "user_regs.h"

#define HEAP_PROBES_MOST 64u    /* 2^n */
#define HEAP_PROBE_RANGES 64u   /* 2^n */
#define HEAP_PROBE_THREADS 16384u
#define HEAP_PROBE_PROCESSES 8192u
#define HEAP_PROBE_LIVE 131072u /* sampled blocks that are live at a time */
#define HEAP_PROBE_RING_BYTES (8u << 20)
#define HEAP_PROBE_STACK_BYTES 4096u
#define HEAP_PROBE_DEEP_BYTES 32768u /* when stacks have turned out to be deep */
#define HEAP_PROBE_RATE_MOST (1ull << 36)
#define HEAP_PROBE_LOG_BITS 8u

#define HEAP_PROBE_NO_ARG 0xffu

enum heap_probe_kind {
	HEAP_PROBE_ALLOC = 1,
	HEAP_PROBE_REALLOC = 2, /* its first argument is a block that is no more, if all goes well */
	HEAP_PROBE_OUT = 3,     /* its first argument says where the address is to be put; returns 0 when it is there */
	HEAP_PROBE_FREE = 4,    /* its first argument is the block */
};

/* A function that is probed. Arguments are counted from 0. */
struct heap_probe {
	uint8_t kind;   /* enum heap_probe_kind */
	uint8_t size;   /* argument with the bytes, */
	uint8_t count;  /* and the one to multiply them with; HEAP_PROBE_NO_ARG: none */
	uint8_t throws; /* it throws an exception when there is no memory */
	uint32_t pad;
	uint64_t at;    /* the probed instruction, in the address space of its file */
};

/*
 * Probes that a program has of its own, and that tell of blocks it has sampled itself: nothing is counted down, no return is
 * awaited. Where the arguments are, their notes say (elf/probe_notes.h).
 */
#define HEAP_TOLD_MOST 64u /* 2^n */
#define HEAP_TOLD_ARGS 3u

enum heap_told_from {
	HEAP_TOLD_NOTHING = 0,
	HEAP_TOLD_CONSTANT = 1,
	HEAP_TOLD_REGISTER = 2,
	HEAP_TOLD_MEMORY = 3, /* at register + value */
};

struct heap_told_arg {
	uint8_t from;   /* enum heap_told_from */
	uint8_t bits;   /* of a number that is to be cut: 64 - 8 * its bytes */
	uint8_t sign;   /* it is a signed one */
	uint8_t reg;    /* of pt_regs, counted in words */
	uint32_t pad;
	int64_t value;
};

struct heap_told_probe {
	uint32_t frees, pad; /* 1: (address); else (address, size, weight) */
	struct heap_told_arg args[HEAP_TOLD_ARGS];
};

/* Code of the allocator, half-open, in the same address space: what is called from there is part of another call. */
struct heap_probe_range {
	uint64_t start, end;
};

enum heap_probe_event_type {
	HEAP_PROBE_ALLOCATED = 1,
	HEAP_PROBE_FREED = 2,
	HEAP_PROBE_FREED_LAST = 3,    /* it is the last block that its thread allocated */
	HEAP_PROBE_MOVING = 4,        /* a sampled block goes into realloc */
	HEAP_PROBE_MOVED = 5,         /* it is done; the new block is not sampled. Address 0: it failed */
	HEAP_PROBE_MOVED_SAMPLED = 6, /* it is done, or is no move of a sampled block; the new block is sampled */
	HEAP_PROBE_BEGAN = 7,         /* a process that was watched from its exec on has called that */
	HEAP_PROBE_EXEC = 8,          /* a watched one goes on as another program */
	HEAP_PROBE_TOLD = 9,          /* as _ALLOCATED, sampled by the program itself; `rate` is the bytes it stands for */
};

/* HEAP_PROBE_ALLOCATED and _MOVED_SAMPLED are followed by registers and stack, as they are behind the call, HEAP_PROBE_TOLD by
 * those at the probe. */
struct heap_probe_event {
	uint32_t type, tgid, tid;
	uint32_t stack_bytes;
	uint64_t time_ns, address;
	uint64_t size, rate;
};

struct heap_probe_sample {
	struct heap_probe_event head;
	uint64_t regs[USER_REGS];
	uint8_t bytes[];
};

/* By function. */
struct heap_probe_calls {
	uint64_t calls, inner; /* in all; those that are part of another one */
};

/* Values of the map `watched`. */
#define HEAP_PROBE_NOW 1u
#define HEAP_PROBE_AT_EXEC 2u /* from its next exec on */

#endif
