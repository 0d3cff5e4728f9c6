/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * pc -> rule for one module: what cfi.c fills and walk.c asks.
 *
 * An FDE's rows are expanded the first time an address in it is asked for, at 4 bytes a row
 * (cfi_table.h). Rules are interned per module. .eh_frame is asked first; .debug_frame, where there
 * is one, for what it does not cover.
 */
#ifndef SONDE_UNWIND_TABLE_H
#define SONDE_UNWIND_TABLE_H

#include <stdint.h>

#include "unwind/rule.h"

/* The rule that covers module address `vaddr`, or NULL where no FDE covers it. For a return
 * address pass vaddr - 1. The pointer stays valid until unwind_module_free(). */
const struct unwind_rule *unwind_module_rule(struct unwind_module *m, uint64_t vaddr);

/* Where the function that holds `vaddr` starts, as far as call frame information covers it: known
 * in stripped files too. For a return address pass vaddr - 1. */
bool unwind_module_function(struct unwind_module *m, uint64_t vaddr, uint64_t *ret_start);

/* What the module was made from. */
const struct unwind_module_input *unwind_module_input(const struct unwind_module *m);

/* `len` bytes of code or data of the file at module address `vaddr`, NULL when they are not all
 * inside one of the text sections. */
const uint8_t *unwind_module_text(const struct unwind_module *m, uint64_t vaddr, size_t len);

/* All bytes of the text section that holds `vaddr`, from there on; NULL when none does. */
const uint8_t *unwind_module_code(const struct unwind_module *m, uint64_t vaddr, size_t *ret_len);

/* The last start of a function at or below `vaddr`, in code that call frame information leaves out
 * (function_index.h). The first question may take a tenth of a second. */
bool unwind_module_named_start(struct unwind_module *m, uint64_t vaddr, uint64_t *ret);

/* A small number that is unique among living modules and never reused while one lives; never 0. */
uint32_t unwind_module_serial(const struct unwind_module *m);

#endif
