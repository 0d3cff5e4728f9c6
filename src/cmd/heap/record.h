/* SPDX-License-Identifier: BSD-2-Clause */
/* sonde heap -- CMD: records what a program allocates, from its first call on. */
#ifndef SONDE_CMD_HEAP_RECORD_H
#define SONDE_CMD_HEAP_RECORD_H

#include <stdbool.h>

/* Where `sonde heap` writes when no file is named. */
#define DEFAULT_HEAP_RECORDING "heap.sonde"

/* Whether the command line is one of these: it has a command behind "--", or one of their options. */
bool heap_record_is_meant(int argc, char **argv);

/* Returns an exit status. argv[0] is "heap". */
int heap_record(int argc, char **argv);
void heap_record_help(void);

#endif
