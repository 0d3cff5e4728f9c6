/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as a perf map and as /proc/kallsyms; first byte says which. */
#include <stdlib.h>

#include "symbol/symbol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct symbol_source *source = NULL;

	if (!size)
		return 0;
	const char *text = (const char *)data + 1;
	int rc = data[0] & 1 ? symbol_source_kernel_text(text, size - 1, &source, NULL)
			     : symbol_source_perf_map_text(text, size - 1, &source, NULL);

	if (rc)
		return 0;
	for (uint64_t address = 0; address < 0x200; address += 3)
		symbol_resolve(source, address);
	symbol_resolve(source, UINT64_MAX);
	symbol_source_free(source);
	return 0;
}
