/* SPDX-License-Identifier: BSD-2-Clause */
/* A module: the tables of its sections, its rules, and copies of what it was made from. */
#include "unwind/table.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "unwind/cfi_table.h"
#include "unwind/function_index.h"

struct unwind_module {
	struct unwind_module_input input;
	struct unwind_section *text;
	struct unwind_range *roots;
	uint32_t serial;
	struct rule_set rules;
	struct cfi_table eh, debug;
	struct function_index functions;
};

static const struct unwind_section no_hdr;

/* Rule 0, which rows at the start of a function need not spell out: the state that a call leaves
 * behind on this architecture, as CIEs say it. */
static int add_entry_rule(struct unwind_module *m)
{
	struct unwind_rule rule = {.cfa_kind = CFA_REG_OFFSET};
	uint16_t number;

	if (m->input.arch == UNWIND_X86_64) {
		rule.cfa_reg = UNWIND_X86_RSP;
		rule.cfa_offset = 8;
		rule.ra_reg = UNWIND_X86_PC;
		rule.reg_count = 1;
		rule.regs[0] =
			(struct reg_rule){.reg = UNWIND_X86_PC, .kind = REG_AT_CFA, .offset = -8};
	} else {
		rule.cfa_reg = UNWIND_A64_SP;
		rule.ra_reg = UNWIND_A64_LR;
	}
	return rule_set_add(&m->rules, &rule, &number);
}

static int copy_array(void *ret, const void *from, size_t count, size_t elem_bytes)
{
	size_t bytes;

	if (!count)
		return 0;
	if (__builtin_mul_overflow(count, elem_bytes, &bytes))
		return -ENOMEM;

	void *copy = malloc(bytes);

	if (!copy)
		return -ENOMEM;
	memcpy(copy, from, bytes);
	memcpy(ret, &copy, sizeof(copy));
	return 0;
}

static void set_section(
	struct unwind_module *m, struct cfi_table *t, const struct unwind_section *from, bool debug)
{
	t->section = (struct cfi_section){
		.bytes = from->bytes,
		.size = from->bytes ? from->size : 0,
		.vaddr = from->vaddr,
		.data_base = m->input.data_base,
		.arch = m->input.arch,
		.debug = debug,
	};
	t->rules = &m->rules;
	t->go = m->input.go && debug;
}

static uint32_t next_serial(void)
{
	static _Atomic uint32_t last;
	uint32_t serial;

	do
		serial = atomic_fetch_add(&last, 1) + 1;
	while (!serial);
	return serial;
}

static int fill(struct unwind_module *m, const struct unwind_module_input *input)
{
	m->input = *input;
	m->serial = next_serial();
	if (copy_array(&m->text, input->text, input->text_count, sizeof(*m->text)) ||
		copy_array(&m->roots, input->roots, input->root_count, sizeof(*m->roots)))
		return -ENOMEM;
	m->input.text = m->text;
	m->input.roots = m->roots;
	set_section(m, &m->eh, &input->eh_frame, false);
	set_section(m, &m->debug, &input->debug_frame, true);
	if (add_entry_rule(m) || cfi_table_index(&m->eh, &input->eh_frame_hdr))
		return -ENOMEM;
	return m->eh.index.count ? 0 : cfi_table_index(&m->debug, &no_hdr);
}

int unwind_module_new(
	const struct unwind_module_input *input, struct unwind_module **ret, struct err *err)
{
	struct unwind_module *m = calloc(1, sizeof(*m));

	if (!m)
		return err_nomem(err);
	if (fill(m, input)) {
		unwind_module_free(m);
		return err_nomem(err);
	}
	*ret = m;
	return 0;
}

void unwind_module_free(struct unwind_module *m)
{
	if (!m)
		return;
	cfi_table_release(&m->eh);
	cfi_table_release(&m->debug);
	rule_set_release(&m->rules);
	function_index_release(&m->functions);
	free(m->text);
	free(m->roots);
	free(m);
}

/* An index that was not wanted so far, or that memory ran out for. 0 or -ENOMEM. */
static int need_index(struct cfi_table *t)
{
	return t->indexed ? 0 : cfi_table_index(t, &no_hdr);
}

/* Most files have a .debug_frame that repeats a part of .eh_frame, or none, so it is not touched
 * before an address asks for it. */
const struct unwind_rule *unwind_module_rule(struct unwind_module *m, uint64_t vaddr)
{
	const struct unwind_rule *rule = NULL;

	if (!need_index(&m->eh))
		rule = cfi_table_rule(&m->eh, vaddr);
	if (!rule && m->debug.section.size && !need_index(&m->debug))
		rule = cfi_table_rule(&m->debug, vaddr);
	return rule;
}

bool unwind_module_function(struct unwind_module *m, uint64_t vaddr, uint64_t *ret_start)
{
	return cfi_table_function(&m->eh, vaddr, ret_start) ||
	       cfi_table_function(&m->debug, vaddr, ret_start);
}

int unwind_module_expand_all(struct unwind_module *m)
{
	int err = need_index(&m->eh);

	if (!err)
		err = need_index(&m->debug);
	if (!err)
		err = cfi_table_expand_all(&m->eh);
	return err ? err : cfi_table_expand_all(&m->debug);
}

void unwind_module_stats(const struct unwind_module *m, struct unwind_module_stats *ret)
{
	*ret = (struct unwind_module_stats){
		.fdes = m->eh.index.count + m->debug.index.count,
		.rows = m->eh.rows + m->debug.rows,
		.rules = m->rules.count,
		.table_bytes = cfi_table_bytes(&m->eh) + cfi_table_bytes(&m->debug) +
			       rule_set_bytes(&m->rules) +
			       m->functions.starts.cap * sizeof(uint64_t),
	};
}

const struct unwind_module_input *unwind_module_input(const struct unwind_module *m)
{
	return &m->input;
}

uint32_t unwind_module_serial(const struct unwind_module *m)
{
	return m->serial;
}

const uint8_t *unwind_module_code(const struct unwind_module *m, uint64_t vaddr, size_t *ret_len)
{
	for (size_t i = 0; i < m->input.text_count; i++) {
		const struct unwind_section *s = &m->input.text[i];

		if (!s->bytes || vaddr - s->vaddr >= s->size)
			continue;
		*ret_len = s->size - (vaddr - s->vaddr);
		return s->bytes + (vaddr - s->vaddr);
	}
	return NULL;
}

bool unwind_module_named_start(struct unwind_module *m, uint64_t vaddr, uint64_t *ret)
{
	function_index_build(&m->functions, &m->input);
	return function_index_before(&m->functions, vaddr, ret);
}

const uint8_t *unwind_module_text(const struct unwind_module *m, uint64_t vaddr, size_t len)
{
	for (size_t i = 0; i < m->input.text_count; i++) {
		const struct unwind_section *s = &m->input.text[i];
		uint64_t offset = vaddr - s->vaddr;

		if (s->bytes && vaddr >= s->vaddr && offset <= s->size && len <= s->size - offset)
			return s->bytes + offset;
	}
	return NULL;
}
