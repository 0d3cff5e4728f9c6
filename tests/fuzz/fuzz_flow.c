/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Code as bytes: every instruction ends within them, and so does every walk through them.
 *
 * Input: a byte of flags, a byte where the function starts, a byte where the pc is; the rest is code.
 */
#include <stdlib.h>

#include "unwind/arch.h"
#include "unwind/flow.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CODE 0x10000ULL

struct code {
	const uint8_t *bytes;
	size_t len;
};

static const uint8_t *read_code(void *ctx, uint64_t addr, size_t *ret_len)
{
	const struct code *c = (const struct code *)ctx;

	if (addr - CODE >= c->len)
		return NULL;
	*ret_len = c->len - (addr - CODE);
	return c->bytes + (addr - CODE);
}

static bool is_start(void *ctx, uint64_t addr)
{
	(void)ctx;
	return addr % 64 == 0;
}

static void check_shape(const struct arch *arch, const struct frame_shape *s)
{
	if (s->cfa_reg != arch->sp && s->cfa_reg != arch->fp)
		abort();
	for (unsigned i = 1; i < arch->followed_count; i++)
		if (s->regs[i].place > FLOW_LOST)
			abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_shape shape;

	if (size < 4)
		return 0;

	const struct arch *arch = data[0] & 1 ? &arch_aarch64 : &arch_x86_64;
	struct code c = {data + 3, size - 3};
	struct flow_code code = {arch, &c, read_code, data[0] & 2 ? is_start : NULL};

	for (size_t at = 0; at < c.len;) {
		struct insn insn = arch->decode(c.bytes + at, c.len - at, CODE + at);

		if (insn.len > c.len - at || insn.op > INSN_STOP)
			abort();
		at += insn.len ? insn.len : 1;
	}
	if (flow_to_return(&code, CODE + data[2], data[0] & 4, &shape))
		check_shape(arch, &shape);
	if (flow_from_start(&code, CODE + data[1], CODE + data[2], &shape))
		check_shape(arch, &shape);
	return 0;
}
