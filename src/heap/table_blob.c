/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * FDE by FDE in order of address, each run once (unwind/cfi.h); what a row says becomes 64 bits, and equal ones
 * one number.
 *
 * Most rows of real code lie between the pushes of a prologue or the pops of an epilogue. No call fits into
 * them, so no return address ever looks them up: neighbours of that kind become one row without a rule, which leaves
 * about a third. (The frame that a signal interrupted may be there; it then has no rule, and the collector walks it.)
 */
#include "heap/table_blob.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/vec.h"
#include "heap/tables_layout.h"
#include "unwind/arch.h"
#include "unwind/cfi.h"
#include "unwind/table.h"

#define ENTRY_BYTES 64    /* how much of the code at e_entry is taken for _start, as in a walk */
#define SHORT_ROW 16      /* rows up to here are looked at for a call */
#define SCAN_TEXT (8u << 20) /* text up to here is searched for what handlers return to */
#define FDES_A_SLICE 256
#define RULES_MOST 0x10000u

enum source {
	FROM_EH,
	FROM_DEBUG,
	FIXED, /* later ones win over earlier ones that start at the same place */
};

/* Code whose rows have one origin. */
struct piece {
	uint64_t start, end;
	uint64_t what; /* offset of the FDE; FIXED: the rule */
	uint8_t source;
};

struct blob_builder {
	const struct unwind_module *module;
	const struct unwind_module_input *input;
	const struct arch *arch;
	struct cfi_section eh, debug;
	struct cfi_cie cie[2];
	struct cfi_runner runner[2];
	VEC(struct piece) pieces;
	size_t next; /* piece */

	VEC(uint32_t) starts;
	VEC(uint16_t) rule_of;
	VEC(uint64_t) rules;
	uint32_t *slots; /* of rules: number + 1 by hash, RULES_MOST * 2 of them */
	uint64_t first, end; /* where rows begin; up to where they are */
	uint64_t open_start, open_rule; /* the row that is not stored yet */
	bool has_open;
};

/* ---- what has rows ---- */

static int add_piece(struct blob_builder *b, uint64_t start, uint64_t end, uint8_t source, uint64_t what)
{
	if (start >= end)
		return 0;
	return vec_push(&b->pieces, (struct piece){start, end, what, source});
}

static int add_fdes(struct blob_builder *b, const struct cfi_section *s, uint8_t source)
{
	uint64_t offset = 0, at;
	enum cfi_entry entry;
	struct cfi_fde fde;

	while ((entry = cfi_next(s, &offset, &at)) != CFI_END) {
		if (entry != CFI_FDE || !cfi_read_fde(s, at, &b->cie[source], &fde))
			continue;
		/* Left over from functions that the linker threw away. */
		if (!fde.start && source == FROM_DEBUG)
			continue;
		if (add_piece(b, fde.start, fde.end, source, at))
			return -ENOMEM;
	}
	return 0;
}

static int add_sigreturn_at(struct blob_builder *b, const struct unwind_section *s, size_t at)
{
	if (!b->arch->is_sigreturn(s->bytes + at, s->size - at))
		return 0;
	return add_piece(b, s->vaddr + at - 1, s->vaddr + at + 1, FIXED, TABLES_RULE(TABLES_SIGNAL, 0, 0, 0));
}

/* By the system call in the end; what comes before it takes 5 or 7 bytes. */
static int add_sigreturns_x86(struct blob_builder *b, const struct unwind_section *s)
{
	const uint8_t *at = s->bytes, *end = s->bytes + s->size;

	while ((at = (const uint8_t *)memmem(at, (size_t)(end - at), "\x0f\x05", 2))) {
		size_t offset = (size_t)(at - s->bytes);

		if ((offset >= 5 && add_sigreturn_at(b, s, offset - 5)) || (offset >= 7 && add_sigreturn_at(b, s, offset - 7)))
			return -ENOMEM;
		at += 2;
	}
	return 0;
}

static int add_sigreturns_a64(struct blob_builder *b, const struct unwind_section *s)
{
	for (size_t at = 0; at + 8 <= s->size; at += 4)
		if (add_sigreturn_at(b, s, at))
			return -ENOMEM;
	return 0;
}

/* What signal handlers return to is found by what it does: musl does not describe it. */
static int add_sigreturns(struct blob_builder *b)
{
	for (size_t i = 0; i < b->input->text_count; i++) {
		const struct unwind_section *s = &b->input->text[i];
		int rc = 0;

		if (s->bytes && s->size <= SCAN_TEXT)
			rc = b->input->arch == UNWIND_AARCH64 ? add_sigreturns_a64(b, s) : add_sigreturns_x86(b, s);
		if (rc)
			return rc;
	}
	return 0;
}

static int add_roots(struct blob_builder *b)
{
	const struct unwind_module_input *in = b->input;
	uint64_t bottom = TABLES_RULE(TABLES_BOTTOM, 0, 0, 0), start;

	for (size_t i = 0; i < in->root_count; i++)
		if (add_piece(b, in->roots[i].start, in->roots[i].end, FIXED, bottom))
			return -ENOMEM;
	if (in->entry && !unwind_module_function((struct unwind_module *)b->module, in->entry, &start))
		return add_piece(b, in->entry, in->entry + ENTRY_BYTES, FIXED, bottom);
	return 0;
}

static int by_start(const void *a, const void *b)
{
	const struct piece *x = a, *y = b;

	if (x->start != y->start)
		return (x->start > y->start) - (x->start < y->start);
	if (x->source != y->source)
		return (x->source > y->source) - (x->source < y->source);
	return (x->what > y->what) - (x->what < y->what);
}

/* .debug_frame only counts where .eh_frame says nothing. */
static void drop_said_twice(struct blob_builder *b)
{
	uint64_t covered = 0;
	size_t kept = 0;

	for (size_t i = 0; i < b->pieces.len; i++) {
		struct piece p = b->pieces.data[i];

		if (p.source == FROM_DEBUG && p.start < covered)
			continue;
		if (p.source != FIXED && p.end > covered)
			covered = p.end;
		b->pieces.data[kept++] = p;
	}
	b->pieces.len = kept;
}

static struct cfi_section section_of(const struct unwind_module_input *in, const struct unwind_section *s, bool debug)
{
	return (struct cfi_section){
		.bytes = s->bytes,
		.size = s->bytes ? s->size : 0,
		.vaddr = s->vaddr,
		.data_base = in->data_base,
		.arch = in->arch,
		.debug = debug,
	};
}

static int collect_pieces(struct blob_builder *b)
{
	/* Go changes stacks in the middle of functions, which its rows do not say. */
	bool fdes = !b->input->go;

	if ((fdes && (add_fdes(b, &b->eh, FROM_EH) || add_fdes(b, &b->debug, FROM_DEBUG))) || add_sigreturns(b) ||
		add_roots(b))
		return -ENOMEM;
	if (b->pieces.len)
		qsort(b->pieces.data, b->pieces.len, sizeof(*b->pieces.data), by_start);
	drop_said_twice(b);
	if (b->pieces.len)
		b->first = b->pieces.data[0].start;
	return 0;
}

int blob_builder_new(const struct unwind_module *module, struct blob_builder **ret, struct err *err)
{
	struct blob_builder *b = (struct blob_builder *)calloc(1, sizeof(*b));

	if (!b)
		return err_nomem(err);
	b->module = module;
	b->input = unwind_module_input(module);
	b->arch = arch_of(b->input->arch);
	b->eh = section_of(b->input, &b->input->eh_frame, false);
	b->debug = section_of(b->input, &b->input->debug_frame, true);
	b->cie[FROM_EH].offset = b->cie[FROM_DEBUG].offset = UINT64_MAX;
	b->slots = (uint32_t *)calloc(RULES_MOST * 2, sizeof(*b->slots));
	if (!b->slots || collect_pieces(b)) {
		blob_builder_free(b);
		return err_nomem(err);
	}
	*ret = b;
	return 0;
}

void blob_builder_free(struct blob_builder *b)
{
	if (!b)
		return;
	for (int i = 0; i < 2; i++)
		cfi_runner_release(&b->runner[i]);
	vec_release(&b->pieces);
	vec_release(&b->starts);
	vec_release(&b->rule_of);
	vec_release(&b->rules);
	free(b->slots);
	free(b);
}

/* ---- rows ---- */

/* The number of a rule; that of the one without anything when there are too many. 0 or -ENOMEM. */
static int rule_number(struct blob_builder *b, uint64_t rule, uint16_t *ret)
{
	uint32_t mask = RULES_MOST * 2 - 1;
	uint32_t at = (uint32_t)((rule * 0x9e3779b97f4a7c15u) >> 40) & mask;

	for (; b->slots[at]; at = (at + 1) & mask) {
		if (b->rules.data[b->slots[at] - 1] != rule)
			continue;
		*ret = (uint16_t)(b->slots[at] - 1);
		return 0;
	}
	if (b->rules.len == RULES_MOST - 1)
		rule = TABLES_NONE;
	if (b->rules.len >= RULES_MOST) {
		*ret = RULES_MOST - 1;
		return 0;
	}
	if (vec_push(&b->rules, rule))
		return -ENOMEM;
	b->slots[at] = (uint32_t)b->rules.len;
	*ret = (uint16_t)(b->rules.len - 1);
	return 0;
}

static bool holds_call_x86(const uint8_t *code, size_t len)
{
	for (size_t i = 0; i + 2 <= len; i++)
		if ((code[i] == 0xe8 && i + 5 <= len) || (code[i] == 0xff && ((code[i + 1] >> 3) & 7) == 2))
			return true;
	return false;
}

/* bl; blr and its forms that authenticate */
static bool holds_call_a64(const uint8_t *code, size_t len)
{
	for (size_t i = 0; i + 4 <= len; i += 4) {
		uint32_t insn;

		memcpy(&insn, code + i, 4);
		if ((insn & 0xfc000000) == 0x94000000 || (insn & 0xfefff800) == 0xd63f0000 ||
			(insn & 0xfefff800) == 0xd63f0800)
			return true;
	}
	return false;
}

/* Whether a call may lie wholly in a row, so that its return address asks for it. */
static bool may_call(const struct blob_builder *b, uint64_t start, uint64_t end)
{
	const uint8_t *code;

	if (end - start > SHORT_ROW)
		return true;
	code = unwind_module_text(b->module, start, (size_t)(end - start));
	if (!code)
		return true;
	return b->input->arch == UNWIND_AARCH64 ? holds_call_a64(code, (size_t)(end - start))
						: holds_call_x86(code, (size_t)(end - start));
}

static int store_row(struct blob_builder *b, uint64_t start, uint64_t rule)
{
	uint16_t number;
	uint64_t offset = start - b->first;

	if (offset > UINT32_MAX || b->starts.len >= UINT32_MAX / 8)
		return 0;
	if (rule_number(b, rule, &number))
		return -ENOMEM;
	if (b->rule_of.len && b->rule_of.data[b->rule_of.len - 1] == number)
		return 0;
	return vec_push(&b->starts, (uint32_t)offset) || vec_push(&b->rule_of, number) ? -ENOMEM : 0;
}

/* The open row reaches up to `end`. */
static int close_row(struct blob_builder *b, uint64_t end)
{
	uint64_t rule = b->open_rule;
	unsigned kind = TABLES_KIND(rule);

	if (!b->has_open || end <= b->open_start)
		return 0;
	b->has_open = false;
	if ((kind == TABLES_SP || kind == TABLES_FP) && !may_call(b, b->open_start, end))
		rule = TABLES_NONE;
	return store_row(b, b->open_start, rule);
}

static int open_row(struct blob_builder *b, uint64_t start, uint64_t rule)
{
	if (b->has_open && rule == b->open_rule)
		return 0;
	if (close_row(b, start))
		return -ENOMEM;
	b->open_start = start;
	b->open_rule = rule;
	b->has_open = true;
	return 0;
}

/* ---- rules ---- */

/* A slot at CFA + offset in words; false when it is too far or crooked. */
static bool slot_of(int32_t offset, int64_t *ret)
{
	*ret = offset / 8;
	return offset % 8 == 0 && offset && *ret > INT16_MIN && *ret <= INT16_MAX;
}

/* One operation, DW_OP_breg of the frame pointer and its operand, alone or read from there. */
static bool frame_pointer_plus(const struct blob_builder *b, const struct cfi_section *s, int32_t start, uint16_t len,
	bool deref, int64_t *ret)
{
	struct cursor c;

	if (start < 0 || (uint64_t)start > s->size || len > s->size - (uint64_t)start)
		return false;
	c = cursor_over(s->bytes + start, len);
	if (cursor_u8(&c) != 0x70 + b->arch->fp)
		return false;
	*ret = cursor_sleb(&c);
	if (deref && cursor_u8(&c) != 0x06)
		return false;
	return !c.bad && !cursor_left(&c) && *ret > -TABLES_OFFSET_MOST && *ret < TABLES_OFFSET_MOST;
}

/* Functions that align their stack: CFA = *(fp + n), the caller's fp saved at *(fp + m). */
static uint64_t realigned_rule(
	const struct blob_builder *b, const struct cfi_section *s, const struct cfi_state *state, int64_t ra)
{
	const struct reg_rule *fp = &state->regs[b->arch->fp];
	int64_t cfa_at, fp_at;

	if (!frame_pointer_plus(b, s, state->cfa_expr, state->cfa_expr_len, true, &cfa_at) ||
		!(state->named >> b->arch->fp & 1) || fp->kind != REG_AT_EXPR ||
		!frame_pointer_plus(b, s, fp->offset, fp->expr_len, false, &fp_at) || fp_at % 8 ||
		fp_at / 8 <= INT16_MIN || fp_at / 8 > INT16_MAX)
		return TABLES_NONE;
	return TABLES_RULE(TABLES_FP_AT, cfa_at, ra, fp_at / 8);
}

/* Where the return address is, in words from the CFA; 0: in the link register. False: not so simple. */
static bool return_slot(
	const struct blob_builder *b, const struct cfi_cie *cie, const struct cfi_state *state, int64_t *ret)
{
	const struct reg_rule *ra = cie->ra_reg < CFI_SLOTS ? &state->regs[cie->ra_reg] : NULL;

	*ret = 0;
	if (!ra || cie->ra_reg != (b->arch->lr == ARCH_NO_REG ? b->arch->pc : b->arch->lr))
		return false;
	if (!(state->named >> cie->ra_reg & 1) || ra->kind == REG_SAME)
		return b->arch->lr != ARCH_NO_REG;
	return ra->kind == REG_AT_CFA && slot_of(ra->offset, ret);
}

static uint64_t rule_of_state(const struct blob_builder *b, const struct cfi_section *s, const struct cfi_cie *cie,
	const struct cfi_state *state)
{
	const struct reg_rule *fp = &state->regs[b->arch->fp];
	int64_t ra, saved = 0;

	if (cie->ra_reg < CFI_SLOTS && (state->named >> cie->ra_reg & 1) &&
		state->regs[cie->ra_reg].kind == REG_UNDEFINED)
		return TABLES_RULE(TABLES_BOTTOM, 0, 0, 0);
	if (!return_slot(b, cie, state, &ra))
		return TABLES_NONE;
	if (state->cfa_kind == CFA_EXPR)
		return realigned_rule(b, s, state, ra);
	if (state->cfa_kind != CFA_REG_OFFSET || state->cfa_offset <= -TABLES_OFFSET_MOST ||
		state->cfa_offset >= TABLES_OFFSET_MOST)
		return TABLES_NONE;
	if (state->named >> b->arch->fp & 1) {
		if (fp->kind == REG_AT_CFA ? !slot_of(fp->offset, &saved) : fp->kind != REG_SAME)
			saved = TABLES_FP_LOST;
	}
	if (state->cfa_reg == b->arch->sp)
		return TABLES_RULE(TABLES_SP, state->cfa_offset, ra, saved);
	if (state->cfa_reg == b->arch->fp)
		return TABLES_RULE(TABLES_FP, state->cfa_offset, ra, saved ? saved : TABLES_FP_LOST);
	return TABLES_NONE;
}

/* ---- pieces ---- */

struct run {
	struct blob_builder *b;
	const struct cfi_section *section;
	const struct cfi_cie *cie;
	uint64_t start, limit; /* rows from `limit` on belong to the next piece */
};

static int take_row(void *ctx, uint64_t offset, const struct cfi_state *state)
{
	struct run *run = (struct run *)ctx;
	uint64_t rule = TABLES_NONE;

	if (offset >= run->limit - run->start)
		return 0;
	if (state && state->cfa_kind != CFI_NO_CFA)
		rule = rule_of_state(run->b, run->section, run->cie, state);
	return open_row(run->b, run->start + offset, rule);
}

/* mov %reg,%rsp: no caller would find its stack again. glibc's __start_context begins with it. */
static bool leaves_stack(const struct blob_builder *b, uint64_t start)
{
	const uint8_t *code = b->input->arch == UNWIND_X86_64 ? unwind_module_text(b->module, start, 3) : NULL;

	return code && (code[0] & 0xfb) == 0x48 && code[1] == 0x89 && (code[2] & 0xc7) == 0xc4 && code[2] != 0xe4;
}

/*
 * Coroutines begin with the address of what runs after them as their return address, which asks for the byte before that
 * function. That is the bottom where the function begins by leaving the stack; any other that somebody takes
 * for this has no rule there, unless the function before it ends with a call or with a long row.
 */
static int mark_planted(struct blob_builder *b, uint64_t start)
{
	const uint8_t *code = unwind_module_text(b->module, start - 8, 8);

	if (start < 8 || start - 1 < b->end || (code && b->arch->call_before(code, 8, start).form != CALL_NONE) ||
		!leaves_stack(b, start))
		return 0;
	return open_row(b, start - 1, TABLES_RULE(TABLES_BOTTOM, 0, 0, 0));
}

static int do_fde(struct blob_builder *b, const struct piece *p, uint64_t limit)
{
	const struct cfi_section *s = p->source == FROM_EH ? &b->eh : &b->debug;
	struct cfi_cie *cie = &b->cie[p->source];
	struct cfi_fde fde;
	struct run run = {b, s, cie, p->start, limit};
	struct cfi_sink sink = {.row = take_row, .ctx = &run};

	if (!cfi_read_fde(s, p->what, cie, &fde) || fde.start != p->start)
		return open_row(b, p->start, TABLES_NONE);
	/* Its rules are expressions, which a walk needs not: it knows the layout. */
	if (cie->signal_frame) {
		for (int skip = 0; skip < 2; skip++) {
			size_t len;
			const uint8_t *code = unwind_module_code(b->module, p->start + skip, &len);

			if (code && b->arch->is_sigreturn(code, len))
				return open_row(b, p->start, TABLES_RULE(TABLES_SIGNAL, 0, 0, 0));
		}
		return open_row(b, p->start, TABLES_NONE);
	}
	return cfi_run(&b->runner[p->source], s, cie, &fde, &sink) ? -ENOMEM : 0;
}

static int do_piece(struct blob_builder *b, size_t i)
{
	const struct piece *p = &b->pieces.data[i];
	uint64_t limit = p->end;
	int rc;

	if (i + 1 < b->pieces.len && b->pieces.data[i + 1].start < limit)
		limit = b->pieces.data[i + 1].start;
	if (limit <= p->start)
		return 0;
	if (p->source == FIXED) {
		rc = open_row(b, p->start, p->what);
	} else {
		rc = mark_planted(b, p->start);
		if (!rc)
			rc = do_fde(b, p, limit);
	}
	b->end = limit;
	if (!rc)
		rc = close_row(b, limit);
	return rc ? rc : open_row(b, limit, TABLES_NONE);
}

int blob_builder_work(struct blob_builder *b, uint64_t ns)
{
	uint64_t began = ns == UINT64_MAX ? 0 : clock_monotonic_ns();

	while (b->next < b->pieces.len) {
		for (unsigned n = 0; n < FDES_A_SLICE && b->next < b->pieces.len; n++) {
			if (do_piece(b, b->next))
				return -ENOMEM;
			b->next++;
		}
		if (ns != UINT64_MAX && clock_monotonic_ns() - began >= ns)
			break;
	}
	if (b->next < b->pieces.len)
		return 0;
	return close_row(b, UINT64_MAX) ? -ENOMEM : 1;
}

int blob_builder_take(struct blob_builder *b, void **ret, size_t *ret_bytes)
{
	struct tables_blob head = {
		.first = b->first, .rows = (uint32_t)b->starts.len, .rules = (uint32_t)b->rules.len};
	size_t bytes = TABLES_RULES_AT(head.rows) + 8 * b->rules.len;
	uint8_t *blob = (uint8_t *)calloc(1, bytes);

	if (!blob)
		return -ENOMEM;
	memcpy(blob, &head, sizeof(head));
	if (head.rows) {
		memcpy(blob + sizeof(head), b->starts.data, 4 * b->starts.len);
		memcpy(blob + TABLES_RULE_OF_AT(head.rows), b->rule_of.data, 2 * b->rule_of.len);
		memcpy(blob + TABLES_RULES_AT(head.rows), b->rules.data, 8 * b->rules.len);
	}
	*ret = blob;
	*ret_bytes = bytes;
	return 0;
}
