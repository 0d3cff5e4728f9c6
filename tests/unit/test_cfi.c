/* SPDX-License-Identifier: BSD-2-Clause */
/* Call frame sections as bytes: instructions and entries. */
#include "cfi_module.h"

/* ---- instructions ---- */

/* Run at the start of a function, the rule that results. */
static const struct {
	const char *name;
	uint8_t ops[12];
	size_t len;
	const char *want;
} instructions[] = {
	{"nothing", {0}, 0, ENTRY},
	{"offset", OPS_(DW_CFA_offset | 6, 2), "7+8 6@-16 16@-8"},
	{"offset_extended", OPS_(DW_CFA_offset_extended, 6, 3), "7+8 6@-24 16@-8"},
	{"offset_extended_sf", OPS_(DW_CFA_offset_extended_sf, 6, 0x7e), "7+8 6@+16 16@-8"},
	{"GNU_negative_offset", OPS_(DW_CFA_GNU_negative_offset_extended, 6, 2), "7+8 6@+16 16@-8"},
	{"val_offset", OPS_(DW_CFA_val_offset, 3, 2), "7+8 3=cfa-16 16@-8"},
	{"val_offset_sf", OPS_(DW_CFA_val_offset_sf, 3, 0x7f), "7+8 3=cfa+8 16@-8"},
	{"register", OPS_(DW_CFA_register, 16, 5), "7+8 16=r5"},
	{"register outside", OPS_(DW_CFA_register, 16, 40), "7+8 16=lost"},
	{"undefined", OPS_(DW_CFA_undefined, 16), "7+8 16=lost"},
	{"same_value", OPS_(DW_CFA_same_value, 3), "7+8 3=same 16@-8"},
	{"expression", OPS_(DW_CFA_expression, 6, 2, DW_OP_breg6, 0), "7+8 6@expr(2) 16@-8"},
	{"val_expression", OPS_(DW_CFA_val_expression, 7, 2, DW_OP_breg7, 8),
		"7+8 7=expr(2) 16@-8"},
	{"vector register", OPS_(DW_CFA_offset | 17, 2), ENTRY},
	{"far register", OPS_(DW_CFA_offset_extended, 0x80, 0x08, 2), ENTRY},
	{"restore", OPS_(DW_CFA_undefined, 16, DW_CFA_restore | 16), ENTRY},
	{"restore to nothing", OPS_(DW_CFA_offset | 3, 2, DW_CFA_restore | 3), ENTRY},
	{"restore_extended", OPS_(DW_CFA_undefined, 16, DW_CFA_restore_extended, 16), ENTRY},
	{"restore a vector register", OPS_(DW_CFA_restore | 20), ENTRY},
	{"def_cfa", OPS_(DW_CFA_def_cfa, 10, 0x80, 0x01), "10+128 16@-8"},
	{"def_cfa_sf", OPS_(DW_CFA_def_cfa_sf, 6, 0x7e), "6+16 16@-8"},
	{"def_cfa_register", OPS_(DW_CFA_def_cfa_register, 6), "6+8 16@-8"},
	{"def_cfa_offset", OPS_(DW_CFA_def_cfa_offset, 24), "7+24 16@-8"},
	{"def_cfa_offset_sf", OPS_(DW_CFA_def_cfa_offset_sf, 0x7d), "7+24 16@-8"},
	{"def_cfa_expression", OPS_(DW_CFA_def_cfa_expression, 3, DW_OP_breg7, 8, DW_OP_deref),
		"expr(3) 16@-8"},
	{"register after an expression",
		OPS_(DW_CFA_def_cfa_offset, 56, DW_CFA_def_cfa_expression, 1, DW_OP_lit1,
			DW_CFA_def_cfa_register, 7),
		"7+56 16@-8"},
	{"offset after an expression",
		OPS_(DW_CFA_def_cfa_expression, 1, DW_OP_lit1, DW_CFA_def_cfa_offset, 64),
		"expr(1) 16@-8"},
	{"CFA in a vector register", OPS_(DW_CFA_def_cfa, 17, 8), "none"},
	{"CFA in one, then not", OPS_(DW_CFA_def_cfa, 17, 8, DW_CFA_def_cfa_register, 6),
		"6+8 16@-8"},
	{"GNU_args_size", OPS_(DW_CFA_GNU_args_size, 0x80, 0x01), ENTRY},
	{"registers ascend", OPS_(DW_CFA_offset | 15, 2, DW_CFA_offset | 3, 3),
		"7+8 3@-24 15@-16 16@-8"},
	{"the last word counts", OPS_(DW_CFA_offset | 3, 2, DW_CFA_offset | 3, 3),
		"7+8 3@-24 16@-8"},
	{"remember and restore",
		OPS_(DW_CFA_remember_state, DW_CFA_def_cfa_offset, 80, DW_CFA_offset | 3, 2,
			DW_CFA_restore_state),
		ENTRY},
	{"unknown instruction", OPS_(0x3a), "none"},
	{"operand cut off", OPS_(DW_CFA_def_cfa_expression, 60, 1), "none"},
	{"restore of nothing", OPS_(DW_CFA_restore_state), "none"},
	{"CFA offset beyond 31 bits", OPS_(DW_CFA_def_cfa_offset, 0x80, 0x80, 0x80, 0x80, 0x08),
		"none"},
	{"offset beyond 31 bits", OPS_(DW_CFA_offset | 3, 0x80, 0x80, 0x80, 0x80, 0x08), "none"},
	{"aarch64's on x86-64", OPS_(DW_CFA_AARCH64_negate_ra_state), "none"},
};

TEST(instructions)
{
	for (size_t i = 0; i < COUNT(instructions); i++) {
		struct cfi_bytes s = eh_frame();

		cfi_bytes_fde(&s, AT, 0x20, instructions[i].ops, instructions[i].len);

		struct unwind_module *m = module_from(&s);
		const char *got = rule_text(unwind_module_rule(m, AT + 0x10));

		if (strcmp(got, instructions[i].want))
			printf("in %s: ", instructions[i].name);
		check_str(got, instructions[i].want);
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

/* Each way to advance by 8, then a changed CFA: seven or eight bytes in makes the difference. */
TEST(advancing)
{
	static const uint8_t ways[][10] = {
		{DW_CFA_advance_loc | 8},
		{DW_CFA_advance_loc1, 8},
		{DW_CFA_advance_loc2, 8, 0},
		{DW_CFA_advance_loc4, 8, 0, 0, 0},
		{DW_CFA_MIPS_advance_loc8, 8, 0, 0, 0, 0, 0, 0, 0},
	};
	static const size_t len[] = {1, 2, 3, 5, 9};

	for (size_t i = 0; i < COUNT(ways); i++) {
		struct cfi_bytes s = eh_frame();
		uint8_t ops[16];

		memcpy(ops, ways[i], len[i]);
		memcpy(ops + len[i], (uint8_t[]){DW_CFA_def_cfa_offset, 16}, 2);
		cfi_bytes_fde(&s, AT, 0x20, ops, len[i] + 2);

		struct unwind_module *m = module_from(&s);

		check_rule(m, AT - 1, "none");
		check_rule(m, AT, ENTRY);
		check_rule(m, AT + 7, ENTRY);
		check_rule(m, AT + 8, "7+16 16@-8");
		check_rule(m, AT + 0x1f, "7+16 16@-8");
		check_rule(m, AT + 0x20, "none");
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

TEST(code_alignment_scales_advances)
{
	struct cfi_bytes s = {.vaddr = EH};
	struct cie_spec spec = plain;

	spec.code_align = 4;
	cfi_bytes_cie(&s, &spec);
	cfi_bytes_fde(&s, AT, 0x40, OPS(DW_CFA_advance_loc | 2, DW_CFA_def_cfa_offset, 16));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 7, ENTRY);
	check_rule(m, AT + 8, "7+16 16@-8");
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(set_loc_in_absolute_addresses)
{
	struct cfi_bytes s = {.vaddr = EH};
	struct cie_spec spec = {.letters = "zR", .encoding = DW_EH_PE_udata4};

	cfi_bytes_cie(&s, &spec);
	cfi_bytes_fde(
		&s, AT, 0x20, OPS(DW_CFA_set_loc, 0x08, 0x10, 0, 0, DW_CFA_def_cfa_offset, 16));
	/* backwards: the rules end there */
	cfi_bytes_fde(
		&s, AT + 0x20, 0x20, OPS(DW_CFA_advance_loc | 9, DW_CFA_set_loc, 0x28, 0x10, 0, 0));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 7, ENTRY);
	check_rule(m, AT + 8, "7+16 16@-8");
	check_rule(m, AT + 0x28, ENTRY);
	check_rule(m, AT + 0x29, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(remembered_states_nest)
{
	struct cfi_bytes s = eh_frame();

	cfi_bytes_fde(&s, AT, 0x20,
		OPS(DW_CFA_remember_state, DW_CFA_def_cfa_offset, 16, DW_CFA_remember_state,
			DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 24, DW_CFA_remember_state,
			DW_CFA_advance_loc | 1, DW_CFA_def_cfa_offset, 32, DW_CFA_advance_loc | 1,
			DW_CFA_restore_state, DW_CFA_advance_loc | 1, DW_CFA_restore_state,
			DW_CFA_advance_loc | 1, DW_CFA_restore_state, DW_CFA_advance_loc | 1,
			DW_CFA_restore_state));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT, "7+16 16@-8");
	check_rule(m, AT + 1, "7+24 16@-8");
	check_rule(m, AT + 2, "7+32 16@-8");
	check_rule(m, AT + 3, "7+24 16@-8");
	check_rule(m, AT + 4, "7+16 16@-8");
	check_rule(m, AT + 5, ENTRY);
	check_rule(m, AT + 6, "none"); /* one too many */
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(what_was_good_before_stays)
{
	struct cfi_bytes s = eh_frame();

	cfi_bytes_fde(&s, AT, 0x20,
		OPS(DW_CFA_advance_loc | 4, DW_CFA_def_cfa_offset, 16, DW_CFA_advance_loc | 4,
			0x3b));
	cfi_bytes_fde(&s, AT + 0x20, 0x20, NO_OPS);

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 3, ENTRY);
	check_rule(m, AT + 7, "7+16 16@-8");
	check_rule(m, AT + 8, "none");
	check_rule(m, AT + 0x1f, "none");
	check_rule(m, AT + 0x20, ENTRY);
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(advancing_beyond_the_function)
{
	struct cfi_bytes s = eh_frame();

	cfi_bytes_fde(&s, AT, 0x20, OPS(DW_CFA_advance_loc | 0x3f, DW_CFA_def_cfa_offset, 16));
	cfi_bytes_fde(&s, AT + 0x30, 0x20, OPS(DW_CFA_advance_loc4, 0xff, 0xff, 0xff, 0xff, 0x3b));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 0x1f, ENTRY);
	check_rule(m, AT + 0x20, "none");
	check_rule(m, AT + 0x2f, "none");
	check_rule(m, AT + 0x4f, ENTRY);
	check_rule(m, AT + 0x50, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(remembering_is_bounded)
{
	struct cfi_bytes s = eh_frame();
	uint8_t ops[1000];

	memset(ops, DW_CFA_remember_state, sizeof(ops));
	cfi_bytes_fde(&s, AT, 0x20, ops, sizeof(ops));

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT, "none");
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(aarch64)
{
	static const uint8_t ops[] = {DW_CFA_def_cfa, 31, 0};
	struct cfi_bytes s = {.vaddr = EH};
	struct cie_spec spec = plain;

	spec.ra_reg = 30;
	spec.ops = ops;
	spec.ops_len = sizeof(ops);
	cfi_bytes_cie(&s, &spec);
	cfi_bytes_fde(&s, AT, 0x20,
		OPS(DW_CFA_advance_loc | 4, DW_CFA_AARCH64_negate_ra_state, DW_CFA_def_cfa_offset,
			32, DW_CFA_offset | 29, 4, DW_CFA_offset | 30, 3, DW_CFA_advance_loc | 4,
			DW_CFA_AARCH64_negate_ra_state, 0x2c, DW_CFA_offset_extended, 72, 1));

	struct unwind_module_input input = {
		.arch = UNWIND_AARCH64, .eh_frame = cfi_bytes_section(&s)};
	struct unwind_module *m = module_of(&input);

	check_rule(m, AT, "31+0 ra=30");
	check_rule(m, AT + 4, "31+32 29@-32 30@-24 ra=30 mangled");
	check_rule(m, AT + 8, "31+32 29@-32 30@-24 ra=30 mangled"); /* twice more */
	unwind_module_free(m);
	buf_release(&s.b);
}

/* A return address column beyond the registers, as of signal trampolines, is kept all the same. */
TEST(foreign_return_address_column)
{
	static const uint8_t ops[] = {DW_CFA_def_cfa, 31, 0};
	struct cfi_bytes s = {.vaddr = EH};
	struct cie_spec spec = {.letters = "zRS", .encoding = plain.encoding, .ra_reg = 96};

	spec.ops = ops;
	spec.ops_len = sizeof(ops);
	cfi_bytes_cie(&s, &spec);
	cfi_bytes_fde(&s, AT, 0x20, OPS(DW_CFA_offset_extended, 96, 2));

	struct unwind_module_input input = {
		.arch = UNWIND_AARCH64, .eh_frame = cfi_bytes_section(&s)};
	struct unwind_module *m = module_of(&input);

	check_rule(m, AT, "31+0 96@-16 ra=96 signal");
	unwind_module_free(m);
	buf_release(&s.b);
}

/* ---- entries ---- */

TEST(pointer_encodings)
{
	static const uint8_t encodings[] = {
		DW_EH_PE_absptr,
		DW_EH_PE_udata2,
		DW_EH_PE_udata4,
		DW_EH_PE_udata8,
		DW_EH_PE_sdata2,
		DW_EH_PE_sdata4,
		DW_EH_PE_sdata8,
		DW_EH_PE_uleb128,
		DW_EH_PE_pcrel | DW_EH_PE_sdata4,
		DW_EH_PE_pcrel | DW_EH_PE_sdata8,
		DW_EH_PE_pcrel | DW_EH_PE_absptr,
		DW_EH_PE_datarel | DW_EH_PE_sdata4,
		DW_EH_PE_datarel | DW_EH_PE_sdata2,
		DW_EH_PE_textrel | DW_EH_PE_udata4,
		DW_EH_PE_indirect | DW_EH_PE_pcrel | DW_EH_PE_sdata4,
	};

	for (size_t i = 0; i < COUNT(encodings); i++) {
		struct cfi_bytes s = {.vaddr = EH, .data_base = 0xf00};
		struct cie_spec spec = {.letters = "zR", .encoding = encodings[i]};

		cfi_bytes_cie(&s, &spec);
		cfi_bytes_fde(&s, AT, 0x20, NO_OPS);

		struct unwind_module *m = module_from(&s);

		if (!unwind_module_rule(m, AT))
			printf("encoding 0x%x: ", encodings[i]);
		check_rule(m, AT - 1, "none");
		check_rule(m, AT, ENTRY);
		check_rule(m, AT + 0x1f, ENTRY);
		check_rule(m, AT + 0x20, "none");
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

TEST(encoded_values)
{
	static const struct {
		uint8_t encoding, bytes[10];
		size_t len;
		uint64_t at, want;
		size_t used;
	} cases[] = {
		{DW_EH_PE_sleb128, OPS_(0x7e), 0, (uint64_t)-2, 1},
		{DW_EH_PE_sdata2 | DW_EH_PE_pcrel, OPS_(0xf0, 0xff), 0x100, 0xf0, 2},
		{DW_EH_PE_aligned, OPS_(0, 0, 9, 0, 0, 0, 0, 0, 0, 0), 0x106, 9, 10},
		{DW_EH_PE_udata4 | DW_EH_PE_funcrel, OPS_(1, 0, 0, 0), 0, 1, 0},
		{0x05, OPS_(1, 0, 0, 0), 0, 0, 0},
		{DW_EH_PE_udata8, OPS_(1, 0, 0, 0), 0, 0, 0},
	};

	for (size_t i = 0; i < COUNT(cases); i++) {
		struct cursor c = cursor_over(cases[i].bytes, cases[i].len);
		uint64_t got = cfi_read_encoded(&c, cases[i].encoding, cases[i].at, 0);

		check(c.bad == !cases[i].used);
		if (!c.bad)
			check_u64(got, cases[i].want);
		if (!c.bad)
			check_u64(c.at - cases[i].bytes, cases[i].used);
	}
}

/* Kinds of CIE, and whether functions that use them get rules. */
static const struct {
	const char *name;
	struct cie_spec spec;
	bool debug;
	const char *want;
} cies[] = {
	{"version 1", {.version = 1, .encoding = 0}, false, ENTRY},
	{"version 3", {.version = 3}, false, ENTRY},
	{"version 2", {.version = 2}, false, "none"},
	{"version 5", {.version = 5}, false, "none"},
	{"debug version 1", {.version = 1}, true, ENTRY},
	{"debug version 3", {.version = 3}, true, ENTRY},
	{"debug version 4", {.version = 4}, true, ENTRY},
	{"debug, 4-byte addresses", {.version = 4, .addr_size = 4}, true, ENTRY},
	{"debug, 3-byte addresses", {.version = 4, .addr_size = 3}, true, "none"},
	{"debug, segments", {.version = 4, .segment_size = 2}, true, "none"},
	{"eh", {.letters = "eh"}, false, ENTRY},
	{"letters we do not know", {.letters = "armcc+"}, false, "none"},
	{"signal frame", {.letters = "zRS", .encoding = 0}, false, ENTRY " signal"},
	{"data letters in another order",
		{.letters = "zPLR",
			.data = (const uint8_t[]){0x9b, 1, 2, 3, 4, 0x1b, 0x04},
			.data_len = 7,
			.encoding = DW_EH_PE_udata8},
		false, ENTRY},
	{"keys and tags of aarch64", {.letters = "zRBG", .encoding = DW_EH_PE_udata4}, false,
		ENTRY},
	{"letters behind those we know",
		{.letters = "zRx",
			.data = (const uint8_t[]){DW_EH_PE_udata4, 7, 7},
			.data_len = 3,
			.encoding = DW_EH_PE_udata4},
		false, ENTRY},
	{"instructions we do not know",
		{.ops = (const uint8_t[]){DW_CFA_def_cfa, 7, 8, 0x3a}, .ops_len = 4}, false,
		"none"},
	{"data cut off", {.letters = "zPR", .data = (const uint8_t[]){0x00, 1}, .data_len = 2},
		false, "none"},
};

TEST(kinds_of_cie)
{
	for (size_t i = 0; i < COUNT(cies); i++) {
		struct cfi_bytes s = {.vaddr = cies[i].debug ? 0 : EH, .debug = cies[i].debug};

		cfi_bytes_cie(&s, &cies[i].spec);
		cfi_bytes_fde(&s, AT, 0x20, NO_OPS);

		struct unwind_module *m = module_from(&s);

		if (strcmp(rule_text(unwind_module_rule(m, AT)), cies[i].want))
			printf("in %s: ", cies[i].name);
		check_rule(m, AT, cies[i].want);
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

TEST(the_64_bit_format)
{
	for (int kind = 0; kind < 3; kind++) {
		struct cfi_bytes s = {.wide = true, .debug = kind == 2};
		struct cie_spec spec = {.id_size = kind == 1 ? 8 : 4};

		cfi_bytes_cie(&s, &spec);
		cfi_bytes_fde(&s, AT, 0x20, OPS(DW_CFA_def_cfa_offset, 16));
		s.wide = kind == 1; /* formats may be mixed */
		cfi_bytes_cie(&s, &spec);
		cfi_bytes_fde(&s, AT + 0x20, 0x20, NO_OPS);

		struct unwind_module *m = module_from(&s);

		check_rule(m, AT, "7+16 16@-8");
		check_rule(m, AT + 0x20, ENTRY);
		unwind_module_free(m);
		buf_release(&s.b);
	}
}

TEST(a_terminator_in_the_middle)
{
	struct cfi_bytes s = eh_frame();

	cfi_bytes_fde(&s, AT, 0x20, NO_OPS);
	buf_u32(&s.b, 0);
	buf_u32(&s.b, 0);
	cfi_bytes_cie(&s, &plain);
	cfi_bytes_fde(&s, AT + 0x20, 0x20, NO_OPS);
	buf_u32(&s.b, 0);

	struct unwind_module *m = module_from(&s);

	check_rule(m, AT + 0x1f, ENTRY);
	check_rule(m, AT + 0x3f, ENTRY);
	unwind_module_free(m);
	buf_release(&s.b);
}

TEST(sections_cut_off_anywhere)
{
	struct cfi_bytes s = eh_frame();
	size_t covered = 0;

	cfi_bytes_fde(&s, AT, 0x20, OPS(DW_CFA_def_cfa_offset, 16));
	cfi_bytes_fde(&s, AT + 0x20, 0x20, OPS(DW_CFA_def_cfa_offset, 16));
	for (size_t len = 0; len <= s.b.len; len++) {
		uint8_t *bytes = malloc(len ? len : 1); /* so that reading past the end is seen */

		memcpy(bytes, s.b.data, len);

		struct unwind_module_input input = {
			.eh_frame = {.bytes = bytes, .size = len, .vaddr = EH}};
		struct unwind_module *m = module_of(&input);

		covered += unwind_module_rule(m, AT) != NULL;
		covered += unwind_module_rule(m, AT + 0x20) != NULL;
		unwind_module_free(m);
		free(bytes);
	}
	/* Only whole entries count: the first from its end on, both at the very end. */
	check(covered > 1 && covered < s.b.len / 2);
	buf_release(&s.b);
}

int main(int argc, char **argv)
{
	return test_main(argc, argv, T(instructions), T(advancing),
		T(code_alignment_scales_advances), T(set_loc_in_absolute_addresses),
		T(remembered_states_nest), T(what_was_good_before_stays),
		T(advancing_beyond_the_function), T(remembering_is_bounded), T(aarch64),
		T(foreign_return_address_column), T(pointer_encodings), T(encoded_values),
		T(kinds_of_cie), T(the_64_bit_format), T(a_terminator_in_the_middle),
		T(sections_cut_off_anywhere));
}
