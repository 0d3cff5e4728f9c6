/* SPDX-License-Identifier: BSD-2-Clause */
/* Code objects: what they are called, and which lines their instructions are of. */
#ifndef SONDE_PYTHON_CODE_H
#define SONDE_PYTHON_CODE_H

#include "python/line_table.h"

struct python_codes;

/*
 * The code object at an address. It is read once, and compared with what stands there now once
 * after each python_refresh(); where something else stands, that is a new one with a serial of its own. NULL in
 * *ret: there is no code object. -ENOMEM.
 */
int python_code(struct python *p, uint64_t address, const struct python_code **ret);

/* Of an instruction of a code object that python_code() gave, in bytes from the start of its bytecode. */
struct python_position python_code_position(const struct python_code *code, int32_t offset);

/* How many bytes of bytecode it has; 0: not known (to 3.10). */
uint32_t python_code_bytes(const struct python_code *code);

void python_codes_free(struct python_codes *codes);

#endif
