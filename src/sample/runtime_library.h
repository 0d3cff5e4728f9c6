/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Files that every program brings along, and that nobody looks for his mistake in: the C and C++ libraries,
 * the loader, the kernel's page.
 */
#ifndef SONDE_SAMPLE_RUNTIME_LIBRARY_H
#define SONDE_SAMPLE_RUNTIME_LIBRARY_H

#include <stdbool.h>

/* `path` may be a base name alone. */
bool runtime_library(const char *path);

/* Files of Python's standard library, in Python or not, and what calls C functions for it. `path` is a whole one. */
bool python_library(const char *path);

#endif
