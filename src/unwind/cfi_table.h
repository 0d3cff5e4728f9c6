/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The rows of one section, expanded FDE by FDE as they are asked for.
 *
 *	index      sorted starts of FDEs               8 bytes an FDE, usually the file's own
 *	slots      one word an FDE                     0: not expanded, else position and count
 *	words      rows of all expanded FDEs           one word a row
 *
 * A row is `offset << 16 | rule`: the rule that holds from `offset` bytes into the FDE up to the
 * next row. Rows ascend, and the row at offset 0 is left out where it would say rule 0, which
 * the module makes the state at the entry of a function; that saves one row in eight. FDEs of 64
 * KB and more take two words a row, offset and rule. More than ROWS_INLINE rows, or wide ones, are
 * preceded by a word of their own that counts them.
 */
#ifndef SONDE_UNWIND_CFI_TABLE_H
#define SONDE_UNWIND_CFI_TABLE_H

#include "unwind/cfi.h"
#include "unwind/fde_index.h"
#include "unwind/rule_set.h"

struct cfi_table {
	struct cfi_section section;
	struct rule_set *rules; /* the module's; rule 0 holds at function entry */
	bool go;		/* fill in the frame pointer rule the Go linker leaves out */
	bool indexed;		/* index is built; may still be empty */
	bool counted;		/* the linker's table names as many FDEs as there are */
	struct fde_index index;
	uint32_t *slots;
	uint32_t *words;
	size_t word_count, word_cap;
	size_t rows; /* expanded so far, those left out too */
	struct cfi_cie cie;
	struct cfi_runner runner;
};

/* All-zero but for section, rules and go is a table that is not indexed. Uses the linker's table
 * `hdr` where it holds. 0 or -ENOMEM, and the table is not indexed then. */
int cfi_table_index(struct cfi_table *t, const struct unwind_section *hdr);

/* The rule for an address, expanding what is needed; NULL where no FDE has one, and when memory
 * ran out (asking again tries again). */
const struct unwind_rule *cfi_table_rule(struct cfi_table *t, uint64_t vaddr);

/* Where the function that holds an address starts, as far as an FDE covers it. */
bool cfi_table_function(struct cfi_table *t, uint64_t vaddr, uint64_t *ret_start);

/* 0 or -ENOMEM. */
int cfi_table_expand_all(struct cfi_table *t);

/* Memory held, in bytes, without the rules. */
size_t cfi_table_bytes(const struct cfi_table *t);

void cfi_table_release(struct cfi_table *t);

#endif
