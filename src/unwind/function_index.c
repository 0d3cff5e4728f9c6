/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/function_index.h"

#include <stdlib.h>
#include <string.h>

#include "unwind/arch.h"
#include "unwind/flow.h"

#define CALL_BYTES 5 /* of the longest direct call */
#define RET 0xc3     /* x86-64 */
#define CALL 0xe8

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

/* Where an instruction begins is not known: each byte that reads as a call is one. */
static void take_call_targets(
	struct function_index *x, const struct unwind_module_input *in, const struct unwind_section *s)
{
	const struct arch *arch = arch_of(in->arch);
	size_t size = s->size < FUNCTION_INDEX_TEXT_BYTES ? s->size : FUNCTION_INDEX_TEXT_BYTES;

	for (size_t i = 0; s->bytes && i + CALL_BYTES <= size; i += arch->code_align) {
		if (arch->code_align == 1) {
			const uint8_t *next = memchr(s->bytes + i, CALL, size - CALL_BYTES + 1 - i);

			if (!next)
				return;
			i = (size_t)(next - s->bytes);
		}

		uint64_t behind = s->vaddr + i + (arch->code_align == 1 ? CALL_BYTES : 4);
		struct call_site call = arch->call_before(s->bytes + i,
			arch->code_align == 1 ? CALL_BYTES : 4, behind);

		if (call.form == CALL_DIRECT && is_code(in, call.target) &&
			vec_push(&x->starts, call.target))
			return;
	}
}

/* Does an instruction that is padding end at `at`? */
static bool ends_in_padding(const struct arch *arch, const uint8_t *bytes, size_t at)
{
	for (size_t len = 1; len <= at && len < INSN_MAX; len++) {
		struct insn insn = arch->decode(bytes + at - len, len, 0);

		if (insn.len == len && insn.padding)
			return true;
	}
	return false;
}

/*
 * Instructions of odd lengths hold bytes that read as a call, e8 being a common ModRM byte. A function is
 * called from several places, or begins as functions do, or is aligned behind padding or a return.
 */
static bool is_plausible(const struct unwind_module_input *in, uint64_t vaddr, size_t calls)
{
	const struct arch *arch = arch_of(in->arch);

	if (arch->code_align > 1 || calls > 1)
		return true;
	for (size_t i = 0; i < in->text_count; i++) {
		const struct unwind_section *s = &in->text[i];
		uint64_t offset = vaddr - s->vaddr;

		if (!s->bytes || offset >= s->size)
			continue;
		if (flow_opens_frame(arch, s->bytes + offset, s->size - offset, vaddr))
			return true;
		return offset && vaddr % FLOW_FUNCTION_ALIGN == 0 &&
		       (s->bytes[offset - 1] == RET || ends_in_padding(arch, s->bytes, offset));
	}
	return false;
}

/* Aligned places that open a frame, behind padding: functions that are called through
 * pointers only. */
static void take_aligned_entries(
	struct function_index *x, const struct unwind_module_input *in, const struct unwind_section *s)
{
	const struct arch *arch = arch_of(in->arch);
	size_t size = s->size < FUNCTION_INDEX_TEXT_BYTES ? s->size : FUNCTION_INDEX_TEXT_BYTES;
	size_t at = (FLOW_FUNCTION_ALIGN - s->vaddr % FLOW_FUNCTION_ALIGN) % FLOW_FUNCTION_ALIGN;

	for (; s->bytes && at < size; at += FLOW_FUNCTION_ALIGN) {
		if (!flow_opens_frame(arch, s->bytes + at, s->size - at, s->vaddr + at))
			continue;
		if (at && arch->code_align == 1 && !ends_in_padding(arch, s->bytes, at))
			continue;
		if (vec_push(&x->starts, s->vaddr + at))
			return;
	}
}

/* Ascending, each once, those from `from` on only where they are plausible. */
static void sort_targets(struct function_starts *v, size_t from, const struct unwind_module_input *in)
{
	size_t kept = from;

	if (v->len == from)
		return;
	qsort(v->data + from, v->len - from, sizeof(v->data[0]), compare_addresses);
	for (size_t i = from, calls; i < v->len; i += calls) {
		uint64_t vaddr = v->data[i];

		for (calls = 1; i + calls < v->len && v->data[i + calls] == vaddr;)
			calls++;
		if (is_plausible(in, vaddr, calls))
			v->data[kept++] = vaddr;
	}
	v->len = kept;
}

void function_index_build(struct function_index *x, const struct unwind_module_input *input)
{
	if (x->built)
		return;
	x->built = true;
	if (input->each_function)
		input->each_function(input->functions, take_start, &x->starts);

	size_t named = x->starts.len;

	for (size_t i = 0; i < input->text_count; i++)
		take_call_targets(x, input, &input->text[i]);
	sort_targets(&x->starts, named, input);
	for (size_t i = 0; i < input->text_count; i++)
		take_aligned_entries(x, input, &input->text[i]);
	if (x->starts.len)
		qsort(x->starts.data, x->starts.len, sizeof(x->starts.data[0]), compare_addresses);
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
