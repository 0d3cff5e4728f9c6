/* SPDX-License-Identifier: BSD-2-Clause */
/* Any bytes as notes of USDT probes, of either machine by the first byte; and their beginning as a weight. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "elf/probe_notes.h"
#include "heap/told.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int take(void *ctx, const struct elf_probe *p)
{
	size_t *bytes = ctx;

	*bytes += strlen(p->provider) + strlen(p->name) + strlen(p->arguments);
	if (p->count > ELF_PROBE_OPERANDS)
		abort();
	for (unsigned i = 0; i < p->count; i++)
		if (p->operands[i].kind > ELF_OPERAND_MEMORY || p->operands[i].reg > 31)
			abort();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	uint64_t base = 0x4000, numbers[3] = {0};
	size_t bytes = 0;

	if (!size)
		return 0;
	elf_probe_notes(data + 1, size - 1, data[0] & 1 ? EM_AARCH64 : EM_X86_64, data[0] & 2 ? &base : NULL, take, &bytes);
	if (bytes > size)
		abort();
	memcpy(numbers, data, size < sizeof(numbers) ? size : sizeof(numbers));
	base = heap_told_rate(numbers[0], numbers[1], numbers[2] & (HEAP_PROBE_RATE_MOST - 1));
	if (!base || base > HEAP_PROBE_RATE_MOST)
		abort();
	return 0;
}
