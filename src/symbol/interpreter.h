/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which functions of CPython only carry out what Python code says, and so tell nothing beside the Python
 * frames themselves: docs/heuristics/interpreter-frames.md.
 */
#ifndef SONDE_SYMBOL_INTERPRETER_H
#define SONDE_SYMBOL_INTERPRETER_H

#include <stdbool.h>

/* What a frame of machine code is to the Python frames of its stack. Stored in recordings: values are fixed. */
enum frame_role {
	FRAME_OTHER = 0,
	FRAME_OF_RUNTIME = 1, /* in the file that holds the interpreter */
	FRAME_EVALUATES = 2,  /* it runs the Python frames that stand in front of it */
	FRAME_GENERATED = 3,  /* code without a file */
};

/* Whether a frame of that role is left out where only what tells something is shown. `function`: its name, NULL: it
 * has none. */
bool interpreter_hides(enum frame_role role, const char *function);

/* The same for what the compiler has put into a frame of that role. */
bool interpreter_hides_inlined(enum frame_role role, const char *function);

#endif
