/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Ranges of addresses that do not overlap, each with a number: what a process has mapped. Cutting one in the middle makes
 * two of it. At most RANGES_MOST of them; the kernel allows a process 65,530 unless it is told otherwise.
 */
#ifndef SONDE_HEAP_RANGES_H
#define SONDE_HEAP_RANGES_H

#include <stdint.h>

#include "base/vec.h"

#define RANGES_MOST (1u << 18)

struct range {
	uint64_t start, end; /* [start, end), not empty */
	uint32_t number;
	uint32_t pad;
};
VEC_TYPE(ranges, struct range);

/* 0; -EEXIST: some of it is there already; -EINVAL: it is empty; -ENOSPC: there are too many; -ENOMEM. */
int ranges_add(struct ranges *r, uint64_t start, uint64_t end, uint32_t number);

/* Takes out whatever lies in [start, end): it is added to `ret`, in order. 0; -ENOMEM, -ENOSPC: nothing has changed. */
int ranges_cut(struct ranges *r, uint64_t start, uint64_t end, struct ranges *ret);

#endif
