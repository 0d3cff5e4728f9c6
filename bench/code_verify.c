/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares what the analysis of code says of frames (src/unwind/flow.h) with call frame information,
 * instruction by instruction, in files that have it.
 *
 *	code_verify [-n EVERY] [-v] FILE...     every EVERY-th instruction; -v: print differences
 *
 * The analysis knows nothing but the code: where functions start it has to find out itself. Columns are shares
 * of the addresses asked about: all instructions, and those behind calls, where callers stand. "wrong": another
 * CFA; "register": a preserved register elsewhere (call frame information does not say when an
 * epilogue has restored one, so a little of this is its fault); "other": the CFA counts from another
 * register, which cannot be compared.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/cfi_file.h"
#include "unwind/cfi.h"
#include "unwind/flow.h"
#include "unwind/table.h"

struct file {
	struct cfi_file cfi;
	struct unwind_module *module, *bare; /* bare: without its call frame information */
	const uint8_t *text;
	uint64_t start, end;
	struct flow_code code;
};

enum question { SINCE_START, TO_RETURN, TOGETHER, QUESTIONS };

static const char *const question_names[] = {"since the start", "to the return", "together"};

struct score {
	uint64_t asked, none, right, other_base, wrong_cfa, wrong_register, lost;
};

static struct score scores[QUESTIONS][2]; /* [1]: behind calls */
static bool verbose;
static unsigned every = 1;

static const uint8_t *read_code(void *ctx, uint64_t addr, size_t *ret_len)
{
	const struct file *f = (const struct file *)ctx;

	if (addr < f->start || addr >= f->end)
		return NULL;
	*ret_len = f->end - addr;
	return f->text + (addr - f->start);
}

static bool is_start(void *ctx, uint64_t addr)
{
	const struct file *f = (const struct file *)ctx;
	uint64_t start;

	return unwind_module_named_start(f->bare, addr, &start) && start == addr;
}

static const struct reg_rule *rule_of(const struct unwind_rule *rule, uint8_t reg)
{
	for (unsigned i = 0; i < rule->reg_count; i++)
		if (rule->regs[i].reg == reg)
			return &rule->regs[i];
	return NULL;
}

/* Compilers do not say that an epilogue has restored a register. */
static bool register_right(const struct arch *arch, const struct unwind_rule *rule,
	const struct frame_shape *s, unsigned i)
{
	const struct reg_rule *r = rule_of(rule, arch->followed[i]);
	bool saved = r && r->kind == REG_AT_CFA;

	bool below = s->cfa_reg == arch->sp && s->cfa_offset + s->regs[i].offset < 0;

	/* What is saved below sp is not saved yet, or was popped, and the walk knows. */
	if (s->regs[i].place == FLOW_SAVED && !below)
		return saved && r->offset == s->regs[i].offset;
	if (!saved)
		return true;
	/* Below sp: popped already. */
	return s->cfa_offset + r->offset < 0 || s->cfa_reg != arch->sp;
}

/* CFA and registers of `s`, judged by the rule at the same address. */
static void judge(const struct file *f, enum question q, bool is_return, uint64_t pc,
	const struct unwind_rule *rule, const struct frame_shape *s)
{
	const struct arch *arch = f->code.arch;
	struct score *score = &scores[q][is_return];

	if (s->cfa_reg != rule->cfa_reg) {
		score->other_base++;
		return;
	}
	if (s->cfa_offset != rule->cfa_offset) {
		score->wrong_cfa++;
		if (verbose)
			printf("%" PRIx64 " %s: CFA %d%+d, not %d%+d%s\n", pc, question_names[q],
				s->cfa_reg, s->cfa_offset, rule->cfa_reg, rule->cfa_offset,
				s->tail ? " (tail)" : "");
		return;
	}
	for (unsigned i = 1; i < arch->followed_count; i++) {
		bool lost = s->regs[i].place == FLOW_LOST;

		if (!lost && register_right(arch, rule, s, i))
			continue;
		score->lost += lost;
		score->wrong_register += !lost;
		if (verbose)
			printf("%" PRIx64 " %s: register %d is %s\n", pc, question_names[q],
				arch->followed[i], lost ? "lost" : "wrong");
		return;
	}
	score->right++;
}

static void compare_at(const struct file *f, uint64_t pc, bool is_return)
{
	const struct unwind_rule *rule = unwind_module_rule(f->module, pc - is_return);
	struct frame_shape s[QUESTIONS];
	bool got[QUESTIONS], has_start;
	uint64_t start;

	if (!rule || rule->cfa_kind != CFA_REG_OFFSET)
		return;
	has_start = unwind_module_named_start(f->bare, pc - is_return, &start);
	got[SINCE_START] = has_start && flow_from_start(&f->code, start, pc, &s[SINCE_START]);
	got[TO_RETURN] = flow_to_return(&f->code, pc, is_return, &s[TO_RETURN]);
	got[TOGETHER] = flow_frame(
		&f->code, has_start ? &start : NULL, pc, is_return, &s[TOGETHER]);
	for (unsigned q = 0; q < QUESTIONS; q++) {
		scores[q][is_return].asked++;
		if (got[q])
			judge(f, (enum question)q, is_return, pc, rule, &s[q]);
		else
			scores[q][is_return].none++;
	}
}

static void compare_function(const struct file *f, uint64_t start, uint64_t end)
{
	const struct unwind_rule *first = unwind_module_rule(f->module, start);
	static unsigned n;

	/* Parts of functions that lie elsewhere begin with a frame. */
	if (!first || first->cfa_kind != CFA_REG_OFFSET || first->cfa_reg != f->code.arch->sp ||
		first->cfa_offset != (f->code.arch->lr == ARCH_NO_REG ? 8 : 0))
		return;
	for (uint64_t pc = start; pc < end;) {
		size_t len = 0;
		const uint8_t *bytes = read_code((void *)(uintptr_t)f, pc, &len);
		struct insn insn = f->code.arch->decode(bytes, bytes ? len : 0, pc);

		if (!insn.len)
			return;
		if (n++ % every == 0 && !insn.padding)
			compare_at(f, pc, false);
		pc += insn.len;
		if (insn.op == INSN_CALL && n % every == 0)
			compare_at(f, pc, true);
	}
}

static double percent(uint64_t n, uint64_t of)
{
	return of ? 100.0 * (double)n / (double)of : 0;
}

static void print_scores(const char *path)
{
	printf("%s\n%-30s %9s %8s %8s %8s %8s %8s %8s\n", path, "", "asked", "right", "no answer",
		"wrong", "register", "lost", "other");
	for (unsigned q = 0; q < QUESTIONS; q++) {
		for (unsigned ret = 0; ret < 2; ret++) {
			const struct score *s = &scores[q][ret];

			printf("  %-16s %-11s %9" PRIu64 " %7.2f%% %7.2f%% %7.3f%% %7.3f%% %7.3f%% %7.2f%%\n",
				question_names[q], ret ? "after calls" : "anywhere", s->asked,
				percent(s->right, s->asked), percent(s->none, s->asked),
				percent(s->wrong_cfa, s->asked),
				percent(s->wrong_register, s->asked),
				percent(s->lost, s->asked), percent(s->other_base, s->asked));
		}
	}
	memset(scores, 0, sizeof(scores));
}

/* The largest executable segment. */
static bool find_text(struct file *f)
{
	size_t size;
	const char *raw = elf_rawfile(f->cfi.elf, &size);
	GElf_Phdr ph;

	for (int i = 0; raw && gelf_getphdr(f->cfi.elf, i, &ph); i++) {
		if (ph.p_type != PT_LOAD || !(ph.p_flags & PF_X) ||
			ph.p_filesz <= f->end - f->start || ph.p_offset > size ||
			ph.p_filesz > size - ph.p_offset)
			continue;
		f->start = ph.p_vaddr;
		f->end = ph.p_vaddr + ph.p_filesz;
		f->text = (const uint8_t *)raw + ph.p_offset;
	}
	return f->text != NULL;
}

static void compare_file(const char *path)
{
	struct file f = {0};
	uint64_t next = 0, offset;
	struct cfi_cie cie = {.offset = UINT64_MAX};
	enum cfi_entry entry;

	if (!cfi_file_open(&f.cfi, path) || !find_text(&f)) {
		fprintf(stderr, "%s: not read\n", path);
		return;
	}

	struct unwind_section text = {f.text, f.end - f.start, f.start};
	struct unwind_module_input bare = {
		.arch = f.cfi.input.arch, .text = &text, .text_count = 1};
	struct cfi_section section = {.bytes = f.cfi.input.eh_frame.bytes,
		.size = f.cfi.input.eh_frame.size,
		.vaddr = f.cfi.input.eh_frame.vaddr,
		.data_base = f.cfi.input.data_base,
		.arch = f.cfi.input.arch};

	if (unwind_module_new(&f.cfi.input, &f.module, NULL) ||
		unwind_module_new(&bare, &f.bare, NULL))
		return;
	f.code = (struct flow_code){arch_of(f.cfi.input.arch), &f, read_code, is_start};
	while ((entry = cfi_next(&section, &next, &offset)) != CFI_END) {
		struct cfi_fde fde;

		if (entry == CFI_FDE && cfi_read_fde(&section, offset, &cie, &fde) &&
			!cie.signal_frame)
			compare_function(&f, fde.start, fde.end);
	}
	print_scores(path);
	unwind_module_free(f.module);
	unwind_module_free(f.bare);
	cfi_file_close(&f.cfi);
}

int main(int argc, char **argv)
{
	int opt;

	elf_version(EV_CURRENT);
	while ((opt = getopt(argc, argv, "n:v")) != -1) {
		if (opt == 'n')
			every = (unsigned)strtoul(optarg, NULL, 10);
		else
			verbose = true;
	}
	for (int i = optind; i < argc; i++)
		compare_file(argv[i]);
	return 0;
}
