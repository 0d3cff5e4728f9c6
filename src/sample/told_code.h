/* SPDX-License-Identifier: BSD-2-Clause */
/* Generated code that a program has named while it ran (sonde/capture.h). */
#ifndef SONDE_SAMPLE_TOLD_CODE_H
#define SONDE_SAMPLE_TOLD_CODE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/intern.h"
#include "base/vec.h"

/* Of one process; what is told beyond that is forgotten. */
#define TOLD_CODE_MOST (1u << 20)

struct told_function {
	uint64_t start, end, time_ns;
	uint32_t name; /* in `names` */
	uint32_t order;
};

/* All-zero is none. */
struct told_code {
	VEC(struct told_function) functions;
	struct intern names;
	bool sorted;
};

/* From time_ns on [start, start + bytes) is this function. 0; -ENOMEM; -ENOSPC. */
int told_code_add(struct told_code *t, uint64_t time_ns, uint64_t start, uint64_t bytes, const char *name);

/*
 * What the code at `address` was at that time: the last that was told of it until then, else the first that was told
 * later, for a program tells when the code is there. NULL: nothing was told. Valid until the next told_code_add().
 */
const char *told_code_name(struct told_code *t, uint64_t address, uint64_t time_ns);

void told_code_release(struct told_code *t);

#endif
