/* SPDX-License-Identifier: BSD-2-Clause */
/* Debug files from the network, by build id (DEBUGINFOD_URLS says where). */
#ifndef SONDE_SYMBOL_DEBUGINFOD_H
#define SONDE_SYMBOL_DEBUGINFOD_H

#include <stdbool.h>

#include "elf/elf_file.h"

/* Whether libdebuginfod is on this machine; loads it. Not to be called from two threads at once. */
bool debuginfod_is_there(void);

/* NULL when no server has it, none is configured, or libdebuginfod is not there. */
struct elf_file *debuginfod_open_debug(const struct elf_file *f);

#endif
