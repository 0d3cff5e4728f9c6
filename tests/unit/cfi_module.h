/* SPDX-License-Identifier: BSD-2-Clause */
/* Modules from call frame sections written by hand (cfi_bytes.h), and what their rules are. */
#ifndef SONDE_TESTS_UNIT_CFI_MODULE_H
#define SONDE_TESTS_UNIT_CFI_MODULE_H

#include "test.h"

#include "cfi_bytes.h"
#include "unwind/cfi.h"

#define EH 0x10000
#define HDR 0x8000
#define AT 0x1000 /* where the functions of these tests lie */

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const struct cie_spec plain = {
	.letters = "zR", .encoding = DW_EH_PE_pcrel | DW_EH_PE_sdata4};

static inline struct cfi_bytes eh_frame(void)
{
	struct cfi_bytes s = {.vaddr = EH};

	cfi_bytes_cie(&s, &plain);
	return s;
}

static inline struct unwind_module *module_of(const struct unwind_module_input *input)
{
	struct unwind_module *m = NULL;
	struct err err;

	check(!unwind_module_new(input, &m, &err));
	return m;
}

/* A module with one section; the bytes must outlive it. */
static inline struct unwind_module *module_from(const struct cfi_bytes *s)
{
	struct unwind_module_input input = {.data_base = s->data_base};

	if (s->debug)
		input.debug_frame = cfi_bytes_section(s);
	else
		input.eh_frame = cfi_bytes_section(s);
	return module_of(&input);
}

static inline void check_rule_(struct unwind_module *m, uint64_t addr, const char *want, int line)
{
	const char *got = rule_text(unwind_module_rule(m, addr));

	if (!strcmp(got, want))
		return;
	test_fail_(__FILE__, line);
	printf("rule at 0x%" PRIx64 " is \"%s\", not \"%s\"\n", addr, got, want);
}
#define check_rule(m, addr, want) check_rule_(m, addr, want, __LINE__)

#define ENTRY "7+8 16@-8"

#endif
