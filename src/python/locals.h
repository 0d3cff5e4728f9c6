/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Arguments and local variables of a frame. Nothing in the process is run: values are what its memory says.
 */
#ifndef SONDE_PYTHON_LOCALS_H
#define SONDE_PYTHON_LOCALS_H

#include "python/python.h"

#define PYTHON_MOST_LOCALS 512u /* of a frame; the others are left out */

struct python_local {
	const char *name; /* UTF-8; valid during the call */
	uint64_t value;   /* an object, for object.h */
	bool argument;    /* it was passed to the function; else the function has assigned it */
};

/* Each variable of the frame that has a value, arguments first; also those that it shares with inner and
 * outer functions. Stops and returns true when `each` does. */
bool python_locals_each(struct python *p, const struct python_frame *frame,
	bool (*each)(void *ctx, const struct python_local *local), void *ctx);

#endif
