/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Which functions of CPython only carry out what Python code says, and so tell nothing beside the Python
 * frames themselves: docs/heuristics/interpreter-frames.md.
 */
#ifndef SONDE_SYMBOL_INTERPRETER_H
#define SONDE_SYMBOL_INTERPRETER_H

#include <stdbool.h>

/* `function` is one of the file that holds the interpreter; NULL: it has no name, and tells nothing either. */
bool interpreter_machinery(const char *function);

#endif
