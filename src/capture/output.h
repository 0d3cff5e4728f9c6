/* SPDX-License-Identifier: BSD-2-Clause */
/* Where a recording goes: opening a path without surprises, and writing all of something. */
#ifndef SONDE_CAPTURE_OUTPUT_H
#define SONDE_CAPTURE_OUTPUT_H

#include <stddef.h>

#include "base/err.h"

/* A descriptor for capture_writer_create()'s path, by the rules written there; or -errno. */
int output_open(const char *path, struct err *err);

/* A new file, never in place of another: -EEXIST. */
int output_create(const char *path, struct err *err);

/* All `len` bytes, whatever signals and short writes come between; `name` is for the message. */
int output_write(int fd, const char *name, const void *bytes, size_t len, struct err *err);

#endif
