/* SPDX-License-Identifier: BSD-2-Clause */
/* Which FDE covers an address, and the tables of rules made from them. */
#include "cfi_module.h"

#include <errno.h>

#include "alloc_fail.h"

/* ---- finding FDEs ---- */

#define FUNCTIONS 1000

/* Functions of 0x20 bytes every 0x20 from AT on, the CFA of each telling which it is. `hdr` gets
 * a table; either may be asked to lie in `order`. */
static void many_functions(struct cfi_bytes *eh, struct cfi_bytes *hdr)
{
	*eh = eh_frame();
	*hdr = (struct cfi_bytes){.vaddr = HDR};
	cfi_bytes_hdr(hdr, eh, FUNCTIONS);
	for (unsigned i = 0; i < FUNCTIONS; i++) {
		uint64_t start = AT + 0x20 * i;
		uint8_t lo = (i & 0x7f) | 0x80, hi = (uint8_t)(i >> 7);
		size_t at = cfi_bytes_fde(eh, start, 0x20, OPS(DW_CFA_def_cfa_offset, lo, hi));

		cfi_bytes_hdr_entry(hdr, eh, start, at);
	}
}

static struct unwind_module *module_with_hdr(
	const struct cfi_bytes *eh, const struct cfi_bytes *hdr)
{
	struct unwind_module_input input = {
		.eh_frame = cfi_bytes_section(eh), .eh_frame_hdr = cfi_bytes_section(hdr)};

	return module_of(&input);
}

static void check_all_functions(struct unwind_module *m)
{
	size_t wrong = 0;

	for (unsigned i = 0; i < FUNCTIONS; i++) {
		const struct unwind_rule *first = unwind_module_rule(m, AT + 0x20 * i);
		const struct unwind_rule *last = unwind_module_rule(m, AT + 0x20 * i + 0x1f);

		wrong += !first || first != last || first->cfa_offset != (int32_t)i;
	}
	check_u64(wrong, 0);
	/* Last, because an address that is not found makes the module look for what is wrong. */
	check_rule(m, AT - 1, "none");
	check_rule(m, AT + 0x20 * FUNCTIONS, "none");
}

static size_t index_bytes(struct unwind_module *m)
{
	struct unwind_module_stats stats;

	unwind_module_stats(m, &stats);
	return stats.table_bytes;
}

TEST(the_linkers_table)
{
	struct cfi_bytes eh, hdr;

	many_functions(&eh, &hdr);

	struct unwind_module *with = module_with_hdr(&eh, &hdr), *without = module_from(&eh);

	/* It is used in place: eight bytes a function less. */
	check(index_bytes(with) + FUNCTIONS * 8 == index_bytes(without));
	check_all_functions(with);
	check_all_functions(without);
	unwind_module_free(with);
	unwind_module_free(without);
	buf_release(&eh.b);
	buf_release(&hdr.b);
}

/* Ways in which the table can lie; what is found must not depend on it. */
static void break_hdr(struct cfi_bytes *hdr, int way)
{
	uint8_t *b = (uint8_t *)hdr->b.data, *table = b + 12, swap[8];
	uint32_t wrong = 0x7fffffff, few = FUNCTIONS - 300, many = FUNCTIONS + 1;

	switch (way) {
	case 0: /* not sorted */
		memcpy(swap, table + 800, 8);
		memcpy(table + 800, table + 1600, 8);
		memcpy(table + 1600, swap, 8);
		break;
	case 1: /* an FDE outside the section */
		memcpy(table + 804, &wrong, 4);
		break;
	case 2: /* fewer than there are: the last 300 are missing */
		memcpy(b + 8, &few, 4);
		break;
	case 3: /* more than there are */
		memcpy(b + 8, &many, 4);
		break;
	case 4: /* a version we do not know */
		b[0] = 2;
		break;
	case 5: /* no table */
		b[2] = b[3] = DW_EH_PE_omit;
		break;
	case 6: /* another kind of table */
		b[3] = DW_EH_PE_absptr;
		break;
	case 7: /* one start is off by four, where opening does not look */
		table[8 * 500] += 4;
		break;
	case 8: /* all starts are */
		for (int i = 0; i < FUNCTIONS; i++)
			table[8 * i] += 4;
		break;
	case 9: /* cut off */
		hdr->b.len -= 8;
		break;
	case 11: /* one start is off by four the other way, into the function before */
		table[8 * 500] -= 4;
		break;
	case 10: /* two entries name the same FDE */
		memcpy(table + 8 * 501, table + 8 * 500, 8);
		break;
	}
}

TEST(a_table_that_lies)
{
	for (int way = 0; way <= 11; way++) {
		struct cfi_bytes eh, hdr;

		many_functions(&eh, &hdr);
		break_hdr(&hdr, way);
		for (int all = 0; all < 2; all++) {
			struct unwind_module *m = module_with_hdr(&eh, &hdr);
			int before = test_failures_;

			if (all)
				check(!unwind_module_expand_all(m));
			check_all_functions(m);
			if (test_failures_ > before)
				printf("in way %d\n", way);
			unwind_module_free(m);
		}
		buf_release(&eh.b);
		buf_release(&hdr.b);
	}
}

TEST(functions_out_of_order)
{
	struct cfi_bytes s = eh_frame();

	for (unsigned i = 0; i < 100; i++) {
		unsigned k = i * 37 % 100;

		cfi_bytes_fde(&s, AT + 0x20 * k, 0x20, OPS(DW_CFA_def_cfa_offset, (uint8_t)k));
	}

	struct unwind_module *m = module_from(&s);

	for (unsigned k = 0; k < 100; k++) {
		const struct unwind_rule *rule = unwind_module_rule(m, AT + 0x20 * k + k % 0x20);

		check(rule && rule->cfa_offset == (int32_t)k);
	}
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(functions_that_overlap)
{
	struct cfi_bytes s = eh_frame();

	cfi_bytes_fde(&s, AT, 0x100, OPS(DW_CFA_def_cfa_offset, 16));
	cfi_bytes_fde(&s, AT + 0x40, 0x20, OPS(DW_CFA_def_cfa_offset, 32));
	cfi_bytes_fde(&s, AT + 0x80, 0, OPS(DW_CFA_def_cfa_offset, 48));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 0x3f, "7+16 16@-8");
	check_rule(m, AT + 0x40, "7+32 16@-8");
	check_rule(m, AT + 0x5f, "7+32 16@-8");
	check_rule(m, AT + 0x60, "7+16 16@-8"); /* behind the inner one */
	check_rule(m, AT + 0x80, "7+16 16@-8"); /* an empty one covers nothing */
	check_rule(m, AT + 0xff, "7+16 16@-8");
	check_rule(m, AT + 0x100, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

/* Nothing covers what lies between functions, be it padding or more. */
TEST(gaps)
{
	for (uint64_t gap = 0; gap < 40; gap++) {
		struct cfi_bytes s = eh_frame();

		cfi_bytes_fde(&s, AT, 0x20, NO_OPS);
		cfi_bytes_fde(&s, AT + 0x20 + gap, 0x20, NO_OPS);

		struct unwind_module *m = module_from(&s);

		for (uint64_t i = 0; i < 0x40 + gap; i++)
			check_rule(m, AT + i, i < 0x20 || i >= 0x20 + gap ? ENTRY : "none");
		check_rule(m, AT + 0x40 + gap, "none");
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

/* Broken files have addresses anywhere; the good ones must still be found. */
TEST(addresses_all_over)
{
	struct cfi_bytes s = {.vaddr = EH};
	struct cie_spec spec = {.letters = "zR", .encoding = DW_EH_PE_udata8};

	cfi_bytes_cie(&s, &spec);
	for (unsigned i = 0; i < 9; i++)
		cfi_bytes_fde(&s, AT + 0x20 * i, 0x20, NO_OPS);
	cfi_bytes_fde(&s, 1ULL << 40, 0x20, NO_OPS);
	cfi_bytes_fde(&s, -0x1000ULL, 0x20, NO_OPS);
	cfi_bytes_fde(&s, 0, 0x20, NO_OPS);
	cfi_bytes_fde(&s, -0x10ULL, 0x20, NO_OPS); /* goes round the end of the address space */

	struct unwind_module *m = module_from(&s);

	for (unsigned i = 0; i < 9; i++)
		check_rule(m, AT + 0x20 * i, ENTRY);
	check_rule(m, 0, ENTRY);
	check_rule(m, 1ULL << 50, "none");
	check_rule(m, UINT64_MAX, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

/* 32 bits relative to the table can name addresses on the other side of 0. */
TEST(a_table_that_goes_round)
{
	struct cfi_bytes eh = {.vaddr = EH}, hdr = {.vaddr = 0x100};
	struct cie_spec spec = {.letters = "zR", .encoding = DW_EH_PE_udata8};
	static const uint64_t starts[] = {AT, AT + 0x20, -0x100ULL};

	cfi_bytes_cie(&eh, &spec);
	cfi_bytes_hdr(&hdr, &eh, COUNT(starts));
	for (size_t i = 0; i < COUNT(starts); i++)
		cfi_bytes_hdr_entry(
			&hdr, &eh, starts[i], cfi_bytes_fde(&eh, starts[i], 0x20, NO_OPS));

	struct unwind_module *m = module_with_hdr(&eh, &hdr);

	check_rule(m, AT + 0x10, ENTRY);
	check_rule(m, AT + 0x30, ENTRY);
	check_rule(m, AT + 0x40, "none");
	unwind_module_free(m);
	buf_release(&eh.b);
	buf_release(&hdr.b);
}

/* ---- .debug_frame ---- */

TEST(debug_frame_fills_what_eh_frame_leaves)
{
	struct cfi_bytes eh = eh_frame(), debug = {.debug = true};
	struct cie_spec spec = {.version = 4};

	cfi_bytes_fde(&eh, AT, 0x20, NO_OPS);
	cfi_bytes_cie(&debug, &spec);
	cfi_bytes_fde(&debug, AT, 0x20, OPS(DW_CFA_def_cfa_offset, 64));
	cfi_bytes_fde(&debug, AT + 0x20, 0x20, OPS(DW_CFA_def_cfa_expression, 1, DW_OP_lit1));
	cfi_bytes_fde(
		&debug, 0, AT * 8, OPS(DW_CFA_def_cfa_offset, 72)); /* thrown away by the linker */

	struct unwind_module_input input = {
		.eh_frame = cfi_bytes_section(&eh), .debug_frame = cfi_bytes_section(&debug)};
	struct unwind_module *m = module_of(&input);

	check_rule(m, AT, ENTRY);
	check_rule(m, AT + 0x20, "expr(1) 16@-8");
	check(unwind_module_rule(m, AT + 0x20)->debug_frame);
	check(!unwind_module_rule(m, AT)->debug_frame);
	check_rule(m, AT + 0x40, "none");
	check_rule(m, 0x10, "none");
	unwind_module_free(m);
	buf_release(&eh.b);
	buf_release(&debug.b);
}

TEST(go_keeps_frame_pointers)
{
	struct cfi_bytes s = {.debug = true};
	struct cie_spec spec = {.version = 3};

	cfi_bytes_cie(&s, &spec);
	cfi_bytes_fde(&s, AT, 0x20,
		OPS(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 48, DW_CFA_advance_loc | 4,
			DW_CFA_same_value, 6, DW_CFA_advance_loc | 4, DW_CFA_restore | 6,
			DW_CFA_offset | 3, 3, DW_CFA_advance_loc | 4, DW_CFA_def_cfa_register, 6));

	struct unwind_module_input input = {.debug_frame = cfi_bytes_section(&s), .go = true};
	struct unwind_module *m = module_of(&input), *plain_c = module_from(&s);

	check_rule(m, AT, ENTRY);
	check_rule(m, AT + 4, "7+48 6@-16 16@-8");
	check_rule(m, AT + 8, "7+48 6=same 16@-8"); /* what is said is not overruled */
	check_rule(m, AT + 12, "7+48 3@-24 6@-16 16@-8");
	check_rule(m, AT + 16, "6+48 3@-24 16@-8");
	check_rule(plain_c, AT + 4, "7+48 16@-8");
	unwind_module_free(m);
	unwind_module_free(plain_c);
	buf_release(&s.b);
}

/* ---- tables ---- */

TEST(equal_rules_are_one)
{
	struct cfi_bytes s = eh_frame();
	struct unwind_module_stats stats;

	cfi_bytes_fde(&s, AT, 0x20, OPS(DW_CFA_def_cfa_offset, 16));
	cfi_bytes_fde(&s, AT + 0x20, 0x20,
		OPS(DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 16, DW_CFA_advance_loc | 1,
			DW_CFA_def_cfa_offset, 16, DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset,
			8));

	struct unwind_module *m = module_from(&s);

	check(unwind_module_rule(m, AT) == unwind_module_rule(m, AT + 0x22));
	check(unwind_module_rule(m, AT + 0x20) == unwind_module_rule(m, AT + 0x23));
	check(!unwind_module_expand_all(m));
	unwind_module_stats(m, &stats);
	check_u64(stats.fdes, 2);
	check_u64(stats.rules, 2);
	check_u64(stats.rows, 5); /* 1 + 3, and the end of the last */
	unwind_module_free(m);
	buf_release(&s.b);
}

/* A row every `step` bytes, the CFA telling which. */
static struct unwind_module *ladder(struct cfi_bytes *s, uint64_t rows, uint8_t step)
{
	struct buf ops = {0};

	for (uint64_t i = 0; i < rows; i++) {
		buf_u8(&ops, DW_CFA_def_cfa_offset);
		buf_uleb(&ops, i);
		buf_u8(&ops, DW_CFA_advance_loc1);
		buf_u8(&ops, step);
	}
	*s = eh_frame();
	cfi_bytes_fde(s, AT, rows * step, (const uint8_t *)ops.data, ops.len);
	buf_release(&ops);
	return module_from(s);
}

static void check_ladder(uint64_t rows, uint8_t step)
{
	struct cfi_bytes s;
	struct unwind_module *m = ladder(&s, rows, step);
	size_t wrong = 0;

	for (uint64_t i = 0; i < rows; i++) {
		const struct unwind_rule *first = unwind_module_rule(m, AT + i * step);
		const struct unwind_rule *last = unwind_module_rule(m, AT + i * step + step - 1);

		wrong += !first || first != last || first->cfa_offset != (int32_t)i;
	}
	check_u64(wrong, 0);
	check_rule(m, AT + rows * step, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

/* Around the number of rows that fit a slot, and around 64 KB. */
TEST(functions_of_many_rows)
{
	for (uint64_t rows = 1; rows < 80; rows++)
		check_ladder(rows, 3);
	check_ladder(5000, 1);
	check_ladder(65535 / 15, 15);
	check_ladder(65536 / 16, 16);
	check_ladder(6000, 200);
}

TEST(more_rules_than_numbers)
{
	struct cfi_bytes s;
	struct unwind_module *m = ladder(&s, 70000, 1);
	struct unwind_module_stats stats;

	check(unwind_module_rule(m, AT + 65000)->cfa_offset == 65000);
	check_rule(m, AT + 69000, "none");
	check_rule(m, AT + 8, ENTRY);
	unwind_module_stats(m, &stats);
	check_u64(stats.rules, 65535);
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(what_a_module_was_made_from)
{
	static const uint8_t code[] = {1, 2, 3, 4}, more[] = {5, 6};
	struct unwind_section text[] = {{code, 4, 0x100}, {more, 2, 0x104}, {NULL, 9, 0x200}};
	struct unwind_range roots[] = {{0x10, 0x20}};
	struct unwind_module_input input = {
		.text = text, .text_count = 3, .roots = roots, .root_count = 1, .entry = 0x77};
	struct unwind_module *m = module_of(&input), *n = module_of(&input);

	memset(text, 0, sizeof(text)); /* copied */
	memset(roots, 0, sizeof(roots));
	check(unwind_module_text(m, 0x100, 4) == code);
	check(unwind_module_text(m, 0x103, 1) == code + 3);
	check(unwind_module_text(m, 0x104, 2) == more);
	check(!unwind_module_text(m, 0x103, 2)); /* not all in one */
	check(!unwind_module_text(m, 0xff, 1));
	check(!unwind_module_text(m, 0x100, SIZE_MAX));
	check(!unwind_module_text(m, 0x200, 1));
	check_u64(unwind_module_input(m)->roots[0].end, 0x20);
	check_u64(unwind_module_input(m)->entry, 0x77);
	check(unwind_module_serial(m) && unwind_module_serial(n));
	check(unwind_module_serial(m) != unwind_module_serial(n));
	check_rule(m, 0, "none");
	unwind_module_free(m);
	unwind_module_free(n);
	unwind_module_free(NULL);
}

/* ---- memory that runs out ---- */

/* Opens and expands everything; what was found is only wrong by absence. */
static int build(const struct unwind_module_input *input)
{
	static const unsigned asked[] = {1, FUNCTIONS - 1};
	const struct unwind_rule *before[COUNT(asked)];
	struct unwind_module *m = NULL;
	int rc = unwind_module_new(input, &m, NULL);

	if (rc) {
		check(!m);
		return rc;
	}
	for (size_t i = 0; i < COUNT(asked); i++)
		before[i] = unwind_module_rule(m, AT + 0x20 * asked[i]);
	rc = unwind_module_expand_all(m);
	for (size_t i = 0; i < COUNT(asked); i++) {
		const struct unwind_rule *again = unwind_module_rule(m, AT + 0x20 * asked[i]);

		check(!before[i] || before[i]->cfa_offset == (int32_t)asked[i]);
		check(!again || again->cfa_offset == (int32_t)asked[i]);
		check(rc || (before[i] ? before[i] == again : again != NULL));
	}
	unwind_module_free(m);
	return rc;
}

TEST(no_memory)
{
	struct cfi_bytes eh, hdr, debug = {.debug = true};
	struct cie_spec spec = {.version = 4};
	struct unwind_section text = {0};
	uint64_t failed = 0;

	many_functions(&eh, &hdr);
	cfi_bytes_fde(&eh, AT + 0x40000, 0x20, OPS(DW_CFA_remember_state, DW_CFA_restore_state));
	cfi_bytes_cie(&debug, &spec);
	cfi_bytes_fde(&debug, AT + 0x80000, 0x20, OPS(DW_CFA_def_cfa_offset, 16));
	/* Without a table, with a good one, with one that misses functions. */
	for (int table = 0; table < 3; table++) {
		struct unwind_module_input input = {.eh_frame = cfi_bytes_section(&eh),
			.debug_frame = cfi_bytes_section(&debug),
			.text = &text,
			.text_count = 1};

		if (table == 2)
			break_hdr(&hdr, 2);
		if (table)
			input.eh_frame_hdr = cfi_bytes_section(&hdr);
		for (uint64_t n = 0;; n++) {
			alloc_fail_begin(n);

			int rc = build(&input);
			bool hit = alloc_fail_end();

			check(rc == 0 || rc == -ENOMEM);
			check(hit || !rc);
			failed += rc == -ENOMEM;
			if (!hit)
				break;
		}
	}
	check(failed > 40);
	buf_release(&eh.b);
	buf_release(&hdr.b);
	buf_release(&debug.b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(the_linkers_table), T(a_table_that_lies),
		T(functions_out_of_order), T(functions_that_overlap), T(gaps),
		T(addresses_all_over), T(a_table_that_goes_round),
		T(debug_frame_fills_what_eh_frame_leaves), T(go_keeps_frame_pointers),
		T(equal_rules_are_one), T(functions_of_many_rows), T(more_rules_than_numbers),
		T(what_a_module_was_made_from), T(no_memory));
}
