/* SPDX-License-Identifier: BSD-2-Clause */
/* What a program calls its threads: the names of threading.Thread objects. */
#ifndef SONDE_PYTHON_THREAD_NAMES_H
#define SONDE_PYTHON_THREAD_NAMES_H

#include "python/python.h"

#define PYTHON_MOST_NAMES 65536u

/* The threads that the module "threading" of an interpreter knows, by pthread_t. Names are UTF-8 and valid during the
 * call. Nothing where the module was not imported. */
void python_thread_names(struct python *p, uint64_t interpreter,
	void (*each)(void *ctx, uint64_t pthread, const char *name), void *ctx);

#endif
