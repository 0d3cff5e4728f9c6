/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Unwind tables as they lie in the shared memory (share.h): written by the collector, read by the code in the target
 * (preload/walk.h), which can look nothing up and allocate nothing.
 *
 *	directory   one for all that is mapped; header->directory says where the newest is
 *	blob        the rules of one object file, the same wherever that is mapped
 *
 * header->directory is TABLES_WORD(where, generation) and published with release order. What it leads to stays as it is until
 * another one is published, and may be overwritten after that. So a reader takes the word, looks up with every index
 * checked against SHARE_TABLES_BYTES, and believes what it found if the word is still the same afterwards.
 *
 * All places are offsets in the tables area, multiples of 8, never 0.
 */
#ifndef SONDE_HEAP_TABLES_LAYOUT_H
#define SONDE_HEAP_TABLES_LAYOUT_H

#include <stdint.h>

#define TABLES_MAGIC 0x6c626174u

#define TABLES_WORD(where, generation) ((uint64_t)(generation) << 40 | (where))
#define TABLES_WHERE(word) ((word) & ((1ull << 40) - 1))

struct tables_directory {
	uint32_t magic, count;
	uint32_t modules_gone;  /* of the header: what was unmapped after that is still in here */
	uint32_t pad;
	uint64_t address_mask;  /* bits of a return address that are address */
	/* struct tables_module modules[count], ascending, disjoint */
};

/* Executable memory: [start, end) of the process; module address = address - bias. */
struct tables_module {
	uint64_t start, end, bias;
	uint64_t blob; /* 0: its rules are not here (yet) */
};

/*
 * Row i says which rule holds from `first` + starts[i] to the row after it, in module addresses; before the first row
 * none does. Rows are of code that a call can return into: what lies between two calls of a prologue has no rule.
 */
struct tables_blob {
	uint64_t first;
	uint32_t rows, rules;
	/* uint32_t starts[rows], ascending; uint16_t rule_of[rows], padded to 8; uint64_t rule[rules] */
};

#define TABLES_RULE_OF_AT(rows) (sizeof(struct tables_blob) + 4ull * (rows))
#define TABLES_RULES_AT(rows) (sizeof(struct tables_blob) + ((6ull * (rows) + 7) & ~7ull))

/*
 * A rule in 64 bits, how to get from a frame to its caller:
 *
 *	bits  0..3   enum tables_kind
 *	bits  4..31  what the CFA counts from plus so many bytes, signed
 *	bits 32..47  where the return address is: CFA + 8 times that, signed; 0: in the link register
 *	bits 48..63  where the caller's frame pointer is, the same way; 0: it still has it; TABLES_FP_LOST: nobody knows
 */
enum tables_kind {
	TABLES_NONE = 0,   /* not known here, or more than a rule can say */
	TABLES_SP = 1,     /* CFA = stack pointer + offset */
	TABLES_FP = 2,     /* CFA = frame pointer + offset */
	TABLES_BOTTOM = 3, /* nothing called this */
	TABLES_SIGNAL = 4, /* the kernel's signal frame is on top of the stack */
	TABLES_FP_AT = 5,  /* CFA = the word at frame pointer + offset; the caller's frame pointer is saved at this one
			    * + 8 * what bits 48..63 say, 0 as well */
};

#define TABLES_FP_LOST INT16_MIN
#define TABLES_OFFSET_MOST (1 << 27)

#define TABLES_RULE(kind, offset, ra, fp)                                                          \
	((uint64_t)(kind) | (uint64_t)((uint32_t)(offset) << 4) | (uint64_t)(uint16_t)(ra) << 32 | \
		(uint64_t)(uint16_t)(fp) << 48)
#define TABLES_KIND(rule) ((unsigned)((rule) & 15))
#define TABLES_OFFSET(rule) ((int64_t)((int32_t)(uint32_t)(rule) >> 4))
#define TABLES_RA(rule) ((int64_t)(int16_t)((rule) >> 32))
#define TABLES_FP_SAVED(rule) ((int64_t)(int16_t)((rule) >> 48))

_Static_assert(sizeof(struct tables_directory) == 24, "part of the layout");
_Static_assert(sizeof(struct tables_module) == 32, "part of the layout");
_Static_assert(sizeof(struct tables_blob) == 16, "part of the layout");

#endif
