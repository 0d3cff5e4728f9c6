/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares our reading of call frame information with libdw's, row by row.
 *
 *	cfi_verify [--self] PATH...      files, and all files below directories
 *
 * For every FDE of every ELF file, and every row that libdw sees in it: the CFA, each general
 * register and the return address, at the first, middle and last address of the row; the return
 * address column and the signal flag; and that nothing covers the first address behind an FDE
 * that no other FDE starts at. Expressions are compared by value: ours by src/unwind/expr.c,
 *libdw's operations by a second evaluator here, on made-up registers and memory.
 *
 * Differences have a kind. Those of the kinds listed as explained are libdw's doing and do not
 * count against the exit status; every other difference makes it 1.
 */
#include <dwarf.h>
#include <elfutils/libdw.h>
#include <ftw.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/hash.h"
#include "base/vec.h"
#include "bench/cfi_file.h"
#include "unwind/cfi.h"
#include "unwind/expr.h"
#include "unwind/table.h"

#define SHOWN_PER_FILE 5
#define MADE_UP_STATES 4

enum difference {
	DIFF_NONE,
	DIFF_COVERAGE, /* one has a rule, the other none */
	DIFF_BOUNDS,   /* our rule changes inside a row of libdw's */
	DIFF_COLUMN,   /* return address column or signal flag */
	DIFF_CFA,
	DIFF_REGISTER,
	DIFF_UNCHECKED, /* an operation that the second evaluator does not know */
	DIFF_HALF_CFA,
	DIFF_TERMINATOR,
	DIFF_KINDS,
};

static const struct {
	const char *name, *explanation;
} kinds[DIFF_KINDS] = {
	[DIFF_COVERAGE] = {"coverage", NULL},
	[DIFF_BOUNDS] = {"row bounds", NULL},
	[DIFF_COLUMN] = {"return address column or signal flag", NULL},
	[DIFF_CFA] = {"CFA", NULL},
	[DIFF_REGISTER] = {"register", NULL},
	[DIFF_UNCHECKED] = {"expression not checked", NULL},
	[DIFF_HALF_CFA] = {"no CFA in libdw",
		"def_cfa_register follows def_cfa_expression; libgcc and we keep the offset from "
		"before the expression, which is what the code does"},
	[DIFF_TERMINATOR] = {"not covered in libdw",
		"behind a zero terminator in the middle of a section without sorted table, where "
		"libdw stops reading"},
};

static struct {
	uint64_t files, fdes, rows, addresses, gaps, by_kind[DIFF_KINDS];
} total;

/* One section of one file, read by both sides. */
struct comparison {
	const char *path;
	Dwarf_CFI *theirs;
	struct unwind_module *ours;
	struct cfi_section section;
	enum unwind_arch arch;
	bool had_cfa_expr;   /* in this FDE, so far */
	bool had_terminator; /* in this section, so far */
	unsigned shown;
};

static void report(struct comparison *c, enum difference kind, uint64_t addr, int reg)
{
	if (kind == DIFF_NONE)
		return;
	total.by_kind[kind]++;
	if (c->shown++ >= SHOWN_PER_FILE)
		return;
	printf("%s: 0x%" PRIx64 ": %s", c->path, addr, kinds[kind].name);
	if (reg >= 0)
		printf(" %d", reg);
	printf("\n");
}

/* ---- values on made-up registers and memory ---- */

struct world {
	struct unwind_regs regs;
	uint64_t cfa, seed;
};

static struct world make_world(uint64_t seed)
{
	struct world w = {.seed = seed, .cfa = hash_u64(seed + 99), .regs.known = UINT64_MAX};

	for (int i = 0; i < UNWIND_MAX_REGS; i++)
		w.regs.value[i] = hash_u64(seed * 64 + (uint64_t)i);
	return w;
}

static bool world_read(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct world *w = ctx;
	uint64_t v = hash_pair(addr, w->seed);

	memcpy(buf, &v, len);
	return true;
}

/* libdw's operations, as many of them as call frame information is known to use. Constants
 * come sign-extended already. */
static bool their_binary(uint8_t atom, uint64_t a, uint64_t b, uint64_t *ret)
{
	switch (atom) {
	case DW_OP_plus:
		return *ret = a + b, true;
	case DW_OP_minus:
		return *ret = a - b, true;
	case DW_OP_mul:
		return *ret = a * b, true;
	case DW_OP_and:
		return *ret = a & b, true;
	case DW_OP_shl:
		return *ret = b < 64 ? a << b : 0, true;
	case DW_OP_ge:
		return *ret = (int64_t)a >= (int64_t)b, true;
	}
	return false;
}

static bool their_leaf(const Dwarf_Op *op, struct world *w, uint64_t *ret)
{
	if (op->atom >= DW_OP_lit0 && op->atom <= DW_OP_lit31)
		return *ret = op->atom - DW_OP_lit0, true;
	if (op->atom >= DW_OP_breg0 && op->atom <= DW_OP_breg31)
		return *ret = w->regs.value[op->atom - DW_OP_breg0] + op->number, true;
	switch (op->atom) {
	case DW_OP_bregx:
		if (op->number >= UNWIND_MAX_REGS)
			return false;
		return *ret = w->regs.value[op->number] + op->number2, true;
	case DW_OP_call_frame_cfa:
		return *ret = w->cfa, true;
	case DW_OP_const1u:
	case DW_OP_const1s:
	case DW_OP_const2u:
	case DW_OP_const2s:
	case DW_OP_const4u:
	case DW_OP_const4s:
	case DW_OP_const8u:
	case DW_OP_const8s:
	case DW_OP_constu:
	case DW_OP_consts:
		return *ret = op->number, true;
	}
	return false;
}

static bool their_value(const Dwarf_Op *ops, size_t count, struct world *w, uint64_t *ret)
{
	uint64_t stack[64];
	size_t depth = 0;

	for (size_t i = 0; i < count; i++) {
		uint64_t v;

		if (depth < 64 && their_leaf(&ops[i], w, &v))
			stack[depth++] = v;
		else if (depth && ops[i].atom == DW_OP_plus_uconst)
			stack[depth - 1] += ops[i].number;
		else if (depth && ops[i].atom == DW_OP_drop)
			depth--;
		else if (depth && ops[i].atom == DW_OP_deref)
			world_read(w, stack[depth - 1], &stack[depth - 1], 8);
		else if (depth > 1 &&
			 their_binary(ops[i].atom, stack[depth - 2], stack[depth - 1], &v))
			stack[--depth - 1] = v;
		else
			return false;
	}
	if (!depth)
		return false;
	*ret = stack[depth - 1];
	return true;
}

/* Ours: the expression at `offset` of the section. */
static bool our_value(const struct comparison *c, int32_t offset, uint16_t len, bool has_cfa,
	struct world *w, uint64_t *ret)
{
	struct expr_input in = {.regs = &w->regs,
		.read = world_read,
		.ctx = w,
		.has_initial = has_cfa,
		.initial = w->cfa};

	return expr_evaluate(c->section.bytes + offset, len, &in, ret);
}

static enum difference compare_expressions(const struct comparison *c, int32_t offset, uint16_t len,
	bool has_cfa, const Dwarf_Op *ops, size_t count)
{
	for (uint64_t seed = 1; seed <= MADE_UP_STATES; seed++) {
		struct world w = make_world(seed);
		uint64_t a, b;

		if (!their_value(ops, count, &w, &b) || !our_value(c, offset, len, has_cfa, &w, &a))
			return DIFF_UNCHECKED;
		if (a != b)
			return has_cfa ? DIFF_REGISTER : DIFF_CFA;
	}
	return DIFF_NONE;
}

/* ---- rules ---- */

static enum difference compare_cfa(
	struct comparison *c, const struct unwind_rule *rule, Dwarf_Frame *frame)
{
	Dwarf_Op *ops;
	size_t count;

	if (dwarf_frame_cfa(frame, &ops, &count))
		return c->had_cfa_expr && rule->cfa_kind == CFA_REG_OFFSET ? DIFF_HALF_CFA
									   : DIFF_CFA;
	if (!count)
		return DIFF_CFA;
	c->had_cfa_expr |= rule->cfa_kind == CFA_EXPR;
	if (rule->cfa_kind == CFA_EXPR)
		return compare_expressions(
			c, rule->cfa_offset, rule->cfa_expr_len, false, ops, count);
	return count == 1 && ops->atom == DW_OP_bregx && ops->number == rule->cfa_reg &&
			       (int64_t)ops->number2 == rule->cfa_offset
		       ? DIFF_NONE
		       : DIFF_CFA;
}

/* What libdw says of a register without a rule: it knows the calling convention, and tells apart
 * what a callee may destroy from what it must keep. For us both keep their value. */
static bool is_default(const struct comparison *c, int reg, const Dwarf_Op *ops, size_t count)
{
	bool undefined = !count && ops, same = !count && !ops;
	bool is_sp = reg == (c->arch == UNWIND_X86_64 ? UNWIND_X86_RSP : UNWIND_A64_SP);

	if (is_sp)
		return count == 2 && ops[0].atom == DW_OP_call_frame_cfa &&
		       ops[1].atom == DW_OP_stack_value;
	/* elfutils up to 0.188 at least takes rbx, which is 3, for register 0. */
	if (c->arch == UNWIND_X86_64 && (reg == 0 || reg == 3))
		return same || undefined;
	if (c->arch == UNWIND_X86_64)
		return reg == 6 || (reg >= 12 && reg <= 15) ? same : undefined;
	return reg >= 19 && reg <= 30 ? same : undefined;
}

/* libdw spells "at CFA + offset" as operations; plus_uconst carries the sign in its 64 bits. */
static bool is_cfa_offset(const Dwarf_Op *ops, size_t count, int32_t offset, bool is_value)
{
	if (is_value && (!count || ops[--count].atom != DW_OP_stack_value))
		return false;
	if (!count || ops[0].atom != DW_OP_call_frame_cfa)
		return false;
	if (count == 1)
		return !offset;
	return count == 2 && ops[1].atom == DW_OP_plus_uconst && (int64_t)ops[1].number == offset;
}

static enum difference compare_register(const struct comparison *c, const struct reg_rule *rule,
	int reg, const Dwarf_Op *ops, size_t count)
{
	bool same = false;

	if (!rule)
		return is_default(c, reg, ops, count) ? DIFF_NONE : DIFF_REGISTER;
	switch ((enum reg_kind)rule->kind) {
	case REG_UNDEFINED:
		same = !count && ops;
		break;
	case REG_SAME:
		same = !count && !ops;
		break;
	case REG_AT_CFA:
	case REG_CFA_OFFSET:
		same = is_cfa_offset(ops, count, rule->offset, rule->kind == REG_CFA_OFFSET);
		break;
	case REG_IN_REG:
		same = count == 1 && ops->atom == DW_OP_regx &&
		       ops->number == (Dwarf_Word)rule->offset;
		break;
	case REG_AT_EXPR:
		return compare_expressions(c, rule->offset, rule->expr_len, true, ops, count);
	case REG_EXPR:
		if (!count || ops[count - 1].atom != DW_OP_stack_value)
			return DIFF_REGISTER;
		return compare_expressions(c, rule->offset, rule->expr_len, true, ops, count - 1);
	}
	return same ? DIFF_NONE : DIFF_REGISTER;
}

static const struct reg_rule *rule_of(const struct unwind_rule *rule, int reg)
{
	for (int i = 0; i < rule->reg_count; i++)
		if (rule->regs[i].reg == reg)
			return &rule->regs[i];
	return NULL;
}

static void compare_registers(
	struct comparison *c, const struct unwind_rule *rule, Dwarf_Frame *frame, uint64_t addr)
{
	int last = c->arch == UNWIND_X86_64 ? UNWIND_X86_PC : UNWIND_A64_SP;

	for (int reg = 0; reg <= last; reg++) {
		Dwarf_Op mem[3], *ops;
		size_t count;
		enum difference kind = DIFF_REGISTER;

		if (!dwarf_frame_register(frame, reg, mem, &ops, &count))
			kind = compare_register(c, rule_of(rule, reg), reg, ops, count);
		report(c, kind, addr, reg);
	}
}

/* One row of libdw's: [start, end). */
static void compare_row(struct comparison *c, Dwarf_Frame *frame, int ra_reg, bool signal_frame,
	uint64_t start, uint64_t end)
{
	const struct unwind_rule *rule = unwind_module_rule(c->ours, start);

	total.rows++;
	total.addresses += 3;
	if (unwind_module_rule(c->ours, start + (end - start) / 2) != rule ||
		unwind_module_rule(c->ours, end - 1) != rule)
		report(c, DIFF_BOUNDS, start, -1);
	if (!rule) {
		report(c, DIFF_COVERAGE, start, -1);
		return;
	}
	if (rule->ra_reg != ra_reg || rule->signal_frame != signal_frame)
		report(c, DIFF_COLUMN, start, ra_reg);
	report(c, compare_cfa(c, rule, frame), start, -1);
	compare_registers(c, rule, frame, start);
}

/* ---- FDEs, sections, files ---- */

/* We have a rule and libdw has none. */
static void report_more(struct comparison *c, uint64_t addr)
{
	report(c, c->had_terminator ? DIFF_TERMINATOR : DIFF_COVERAGE, addr, -1);
}

static void compare_fde(struct comparison *c, const struct cfi_fde *fde)
{
	uint64_t addr = fde->start;

	c->had_cfa_expr = false;
	total.fdes++;
	while (addr < fde->end) {
		Dwarf_Frame *frame;
		Dwarf_Addr start, end;
		bool signal_frame;

		if (dwarf_cfi_addrframe(c->theirs, addr, &frame)) {
			if (unwind_module_rule(c->ours, addr))
				report_more(c, addr);
			return;
		}

		int ra_reg = dwarf_frame_info(frame, &start, &end, &signal_frame);

		if (end <= addr) {
			free(frame);
			report(c, DIFF_COVERAGE, addr, -1);
			return;
		}
		compare_row(c, frame, ra_reg, signal_frame, addr, end);
		free(frame);
		addr = end;
	}
}

/* The first address behind an FDE: both must say the same about whether anything is there. */
static void compare_gap(struct comparison *c, uint64_t addr)
{
	Dwarf_Frame *frame = NULL;
	bool theirs = !dwarf_cfi_addrframe(c->theirs, addr, &frame);

	free(frame);
	total.gaps++;
	if (!theirs && unwind_module_rule(c->ours, addr))
		report_more(c, addr);
	else if (theirs && !unwind_module_rule(c->ours, addr))
		report(c, DIFF_COVERAGE, addr, -1);
}

static void compare_section(struct comparison *c)
{
	struct cfi_cie cie = {.offset = UINT64_MAX};
	uint64_t next = 0, offset, before = 0;
	enum cfi_entry entry;
	struct cfi_fde fde;

	while ((entry = cfi_next(&c->section, &next, &offset)) != CFI_END) {
		c->had_terminator |= offset != before;
		before = next;
		if (entry != CFI_FDE)
			continue;
		if (!cfi_read_fde(&c->section, offset, &cie, &fde)) {
			report(c, DIFF_COVERAGE, offset, -1);
			continue;
		}
		compare_fde(c, &fde);
		compare_gap(c, fde.end);
	}
}

static void compare_one(const char *path, const struct cfi_file *f, Dwarf_CFI *theirs, bool debug)
{
	struct unwind_module_input input = f->input;
	const struct unwind_section *s = debug ? &f->input.debug_frame : &f->input.eh_frame;
	struct comparison c = {.path = path, .theirs = theirs, .arch = input.arch};

	if (debug)
		input.eh_frame = input.eh_frame_hdr = (struct unwind_section){0};
	else
		input.debug_frame = (struct unwind_section){0};
	c.section = (struct cfi_section){.bytes = s->bytes,
		.size = s->size,
		.vaddr = s->vaddr,
		.data_base = input.data_base,
		.arch = input.arch,
		.debug = debug};
	if (!theirs || unwind_module_new(&input, &c.ours, NULL))
		return;
	compare_section(&c);
	unwind_module_free(c.ours);
}

static void compare_file(const char *path)
{
	struct cfi_file f;

	if (cfi_file_open(&f, path)) {
		total.files++;
		if (f.input.eh_frame.size) {
			Dwarf_CFI *cfi = dwarf_getcfi_elf(f.elf);

			compare_one(path, &f, cfi, false);
			dwarf_cfi_end(cfi);
		}
		if (f.input.debug_frame.size) {
			Dwarf *dwarf = dwarf_begin_elf(f.elf, DWARF_C_READ, NULL);

			compare_one(path, &f, dwarf ? dwarf_getcfi(dwarf) : NULL, true);
			dwarf_end(dwarf);
		}
	}
	cfi_file_close(&f);
}

/* Names of one file under several directories count once. */
static bool seen_before(const struct stat *st)
{
	static VEC(struct stat) seen;

	vec_each (&seen, it)
		if (it->st_ino == st->st_ino && it->st_dev == st->st_dev)
			return true;
	return vec_push(&seen, *st) != 0;
}

static int visit(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)ftw;
	if (type == FTW_F && S_ISREG(st->st_mode) && st->st_size > 64 && !seen_before(st))
		compare_file(path);
	return 0;
}

/* The files this very process is made of: something to compare on every machine. */
static void compare_self(void)
{
	FILE *maps = fopen("/proc/self/maps", "re");
	char line[4200], path[4100];
	struct stat st;

	while (maps && fgets(line, sizeof(line), maps))
		if (sscanf(line, "%*s r-xp %*s %*s %*s %4099[^\n]", path) == 1 && path[0] == '/' &&
			!stat(path, &st))
			visit(path, &st, FTW_F, NULL);
	if (maps)
		fclose(maps);
}

static int print_summary(void)
{
	uint64_t unexplained = 0;

	printf("%" PRIu64 " files, %" PRIu64 " FDEs, %" PRIu64 " rows compared at %" PRIu64
	       " addresses, %" PRIu64 " ends of FDEs\n",
		total.files, total.fdes, total.rows, total.addresses, total.gaps);
	for (int kind = DIFF_NONE + 1; kind < DIFF_KINDS; kind++) {
		const char *why = kinds[kind].explanation;

		if (total.by_kind[kind])
			printf("%" PRIu64 " differences: %s%s%s\n", total.by_kind[kind],
				kinds[kind].name, why ? ", explained: " : "", why ? why : "");
		unexplained += why ? 0 : total.by_kind[kind];
	}
	printf("%" PRIu64 " unexplained differences\n", unexplained);
	return unexplained || !total.rows;
}

int main(int argc, char **argv)
{
	if (argc < 2) {
		fprintf(stderr, "usage: cfi_verify [--self] PATH...\n");
		return 2;
	}
	elf_version(EV_CURRENT);
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], "--self"))
			compare_self();
		else if (nftw(argv[i], visit, 32, FTW_PHYS))
			fprintf(stderr, "cfi_verify: %s: cannot be read\n", argv[i]);
	return print_summary();
}
