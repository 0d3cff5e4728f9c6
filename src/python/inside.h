/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which `with` statements a frame is inside of, and of which objects.
 *
 * On entering a `with` the interpreter keeps its __exit__ on the frame's value stack until it is left. How deep that
 * stack is while a frame runs is not written down; the exception table (from 3.11 on) and the block
 * stack (before) say how much of it outlives an exception at this instruction, and that is all that counts:
 * what lies above may be stale. docs/heuristics/python-locks.md.
 */
#ifndef SONDE_PYTHON_INSIDE_H
#define SONDE_PYTHON_INSIDE_H

#include "python/python.h"

#define PYTHON_MOST_INSIDE 20u /* `with` statements of one frame; the outermost ones are left out */

struct python_inside {
	uint64_t object;  /* whose __exit__ is to be called */
	uint32_t line;    /* of the statement; 0: not known */
};

/*
 * The statements that the frame is inside of, innermost first, as far as their __exit__ is a method
 * of an object; how many. One whose __enter__ or __exit__ runs now is not among them.
 */
size_t python_inside(struct python *p, const struct python_frame *frame, struct python_inside *ret, size_t limit);

/* Each object that a frame refers to by its variables and its value stack, also the part of that which is
 * not in use any more: to be compared with something known. Stops and returns true when `each` does. */
bool python_slots_each(struct python *p, const struct python_frame *frame,
	bool (*each)(void *ctx, uint64_t object), void *ctx);

/* The frame of a generator or coroutine that does not run now; false: it runs, has ended, or is none. */
bool python_generator_frame(struct python *p, uint64_t generator, struct python_frame *ret);

/* `self` of a bound method, of a C function or a Python one; 0: it is neither. */
uint64_t python_method_self(struct python *p, uint64_t object);

/* ---- exception tables (CPython's Objects/exception_handling_notes.txt), of foreign bytes ---- */

struct python_handler {
	uint32_t start, end, target; /* bytes of the bytecode: [start, end) */
	uint32_t depth;              /* so many values are kept */
};

/* The entry that holds an instruction; false: there is none, or the table makes no sense. */
bool python_handler_find(const uint8_t *table, size_t len, uint32_t offset, struct python_handler *ret);

/* Up to 3.10: where the SETUP_WITH or SETUP_ASYNC_WITH is whose handler is at `target`; false: there is none.
 * `units`: bytes that the argument of a jump counts, 1 or 2 (3.10). */
bool python_setup_with_find(const uint8_t *bytecode, size_t len, unsigned units, uint32_t target,
	uint32_t *ret_offset);

#endif
