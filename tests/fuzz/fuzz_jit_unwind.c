/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as the unwind information of a generated function; the first two say how long the function
 * and the header are. */
#include <stdlib.h>
#include <string.h>

#include "sample/jit_unwind.h"
#include "unwind/table.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const uint8_t code[256];

	if (size < 2)
		return 0;

	uint8_t *copy = malloc(size - 2);
	struct jit_unwind_input in = {
		.code = code,
		.code_bytes = (size_t)data[0] + 1,
		.address = 0x1234,
		.unwind = memcpy(copy, data + 2, size - 2),
		.unwind_bytes = size - 2,
		.hdr_bytes = data[1] < size - 2 ? data[1] : size - 2,
	};
	struct unwind_module *m = jit_unwind_new(&in);

	for (size_t i = 0; m && i < in.code_bytes; i++)
		unwind_module_rule(m, in.address + i);
	unwind_module_free(m);
	free(copy);
	return 0;
}
