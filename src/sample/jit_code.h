/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Generated code that a jitdump describes, as the unwinder wants it.
 *
 * The dump is the very file that the process maps to announce it, owned by the user it runs as. What
 * it says is believed of an address only while the process has the same bytes there: compilers write
 * their dumps through buffers, and the code may be newer than what has arrived in the file.
 */
#ifndef SONDE_SAMPLE_JIT_CODE_H
#define SONDE_SAMPLE_JIT_CODE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "os/proc.h"
#include "symbol/jitdump.h"
#include "unwind/unwind.h"

struct jit_code;

/* -ENOENT: the mapping is not of a jitdump, by its name. -EPERM: not the user's own file. Other
 * -errno as proc_open_mapped_file(). */
int jit_code_open(pid_t pid, const struct proc_mapping *m, struct jit_code **ret, struct err *err);

/* After the unwinder that was given its modules. */
void jit_code_free(struct jit_code *c);

struct jitdump *jit_code_dump(const struct jit_code *c);

/* One function, where it lies; address - bias = offset in the dump. */
struct jit_function {
	uint64_t start, end, bias;
	struct unwind_module *unwind; /* NULL: it says nothing about that; lives as long as `c` */
};

/* The function that holds `addr` of `pid` at that time. False when that is not known now. */
bool jit_code_find(struct jit_code *c, pid_t pid, uint64_t addr, uint64_t time_ns,
	struct jit_function *ret);

#endif
