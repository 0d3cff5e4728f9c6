/* SPDX-License-Identifier: BSD-2-Clause */
/* Names for the stubs of the procedure linkage table, which have no symbols: "malloc@plt". */
#ifndef SONDE_SYMBOL_PLT_H
#define SONDE_SYMBOL_PLT_H

#include "symbol/name_table.h"
#include "symbol/symbol_priv.h"

/* Calls `add` for each stub whose target is known. `names` answers for the resolvers of IFUNCs.
 * 0 or what `add` returned. */
int plt_each_stub(struct symbol_source *s, struct elf_file *f, const struct name_table *names,
	int (*add)(void *ctx, const struct elf_symbol *sym), void *ctx);

#endif
