/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/jit_unwind.h"

#include "unwind/cfi.h"
#include "unwind/table.h"

#define PE_APPLICATION 0x70u /* DW_EH_PE_: what a pointer counts from */
#define PE_PCREL 0x10u

static enum unwind_arch our_arch(void)
{
#if defined(__aarch64__)
	return UNWIND_AARCH64;
#else
	return UNWIND_X86_64;
#endif
}

/* A table of entries begins with a CIE: a length that fits, and 0. */
static bool starts_with_cie(const uint8_t *bytes, size_t size)
{
	struct cursor c = cursor_over(bytes, size);
	uint32_t length = cursor_u32(&c), id = cursor_u32(&c);

	return !c.bad && length && length <= size - 4 && !id;
}

/* The table among the `size` bytes: the header, which nobody needs for one function, stands behind it
 * in the files that V8 and CPython write, and before it in the words of the specification. */
static bool find_table(const struct jit_unwind_input *in, struct unwind_section *ret)
{
	size_t size = in->unwind_bytes - in->hdr_bytes;

	if (starts_with_cie(in->unwind, size))
		*ret = (struct unwind_section){in->unwind, size, 0};
	else if (starts_with_cie(in->unwind + in->hdr_bytes, size))
		*ret = (struct unwind_section){in->unwind + in->hdr_bytes, size, 0};
	else
		return false;
	return true;
}

/*
 * Sets the address of the table. Where it lies in memory behind the code depends on who wrote it, but
 * its first entry describes this function and counts from its own place: so that place is where it
 * leads to the start of the function. False when it counts from something else.
 */
static bool place_table(struct unwind_section *table, uint64_t function)
{
	struct cfi_section s = {
		.bytes = table->bytes,
		.size = table->size,
		.vaddr = function,
		.arch = our_arch(),
	};
	struct cfi_cie cie = {.offset = UINT64_MAX};
	struct cfi_fde fde;
	uint64_t offset = 0, at = 0;
	enum cfi_entry entry;

	while ((entry = cfi_next(&s, &offset, &at)) == CFI_CIE)
		;
	if (entry != CFI_FDE || !cfi_read_fde(&s, at, &cie, &fde) ||
		(cie.encoding & PE_APPLICATION) != PE_PCREL)
		return false;
	table->vaddr = function + (function - fde.start);
	return true;
}

struct unwind_module *jit_unwind_new(const struct jit_unwind_input *in)
{
	struct unwind_section text = {in->code, in->code_bytes, in->address};
	struct unwind_module_input input = {.arch = our_arch(), .text = &text, .text_count = 1};
	struct unwind_module *m = NULL;
	uint64_t start;

	if (!find_table(in, &input.eh_frame) || !place_table(&input.eh_frame, in->address) ||
		unwind_module_new(&input, &m, NULL))
		return NULL;
	if (unwind_module_function(m, in->address, &start))
		return m;
	unwind_module_free(m);
	return NULL;
}
