/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Compares what the analysis of code says of frames (src/unwind/flow.h) with call frame information,
 * instruction by instruction, in files that have it.
 *
 *	code_verify [-n EVERY] [-v] FILE...     every EVERY-th instruction; -v: print differences
 *
 * One line a file and question: at which share of the addresses there is an answer, and which share
 * of the answers is wrong (another CFA, or a preserved register elsewhere). Addresses are those of
 * all instructions, and those behind calls, where callers stand.
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
	struct unwind_module *module;
	const uint8_t *text;
	uint64_t start, end;
	struct flow_code code;
};

enum question { FROM_START, TO_RETURN, QUESTIONS };

struct score {
	uint64_t asked, none, right, other_base, wrong_cfa, wrong_register, lost, disagree;
};

static struct score scores[QUESTIONS][2]; /* [1]: behind calls */
static uint64_t both_wrong, one_wrong;
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

	return unwind_module_function(f->module, addr, &start) && start == addr;
}

static const struct reg_rule *rule_of(const struct unwind_rule *rule, uint8_t reg)
{
	for (unsigned i = 0; i < rule->reg_count; i++)
		if (rule->regs[i].reg == reg)
			return &rule->regs[i];
	return NULL;
}

/* Compilers do not say that an epilogue has restored a register. */
static bool register_right(const struct unwind_rule *rule, const struct frame_shape *s, unsigned i,
	uint8_t reg)
{
	const struct reg_rule *r = rule_of(rule, reg);
	bool saved = r && r->kind == REG_AT_CFA;

	if (s->regs[i].place == FLOW_SAVED)
		return saved && r->offset == s->regs[i].offset;
	if (!saved)
		return true;
	/* Below sp: popped already. */
	return s->cfa_offset + r->offset < 0 || s->cfa_reg != UNWIND_X86_RSP;
}

static void judge(const struct file *f, struct score *score, uint64_t pc, const char *what,
	const struct unwind_rule *rule, const struct frame_shape *s)
{
	const struct arch *arch = f->code.arch;

	if (s->cfa_reg != rule->cfa_reg) {
		score->other_base++;
		return;
	}
	if (s->cfa_offset != rule->cfa_offset) {
		score->wrong_cfa++;
		if (verbose)
			printf("%" PRIx64 " %s: CFA %d+%d, not %d+%d%s\n", pc, what, s->cfa_reg,
				s->cfa_offset, rule->cfa_reg, rule->cfa_offset, s->tail ? " (tail)" : "");
		return;
	}
	for (unsigned i = 1; i < arch->followed_count; i++) {
		if (s->regs[i].place == FLOW_LOST) {
			score->lost++;
			if (verbose)
				printf("%" PRIx64 " %s: register %d is lost\n", pc, what, arch->followed[i]);
			return;
		}
		if (!register_right(rule, s, i, arch->followed[i])) {
			score->wrong_register++;
			if (verbose)
				printf("%" PRIx64 " %s: register %d is wrong: %d\n", pc, what,
					arch->followed[i], s->regs[i].offset);
			return;
		}
	}
	score->right++;
}

static void compare_at(const struct file *f, uint64_t start, uint64_t pc, bool is_return)
{
	const struct unwind_rule *rule = unwind_module_rule(f->module, pc - is_return);
	struct frame_shape s[QUESTIONS];
	bool got[QUESTIONS];

	if (!rule || rule->cfa_kind != CFA_REG_OFFSET)
		return;
	got[FROM_START] = flow_from_start(&f->code, start, pc, &s[FROM_START]);
	got[TO_RETURN] = flow_to_return(&f->code, pc, is_return, &s[TO_RETURN]);
	for (unsigned q = 0; q < QUESTIONS; q++) {
		struct score *score = &scores[q][is_return];

		score->asked++;
		if (got[q])
			judge(f, score, pc, q ? "to return" : "from start", rule, &s[q]);
		else {
			score->none++;
			if (verbose)
				printf("%" PRIx64 " %s: none\n", pc, q ? "to return" : "from start");
		}
	}
	if (got[0] && got[1] && s[0].cfa_reg == s[1].cfa_reg) {
		if (s[0].cfa_offset != s[1].cfa_offset)
			scores[0][is_return].disagree++;
		else if (s[0].cfa_reg == rule->cfa_reg && s[0].cfa_offset != rule->cfa_offset)
			both_wrong++;
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
		size_t len;
		const uint8_t *bytes = read_code((void *)f, pc, &len);
		struct insn insn = f->code.arch->decode(bytes, bytes ? len : 0, pc);

		if (!insn.len)
			return;
		if (n++ % every == 0 && !insn.padding)
			compare_at(f, start, pc, false);
		pc += insn.len;
		if (insn.op == INSN_CALL && n % every == 0)
			compare_at(f, start, pc, true);
	}
}

static void print_scores(const char *path)
{
	static const char *const names[] = {"from start", "to return"};

	for (unsigned q = 0; q < QUESTIONS; q++) {
		for (unsigned ret = 0; ret < 2; ret++) {
			const struct score *s = &scores[q][ret];
			double n = s->asked ? (double)s->asked : 1;

			printf("%s: %s, %s: %" PRIu64 " asked, right %.3f%%, none %.3f%%, other base "
			       "%.3f%%, wrong CFA %.4f%%, register %.4f%%, lost %.3f%% disagree %.3f%%\n",
				path, names[q], ret ? "behind calls" : "anywhere", s->asked,
				100 * (double)s->right / n, 100 * (double)s->none / n,
				100 * (double)s->other_base / n, 100 * (double)s->wrong_cfa / n,
				100 * (double)s->wrong_register / n, 100 * (double)s->lost / n,
				100 * (double)s->disagree / n);
		}
	}
	printf("both wrong %" PRIu64 "\n", both_wrong);
	memset(scores, 0, sizeof(scores));
	both_wrong = one_wrong = 0;
}

static void compare_file(const char *path)
{
	struct file f = {0};
	uint64_t next = 0, offset;
	struct cfi_cie cie = {.offset = UINT64_MAX};
	enum cfi_entry entry;
	size_t size;

	if (!cfi_file_open(&f.cfi, path) || unwind_module_new(&f.cfi.input, &f.module, NULL))
		return;

	const char *raw = elf_rawfile(f.cfi.elf, &size);
	GElf_Phdr ph;

	for (int i = 0; gelf_getphdr(f.cfi.elf, i, &ph); i++) {
		if (ph.p_type == PT_LOAD && (ph.p_flags & PF_X) && ph.p_filesz > f.end - f.start) {
			f.start = ph.p_vaddr;
			f.end = ph.p_vaddr + ph.p_filesz;
			f.text = (const uint8_t *)raw + ph.p_offset;
		}
	}
	f.code = (struct flow_code){arch_of(f.cfi.input.arch), &f, read_code, is_start};
	struct cfi_section section = {.bytes = f.cfi.input.eh_frame.bytes,
		.size = f.cfi.input.eh_frame.size, .vaddr = f.cfi.input.eh_frame.vaddr,
		.data_base = f.cfi.input.data_base, .arch = f.cfi.input.arch};
	while ((entry = cfi_next(&section, &next, &offset)) != CFI_END) {
		struct cfi_fde fde;

		if (entry == CFI_FDE && cfi_read_fde(&section, offset, &cie, &fde) && !cie.signal_frame)
			compare_function(&f, fde.start, fde.end);
	}
	print_scores(path);
	unwind_module_free(f.module);
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
