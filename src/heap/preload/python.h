/* SPDX-License-Identifier: BSD-2-Clause */
/* Python frames in stacks of programs that run CPython. */
#ifndef SONDE_HEAP_PRELOAD_PYTHON_H
#define SONDE_HEAP_PRELOAD_PYTHON_H

#include "heap/preload/preload.h"

/* The slow part of stack_take(), where the collector says that there is a CPython: the stack `native` with the Python frames in
 * it, or `native`. The thread has a ring. */
uint32_t python_stack(struct thread *t, uint32_t native);

#endif
