/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/function_index.h"

#include <stdlib.h>

#include "unwind/arch.h"

#define CALL_BYTES 5 /* of the longest direct call */

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return (x > y) - (x < y);
}

static void take_start(void *ctx, uint64_t vaddr)
{
	(void)vec_push((struct function_starts *)ctx, vaddr);
}

static bool is_code(const struct unwind_module_input *in, uint64_t vaddr)
{
	for (size_t i = 0; i < in->text_count; i++)
		if (vaddr - in->text[i].vaddr < in->text[i].size)
			return true;
	return false;
}

/* Byte by byte: where an instruction begins is not known. */
static void take_call_targets(
	struct function_index *x, const struct unwind_module_input *in, const struct unwind_section *s)
{
	const struct arch *arch = arch_of(in->arch);
	size_t size = s->size < FUNCTION_INDEX_TEXT_BYTES ? s->size : FUNCTION_INDEX_TEXT_BYTES;

	for (size_t i = CALL_BYTES; s->bytes && i <= size; i++) {
		if ((s->vaddr + i) % arch->code_align)
			continue;

		struct call_site call =
			arch->call_before(s->bytes + i - CALL_BYTES, CALL_BYTES, s->vaddr + i);

		if (call.form == CALL_DIRECT && is_code(in, call.target) &&
			vec_push(&x->starts, call.target))
			return;
	}
}

static void sort_once(struct function_starts *v)
{
	size_t kept = 0;

	if (!v->len)
		return;
	qsort(v->data, v->len, sizeof(v->data[0]), compare_addresses);
	for (size_t i = 0; i < v->len; i++)
		if (!kept || v->data[kept - 1] != v->data[i])
			v->data[kept++] = v->data[i];
	v->len = kept;
}

void function_index_build(struct function_index *x, const struct unwind_module_input *input)
{
	if (x->built)
		return;
	x->built = true;
	if (input->each_function)
		input->each_function(input->functions, take_start, &x->starts);
	for (size_t i = 0; i < input->text_count; i++)
		take_call_targets(x, input, &input->text[i]);
	sort_once(&x->starts);
}

bool function_index_before(const struct function_index *x, uint64_t vaddr, uint64_t *ret)
{
	size_t low = 0, high = x->starts.len;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (x->starts.data[mid] <= vaddr)
			low = mid + 1;
		else
			high = mid;
	}
	if (!low)
		return false;
	*ret = x->starts.data[low - 1];
	return true;
}

void function_index_release(struct function_index *x)
{
	vec_release(&x->starts);
	x->built = false;
}
