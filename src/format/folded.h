/* SPDX-License-Identifier: BSD-2-Clause */
/* The text form of one frame of a folded stack, for those who write such lines themselves. */
#ifndef SONDE_FORMAT_FOLDED_H
#define SONDE_FORMAT_FOLDED_H

#include "base/buf.h"

/* Appends `name` so that it is one frame: ';' becomes ':', control characters become spaces. */
void folded_add_name(struct buf *line, const char *name);

#endif
