/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/prologue.h"

#include "base/hash.h"
#include "unwind/evidence.h"
#include "unwind/pc_cache.h"

#define MAX_FUNCTION_BYTES (256u << 10) /* a start further below the pc is another function's */
#define WINDOW_BYTES 512	/* of code that is no file, read at once */
#define WINDOWS 4

struct place {
	const struct walk_mapping *at;
	uint64_t pc;
	bool is_return;
};

/* ---- shapes in 61 bits ---- */

/*
 *	bit  0..29  where registers are, words below the CFA: x86-64 six of 5 bits, aarch64 two of 15;
 *	            0: in the register, the value below: lost
 *	bit 30..45  from the register to the CFA, in words
 *	bit 46      1: the register is the frame pointer
 *	bit 59, 60  SHAPE_FOUND, SHAPE_ASKED
 */
#define SHAPE_FROM_FP (1ULL << 46)
#define SHAPE_FOUND (1ULL << 59)
#define SHAPE_ASKED (1ULL << 60)

struct slot_form {
	unsigned bits;
	uint64_t lost, max;
};

/* On x86-64 the return address stands one word below the CFA, and nothing else. */
static struct slot_form slot_form(const struct arch *arch)
{
	return arch->lr == ARCH_NO_REG ? (struct slot_form){5, 1, 31}
				       : (struct slot_form){15, 0x7fff, 0x7ffe};
}

static uint64_t pack(const struct arch *arch, const struct frame_shape *s)
{
	const struct slot_form form = slot_form(arch);
	uint64_t bits = SHAPE_FOUND;

	if (s->cfa_offset < 0 || s->cfa_offset % 8 || s->cfa_offset / 8 > 0xffff)
		return 0;
	bits |= (uint64_t)(s->cfa_offset / 8) << 30;
	if (s->cfa_reg == arch->fp)
		bits |= SHAPE_FROM_FP;
	for (unsigned i = 1; i < arch->followed_count; i++) {
		int32_t below = -s->regs[i].offset;
		uint64_t slot = s->regs[i].place == FLOW_KEPT ? 0 : form.lost;

		if (s->regs[i].place == FLOW_SAVED && below > 0 && below % 8 == 0 &&
			(uint64_t)below / 8 <= form.max && (uint64_t)below / 8 != form.lost)
			slot = (uint64_t)below / 8;
		bits |= slot << (form.bits * (i - 1));
	}
	return bits;
}

static void unpack(const struct arch *arch, uint64_t bits, struct frame_shape *ret)
{
	const struct slot_form form = slot_form(arch);

	*ret = (struct frame_shape){
		.cfa_reg = bits & SHAPE_FROM_FP ? arch->fp : arch->sp,
		.cfa_offset = (int32_t)(bits >> 30 & 0xffff) * 8,
	};
	for (unsigned i = 1; i < arch->followed_count; i++) {
		uint64_t slot = bits >> (form.bits * (i - 1)) & ((1ULL << form.bits) - 1);

		ret->regs[i].place = !slot		 ? FLOW_KEPT
				     : slot == form.lost ? FLOW_LOST
							 : FLOW_SAVED;
		ret->regs[i].offset = -8 * (int32_t)slot;
	}
}

/* ---- asking the code of a file ---- */

struct file_code {
	struct unwind_module *module;
	/* Code without frame pointers. Files that keep them are large, and not searched for starts. */
	bool bare;
};

static const uint8_t *read_module(void *ctx, uint64_t vaddr, size_t *ret_len)
{
	return unwind_module_code(((const struct file_code *)ctx)->module, vaddr, ret_len);
}

static bool is_start_in_module(void *ctx, uint64_t vaddr)
{
	const struct file_code *f = (const struct file_code *)ctx;
	uint64_t start;

	if (unwind_module_function(f->module, vaddr, &start))
		return start == vaddr;
	return f->bare && unwind_module_named_start(f->module, vaddr, &start) && start == vaddr;
}

static uint64_t ask_module(struct walk *w, const struct place *p, bool bare)
{
	struct file_code file = {p->at->module, bare};
	const struct flow_code code = {w->arch, &file, read_module, is_start_in_module};
	uint64_t pc = p->pc - p->at->bias, start, lookup = walk_lookup_address(pc, p->is_return);
	struct frame_shape shape;
	bool has_start = bare && unwind_module_named_start(file.module, lookup, &start) &&
			 lookup - start < MAX_FUNCTION_BYTES;

	return flow_frame(&code, has_start ? &start : NULL, pc, p->is_return, &shape)
		       ? pack(w->arch, &shape)
		       : 0;
}

/* ---- asking other code ---- */

struct window {
	uint64_t start;
	size_t len;
	uint8_t bytes[WINDOW_BYTES];
};

struct live_code {
	struct walk *w;
	const struct walk_mapping *at;
	struct window windows[WINDOWS];
	unsigned next;
};

/* Bytes of the target, at least INSN_MAX where there are so many. */
static const uint8_t *read_live(void *ctx, uint64_t addr, size_t *ret_len)
{
	struct live_code *c = (struct live_code *)ctx;
	struct window *win = &c->windows[c->next];

	for (unsigned i = 0; i < WINDOWS; i++) {
		uint64_t offset = addr - c->windows[i].start;

		if (offset < c->windows[i].len && c->windows[i].len - offset >= INSN_MAX) {
			*ret_len = c->windows[i].len - offset;
			return c->windows[i].bytes + offset;
		}
	}
	win->len = walk_code_from(c->w, c->at, addr, win->bytes, WINDOW_BYTES);
	win->start = addr;
	c->next = (c->next + 1) % WINDOWS;
	*ret_len = win->len;
	return win->len ? win->bytes : NULL;
}

static uint64_t ask_live(struct walk *w, const struct place *p)
{
	struct live_code live;
	const struct flow_code code = {w->arch, &live, read_live, NULL};
	struct frame_shape shape;

	live.w = w;
	live.at = p->at;
	live.next = 0;
	for (unsigned i = 0; i < WINDOWS; i++)
		live.windows[i].len = 0;
	return flow_to_return(&code, p->pc, p->is_return, &shape) ? pack(w->arch, &shape) : 0;
}

/* Code that is replaced by other code has other bytes around the same pc. */
static uint64_t live_bits(struct walk *w, const struct place *p)
{
	const uint8_t *line = walk_code_line(w, walk_lookup_address(p->pc, p->is_return));
	struct live_shape *e;
	uint64_t key;

	if (!line)
		return 0;
	key = hash_pair(hash_bytes(line, WALK_LINE_BYTES), p->pc << 1 | p->is_return) | 1;
	e = &w->u->live[key >> (64 - LIVE_SHAPE_BITS)];
	if (e->key != key)
		*e = (struct live_shape){key, ask_live(w, p)};
	return e->bits;
}

bool walk_shape(struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return,
	struct pc_info info, struct frame_shape *ret)
{
	const struct place p = {at, pc, is_return};
	uint64_t bits = info.bits;

	if (!at->end)
		return false;
	if (!at->module) {
		bits = live_bits(w, &p);
	} else if (!(bits & SHAPE_ASKED)) {
		bits = SHAPE_ASKED | ask_module(w, &p, info.kind == PC_BARE);
		walk_pc_keep(w, at, pc, is_return, (struct pc_info){info.kind, bits});
	}
	if (bits & SHAPE_FOUND)
		unpack(w->arch, bits, ret);
	return bits & SHAPE_FOUND;
}

/*
 *	bit  0..23  depth in words, bit 24..47  from the frame pointer to the CFA
 */
static uint64_t ask_depth(struct walk *w, uint64_t start)
{
	const struct unwind_frame *f = walk_frame(w);
	struct file_code file = {w->at.module, false};
	const struct flow_code code = {w->arch, &file, read_module, is_start_in_module};
	struct frame_shape s;

	if (f->pc - start > MAX_FUNCTION_BYTES ||
		!flow_from_start(&code, start - w->at.bias, f->pc - w->at.bias, &s) ||
		!s.has_depth || s.cfa_reg != w->arch->fp || s.depth < 0 || s.depth % 8 ||
		s.cfa_offset < 0 || s.cfa_offset % 8)
		return 0;
	return SHAPE_FOUND | (uint64_t)s.depth / 8 | (uint64_t)s.cfa_offset / 8 << 24;
}

bool walk_depth(struct walk *w, uint64_t start, int32_t *ret_depth, int32_t *ret_above_fp)
{
	const struct unwind_frame *f = walk_frame(w);
	uint64_t key = walk_pc_key(&w->at, f->pc, f->is_return);
	struct live_shape *e, fresh;

	if (!w->at.module)
		return false;
	key = hash_pair(key, start) | 1;
	e = walk_pc_key(&w->at, f->pc, f->is_return) ? &w->u->live[key >> (64 - LIVE_SHAPE_BITS)]
						      : &fresh;
	if (e == &fresh || e->key != key)
		*e = (struct live_shape){key, ask_depth(w, start)};
	*ret_depth = (int32_t)(e->bits & 0xffffff) * 8;
	*ret_above_fp = (int32_t)(e->bits >> 24 & 0xffffff) * 8;
	return e->bits & SHAPE_FOUND;
}

/* ---- the step ---- */

static bool find_cfa(const struct walk *w, const struct frame_shape *shape, uint64_t *ret)
{
	uint64_t sp = w->regs.value[w->arch->sp];

	if (!walk_knows(&w->regs, shape->cfa_reg))
		return false;
	*ret = w->regs.value[shape->cfa_reg] + (uint64_t)(int64_t)shape->cfa_offset;
	/* Where calls push nothing a function may have put nothing there, but has not called then. */
	return *ret % 8 == 0 && *ret - sp < WALK_STACK_BYTES &&
	       (*ret > sp || (w->arch->lr != ARCH_NO_REG && !walk_frame(w)->is_return));
}

/* Slots that the way to the return names, but are not written yet, lie below sp. */
static void recover(struct walk *w, const struct frame_shape *shape, unsigned i, uint64_t cfa,
	struct unwind_regs *ret)
{
	const unsigned reg = w->arch->followed[i];
	uint64_t slot = cfa + (uint64_t)(int64_t)shape->regs[i].offset, value;
	bool kept = shape->regs[i].place == FLOW_KEPT || slot < w->regs.value[w->arch->sp];

	if (shape->regs[i].place == FLOW_LOST)
		return;
	if (kept && walk_knows(&w->regs, reg))
		walk_set(ret, reg, w->regs.value[reg]);
	else if (!kept && walk_read_stack(w, slot, &value))
		walk_set(ret, reg, value);
}

/* Fills in the candidate's pc. STEP_OK, or why not. */
static int find_return_address(
	struct walk *w, const struct frame_shape *shape, uint64_t cfa, struct candidate *c)
{
	const struct arch *arch = w->arch;
	unsigned i = 0;

	if (arch->lr == ARCH_NO_REG) {
		c->slot = cfa - 8;
	} else {
		while (i < arch->followed_count && arch->followed[i] != arch->lr)
			i++;
		if (i == arch->followed_count || shape->regs[i].place == FLOW_LOST)
			return UNWIND_NO_RULE;
		c->slot = cfa + (uint64_t)(int64_t)shape->regs[i].offset;
		if (shape->regs[i].place == FLOW_KEPT || c->slot < w->regs.value[arch->sp]) {
			if (walk_frame(w)->is_return || !walk_knows(&w->regs, arch->lr))
				return UNWIND_NO_RULE;
			c->slot = 0;
			c->pc = w->regs.value[arch->lr];
			c->source = UNWIND_FROM_REGS;
			return STEP_OK;
		}
	}
	if (!walk_read_stack(w, c->slot, &c->pc))
		return walk_unreadable(w, c->slot) == UNWIND_TRUNCATED ? UNWIND_TRUNCATED
								       : UNWIND_NO_RULE;
	c->source = w->source;
	return STEP_OK;
}

/* Interpreters push return addresses by hand and jump: then the frame pointer found must be one. */
static bool is_pushed_by_hand(struct walk *w, const struct candidate *c, const struct step *s)
{
	uint64_t fp = s->regs.value[w->arch->fp];
	struct candidate next = {.slot = fp + 8};
	struct call_site call;

	return !c->at.module && walk_knows(&s->regs, w->arch->fp) && fp % 8 == 0 &&
	       fp >= s->cfa && fp - s->cfa < WALK_STACK_BYTES &&
	       walk_read_stack(w, next.slot, &next.pc) && candidate_glance(w, &next, &call);
}

int step_by_shape(struct walk *w, const struct frame_shape *shape, struct step *s)
{
	const struct arch *arch = w->arch;
	struct candidate c = {0};
	uint64_t cfa;
	int result;

	if (!find_cfa(w, shape, &cfa))
		return UNWIND_NO_RULE;
	result = find_return_address(w, shape, cfa, &c);
	if (result != STEP_OK)
		return result;
	if (!candidate_examine(w, &c))
		return UNWIND_NO_RULE;
	s->regs = (struct unwind_regs){0};
	s->cfa = cfa;
	for (unsigned i = 1; i < arch->followed_count; i++)
		if (arch->followed[i] != arch->lr)
			recover(w, shape, i, cfa, &s->regs);
	walk_set(&s->regs, arch->sp, cfa);
	if (c.evidence == NOT_A_CALL && !candidate_is_planted(w, &c) &&
		!is_pushed_by_hand(w, &c, s) &&
		walk_pc_info(w, &c.at, c.pc, true).kind != PC_PLANTED)
		return UNWIND_NO_RULE;
	w->source = c.source;
	candidate_take(w, &c, UNWIND_PROLOGUE, s);
	return STEP_OK;
}
