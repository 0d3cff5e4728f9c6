/* SPDX-License-Identifier: BSD-2-Clause */
#include "sample/bpf/common.h"

#include <bpf/libbpf.h>

#if defined(__x86_64__)
#define USER_CODE_32 0x23 /* the code segment of 32-bit programs: arch/x86/include/asm/segment.h */

/* pt_regs -> DWARF numbers; -1: not wanted. */
static const int8_t dwarf_of[USER_REGS] = {
	15, 14, 13, 12, 6, 3, 11, 10, 9, 8, 0, 2, 1, 4, 5, -1, 16, -1, -1, 7, -1};

static bool is_32_bit(const uint64_t *regs, bool compat)
{
	return compat || (regs[USER_REG_CS] & 0xffff) == USER_CODE_32;
}
#else
static const int8_t dwarf_of[USER_REGS] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
	17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, -1};

static bool is_32_bit(const uint64_t *regs, bool compat)
{
	return compat;
}
#endif

bool bpf_user_regs(const uint64_t *regs, bool compat, struct unwind_regs *ret)
{
	if (is_32_bit(regs, compat))
		return false;
	for (size_t i = 0; i < USER_REGS; i++) {
		if (dwarf_of[i] < 0)
			continue;
		ret->value[dwarf_of[i]] = regs[i];
		ret->known |= 1ULL << dwarf_of[i];
	}
	return true;
}

static int quiet(enum libbpf_print_level level, const char *format, va_list args)
{
	return 0;
}

void bpf_keep_quiet(void)
{
	libbpf_set_print(quiet);
}
