/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/cfi_table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define COUNT_BITS 5
#define COUNT_MASK ((1U << COUNT_BITS) - 1)
#define COUNTED COUNT_MASK /* in a slot: the count stands in front of the rows */
#define ROWS_INLINE (COUNT_MASK - 1)
#define WIDE 0x80000000U /* in a counting word: two words a row */
#define MAX_WORDS (UINT32_MAX >> COUNT_BITS)

/* A gap up to the next FDE that is shorter than this is alignment padding: it gets no row of its
 * own that ends the FDE, and a lookup that lands there reads the FDE's end from the file. */
#define PADDING 16

/* FDEs that start lower but reach over the one found are looked for this far. */
#define MAX_OVERLAP 4

/* ---- expansion ---- */

struct expansion {
	struct cfi_table *t;
	const struct cfi_cie *cie;
	bool wide;
	uint32_t rows;	/* stored */
	uint32_t count; /* stored or left out */
	uint16_t last;	/* rule of the row before */
};

/* By an eighth, not by doubling: what is held is close to what is used, and growing such a block
 * moves pages, not bytes. */
static int add_word(struct cfi_table *t, uint32_t word)
{
	if (t->word_count == t->word_cap) {
		size_t cap = t->word_cap + t->word_cap / 8 + 64;
		uint32_t *words = realloc(t->words, cap * sizeof(*words));

		if (!words)
			return -ENOMEM;
		t->words = words;
		t->word_cap = cap;
	}
	t->words[t->word_count++] = word;
	return 0;
}

static int add_row(struct expansion *x, uint64_t offset, uint16_t rule)
{
	if (x->count && rule == x->last)
		return 0;
	x->last = rule;
	x->count++;
	if (!offset && !rule)
		return 0;
	x->rows++;
	if (!x->wide)
		return add_word(x->t, (uint32_t)offset << 16 | rule);
	return add_word(x->t, (uint32_t)offset) || add_word(x->t, rule) ? -ENOMEM : 0;
}

/* Go on amd64 keeps frame pointers, pushed right below the return address, but its CFI does not
 * say so. A frame that has anything in it has that. */
static bool needs_go_frame_pointer(const struct cfi_table *t, const struct cfi_state *state)
{
	return t->go && t->section.arch == UNWIND_X86_64 && state->cfa_kind == CFA_REG_OFFSET &&
	       state->cfa_reg == UNWIND_X86_RSP && state->cfa_offset > 8 &&
	       !(state->named & 1ULL << UNWIND_X86_RBP);
}

static void add_reg(struct unwind_rule *rule, const struct reg_rule *reg)
{
	rule->regs[rule->reg_count++] = *reg;
	if (reg->kind == REG_AT_EXPR || reg->kind == REG_EXPR)
		rule->debug_frame = true;
}

/* The state as a rule. Only what a rule_set looks at is set. */
static void make_rule(
	const struct expansion *x, const struct cfi_state *state, struct unwind_rule *ret)
{
	static const struct reg_rule go_frame_pointer = {
		.reg = UNWIND_X86_RBP, .kind = REG_AT_CFA, .offset = -16};
	uint64_t left = state->named;
	bool add_rbp = needs_go_frame_pointer(x->t, state);

	memset(ret, 0, offsetof(struct unwind_rule, regs));
	ret->cfa_kind = state->cfa_kind;
	if (state->cfa_kind == CFA_EXPR) {
		ret->cfa_offset = state->cfa_expr;
		ret->cfa_expr_len = state->cfa_expr_len;
	} else {
		ret->cfa_reg = state->cfa_reg;
		ret->cfa_offset = state->cfa_offset;
	}
	ret->ra_reg = x->cie->ra_reg;
	ret->signal_frame = x->cie->signal_frame;
	ret->ra_mangled = state->ra_mangled;
	ret->debug_frame = state->cfa_kind == CFA_EXPR;
	for (; left; left &= left - 1) {
		const struct reg_rule *reg = &state->regs[__builtin_ctzll(left)];

		if (add_rbp && reg->reg > UNWIND_X86_RBP) {
			add_reg(ret, &go_frame_pointer);
			add_rbp = false;
		}
		add_reg(ret, reg);
	}
	if (add_rbp)
		add_reg(ret, &go_frame_pointer);
	/* Which section only matters to expressions; without any, equal rules are one. */
	ret->debug_frame &= x->t->section.debug;
}

static int take_row(void *ctx, uint64_t offset, const struct cfi_state *state)
{
	struct expansion *x = ctx;
	struct unwind_rule rule;
	uint16_t number = RULE_NONE;

	if (state && state->cfa_kind != CFI_NO_CFA) {
		make_rule(x, state, &rule);

		int err = rule_set_add(x->t->rules, &rule, &number);

		if (err)
			return err;
	}
	return add_row(x, offset, number);
}

/* Where the FDE after this one starts; UINT64_MAX for the last. */
static uint64_t next_start(const struct cfi_table *t, size_t i)
{
	return i + 1 < t->index.count ? fde_index_start(&t->index, i + 1) : UINT64_MAX;
}

/* The rows of an FDE that was read, behind each other at the end of `words`. */
static int add_rows(struct expansion *x, const struct cfi_fde *fde, uint64_t next)
{
	struct cfi_sink sink = {.row = take_row, .ctx = x};
	int err = cfi_run(&x->t->runner, &x->t->section, x->cie, fde, &sink);

	if (!err && (next == UINT64_MAX || (next >= fde->end && next - fde->end >= PADDING)))
		err = add_row(x, fde->end - fde->start, RULE_NONE);
	return err;
}

/* The slot for `rows` rows that begin at word `at`. A count that does not fit the slot goes in
 * front of them, into the word left free there. */
static uint32_t make_slot(const struct expansion *x, size_t at)
{
	uint32_t *words = x->t->words;

	if (!x->wide && x->rows <= ROWS_INLINE) {
		memmove(words + at, words + at + 1, x->rows * sizeof(*words));
		x->t->word_count--;
		return (uint32_t)at << COUNT_BITS | x->rows;
	}
	words[at] = x->rows | (x->wide ? WIDE : 0);
	return (uint32_t)at << COUNT_BITS | COUNTED;
}

/* Fills the slot of FDE i. An FDE that cannot be read has no rule anywhere. 0; -ENOMEM, and
 * nothing changed; -ESTALE when the index and the FDE disagree. */
static int expand(struct cfi_table *t, size_t i)
{
	struct cfi_fde fde;
	struct expansion x = {.t = t, .cie = &t->cie};
	uint64_t offset = fde_index_offset(&t->index, i);
	size_t at = t->word_count;
	bool readable = cfi_read_fde(&t->section, offset, &t->cie, &fde);
	int err = add_word(t, 0);

	if (readable && fde.start != fde_index_start(&t->index, i))
		err = -ESTALE;
	readable = readable && fde.end - fde.start <= UINT32_MAX && at < MAX_WORDS;
	x.wide = readable && fde.end - fde.start > UINT16_MAX;
	if (!err)
		err = readable ? add_rows(&x, &fde, next_start(t, i)) : add_row(&x, 0, RULE_NONE);
	if (err) {
		t->word_count = at;
		return err;
	}
	if (at >= MAX_WORDS) { /* half a gigabyte of rows: no file has them, stay within bounds */
		t->word_count = at;
		return -ENOMEM;
	}
	t->slots[i] = make_slot(&x, at);
	t->rows += x.count;
	return 0;
}

/* ---- index ---- */

static void forget_rows(struct cfi_table *t)
{
	fde_index_release(&t->index);
	free(t->slots);
	t->slots = NULL;
	t->word_count = t->rows = 0;
	t->indexed = false;
}

/* Word 0 stays unused, so that the slot of an expanded FDE is never 0. */
static int make_slots(struct cfi_table *t)
{
	if (!t->word_count && add_word(t, 0))
		return -ENOMEM;
	t->slots = calloc(t->index.count ? t->index.count : 1, sizeof(*t->slots));
	return t->slots ? 0 : -ENOMEM;
}

int cfi_table_index(struct cfi_table *t, const struct unwind_section *hdr)
{
	int err = fde_index_from_hdr(&t->index, hdr, &t->section);

	if (err == -EINVAL) {
		err = fde_index_scan(&t->index, &t->section);
		t->counted = true;
	}
	t->cie.offset = UINT64_MAX;
	if (!err)
		err = make_slots(t);
	if (err)
		forget_rows(t);
	t->indexed = !err;
	return err;
}

/* The linker's table was wrong: our own instead. */
static int index_again(struct cfi_table *t)
{
	static const struct unwind_section none;

	forget_rows(t);
	return cfi_table_index(t, &none);
}

/* An address was not found. Where the linker's table is to blame, ours replaces it; true then, and
 * a second look may help. That every FDE is in the table is made sure of once. */
static bool distrust(struct cfi_table *t, uint64_t vaddr)
{
	size_t i = fde_index_find(&t->index, vaddr);
	bool wrong = !t->index.own && fde_index_is_wrong_at(&t->index, &t->section, i);

	if (!wrong && !t->counted) {
		t->counted = true;
		wrong = fde_index_count_fdes(&t->section) > t->index.count;
	}
	return wrong && !index_again(t);
}

/* ---- lookup ---- */

/* Of `count` ascending words the number that are not above `limit`. */
static size_t rows_up_to(const uint32_t *words, size_t count, size_t stride, uint32_t limit)
{
	size_t low = 0, high = count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (words[middle * stride] <= limit)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The number of the rule at `offset` into an expanded FDE; *ret_last: there is no row after it. */
static uint16_t rule_at(const struct cfi_table *t, uint32_t slot, uint32_t offset, bool *ret_last)
{
	const uint32_t *words = t->words + (slot >> COUNT_BITS);
	size_t count = slot & COUNT_MASK, found;
	bool wide = false;

	if (count == COUNTED) {
		wide = *words & WIDE;
		count = *words++ & ~WIDE;
	}
	if (wide) {
		found = rows_up_to(words, count, 2, offset);
		*ret_last = found == count;
		return found ? (uint16_t)words[2 * found - 1] : 0;
	}
	found = offset > UINT16_MAX ? count : rows_up_to(words, count, 1, offset << 16 | 0xffff);
	*ret_last = found == count;
	return found ? (uint16_t)words[found - 1] : 0;
}

/* Whether the FDE really reaches over vaddr: its end stands only in the file. */
static bool covers(struct cfi_table *t, size_t i, uint64_t vaddr)
{
	struct cfi_fde fde;

	return cfi_read_fde(&t->section, fde_index_offset(&t->index, i), &t->cie, &fde) &&
	       vaddr < fde.end;
}

static uint16_t rule_of_fde(struct cfi_table *t, size_t i, uint64_t vaddr, int *err)
{
	uint64_t offset = vaddr - fde_index_start(&t->index, i), next = next_start(t, i);
	bool last;

	if (!t->slots[i])
		*err = expand(t, i);
	if (*err || offset > UINT32_MAX)
		return RULE_NONE;

	uint16_t rule = rule_at(t, t->slots[i], (uint32_t)offset, &last);
	bool in_doubt = last && (vaddr >= next || next - vaddr < PADDING);

	return in_doubt && !covers(t, i, vaddr) ? RULE_NONE : rule;
}

static uint16_t find_rule(struct cfi_table *t, uint64_t vaddr, int *err)
{
	size_t i = fde_index_find(&t->index, vaddr);
	uint16_t rule = RULE_NONE;

	if (i == FDE_NOT_FOUND)
		return RULE_NONE;
	for (size_t back = 0; back <= MAX_OVERLAP && back <= i && rule == RULE_NONE; back++) {
		rule = rule_of_fde(t, i - back, vaddr, err);
		if (*err)
			return RULE_NONE;
	}
	return rule;
}

const struct unwind_rule *cfi_table_rule(struct cfi_table *t, uint64_t vaddr)
{
	int err = 0;

	if (!t->indexed)
		return NULL;

	uint16_t rule = find_rule(t, vaddr, &err);

	if (err == -ESTALE ? !index_again(t) : !err && rule == RULE_NONE && distrust(t, vaddr)) {
		err = 0;
		rule = find_rule(t, vaddr, &err);
	}
	return rule_set_get(t->rules, rule);
}

bool cfi_table_function(struct cfi_table *t, uint64_t vaddr, uint64_t *ret_start)
{
	size_t i = t->indexed ? fde_index_find(&t->index, vaddr) : FDE_NOT_FOUND;

	for (size_t back = 0; i != FDE_NOT_FOUND && back <= MAX_OVERLAP && back <= i; back++) {
		if (!covers(t, i - back, vaddr))
			continue;
		*ret_start = fde_index_start(&t->index, i - back);
		return true;
	}
	return false;
}

int cfi_table_expand_all(struct cfi_table *t)
{
	for (size_t i = 0; t->indexed && i < t->index.count; i++) {
		int err = t->slots[i] ? 0 : expand(t, i);

		if (err == -ESTALE) {
			err = index_again(t);
			i = SIZE_MAX; /* from the start, with an index that cannot be stale */
		}
		if (err)
			return err;
	}

	uint32_t *words = realloc(t->words, t->word_count * sizeof(*words));

	if (words) {
		t->words = words;
		t->word_cap = t->word_count;
	}
	return 0;
}

size_t cfi_table_bytes(const struct cfi_table *t)
{
	size_t slots = t->slots ? t->index.count * sizeof(*t->slots) : 0;

	return fde_index_bytes(&t->index) + slots + t->word_cap * sizeof(*t->words);
}

void cfi_table_release(struct cfi_table *t)
{
	fde_index_release(&t->index);
	cfi_runner_release(&t->runner);
	free(t->slots);
	free(t->words);
	t->slots = t->words = NULL;
	t->word_count = t->word_cap = 0;
	t->indexed = false;
}
