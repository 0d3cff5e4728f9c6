/* SPDX-License-Identifier: BSD-2-Clause */
/* Debug files from the network, by build id (DEBUGINFOD_URLS says where). */
#ifndef SONDE_SYMBOL_DEBUGINFOD_H
#define SONDE_SYMBOL_DEBUGINFOD_H

#include "elf/elf_file.h"

/* NULL when no server has it, none is configured, or sonde was built without libdebuginfod. */
struct elf_file *debuginfod_open_debug(const struct elf_file *f);

#endif
