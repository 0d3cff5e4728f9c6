/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk: from the sampled registers, one caller after another.
 *
 *	pc -> mapping -> module address -> what we know about it -> step -> the caller's pc ...
 *
 * What we know about it comes from the cache in pc_cache.h; the common rule is applied in place
 * (step_packed), all else goes through step.c and fallback.c.
 */
#include "unwind/unwind.h"

#include "unwind/packed.h"
#include "unwind/pc_cache.h"
#include "unwind/walk_priv.h"

const char *unwind_end_name(enum unwind_end end)
{
	static const char *const names[UNWIND_END_COUNT] = {
		[UNWIND_ROOT] = "root",
		[UNWIND_TRUNCATED] = "truncated",
		[UNWIND_NO_RULE] = "no-rule",
		[UNWIND_BAD_RULE] = "bad-rule",
		[UNWIND_BAD_ADDRESS] = "bad-address",
		[UNWIND_NO_PROGRESS] = "no-progress",
		[UNWIND_FRAME_LIMIT] = "frame-limit",
		[UNWIND_NO_REGS] = "no-regs",
		[UNWIND_CHANGED] = "changed",
	};

	return (unsigned)end < UNWIND_END_COUNT ? names[end] : "unknown";
}

const char *unwind_how_name(enum unwind_how how)
{
	static const char *const names[UNWIND_HOW_COUNT] = {
		[UNWIND_SAMPLED] = "sampled",
		[UNWIND_CFI] = "cfi",
		[UNWIND_FP] = "frame-pointer",
		[UNWIND_LEAF] = "leaf",
		[UNWIND_SCAN] = "scan",
		[UNWIND_PROLOGUE] = "prologue",
	};

	return (unsigned)how < UNWIND_HOW_COUNT ? names[how] : "unknown";
}

/* ---- steps ---- */

static bool find_code(struct walk *w, uint64_t addr, struct walk_mapping *ret)
{
	return walk_find(w, addr, ret) && ret->executable;
}

/* Checks s->pc (strips pointer authentication, zero is the root, must be executable) and finds its
 * mapping. STEP_OK, or why the walk ends. */
static int accept(struct walk *w, struct step *s)
{
	s->pc &= w->address_mask;
	if (!s->pc)
		return UNWIND_ROOT;
	if (s->pc & (w->arch->code_align - 1))
		return UNWIND_BAD_ADDRESS;
	if (!find_code(w, walk_lookup_address(s->pc, s->is_return), &s->at))
		/* Not behind a call, but the first byte of a page: the kernel's trampolines. */
		if (!find_code(w, s->pc, &s->at))
			return UNWIND_BAD_ADDRESS;
	walk_set(&s->regs, w->arch->pc, s->pc);
	return STEP_OK;
}

static void push_frame(
	struct walk *w, uint64_t pc, uint64_t slot, uint8_t how, uint8_t source, bool is_return)
{
	if (w->target->frame_regs && w->count < w->target->frame_regs_limit)
		w->target->frame_regs[w->count] = w->regs;
	w->frames[w->count++] = (struct unwind_frame){
		.pc = pc,
		.vaddr = pc - w->at.bias,
		.slot = slot,
		.mapping_id = w->at.end ? w->at.id : UINT32_MAX,
		.how = how,
		.source = source,
		.is_return = is_return,
	};
}

/* The bytes of the stack we stand on: the dump, or the live tail once we are on it. */
static struct unwind_dump bytes_at(const struct walk *w, uint64_t sp, uint8_t *ret_source)
{
	bool on_tail = sp - w->tail.start < w->tail.size && sp - w->dump_start >= w->dump_size;

	*ret_source = on_tail ? UNWIND_FROM_LIVE : UNWIND_FROM_DUMP;
	return on_tail ? w->tail : (struct unwind_dump){w->dump_start, w->dump, w->dump_size};
}

/* The common rule, in place. False where a word is not at hand or something about it is off:
 * nothing was changed then, and the general path will say what. */
static bool step_packed(struct walk *w, uint64_t bits)
{
	struct unwind_regs *r = &w->regs;
	uint64_t sp = r->value[UNWIND_X86_RSP], base = sp, saved[PACKED_SAVES];

	if (bits & PACKED_FROM_RBP) {
		if (!walk_knows(r, UNWIND_X86_RBP))
			return false;
		base = r->value[UNWIND_X86_RBP];
	}

	const struct unwind_dump stack = bytes_at(w, sp, &w->source);
	const uint8_t *bytes = (const uint8_t *)stack.bytes;
	uint64_t cfa = base + 8 * packed_cfa_words(bits), top = cfa - stack.start, pc;

	if (cfa <= sp || top < 8 || top > stack.size)
		return false;
	memcpy(&pc, bytes + top - 8, 8);
	pc &= w->address_mask;

	uint64_t known = r->known & arch_x86_64.preserved;
	uint64_t slots = bits & PACKED_SLOTS_MASK;

	for (unsigned i = 0; slots; i++, slots >>= 5) {
		uint64_t offset = (slots & 31) * 8;

		if (!offset)
			continue;
		if (offset > top)
			return false;
		memcpy(&saved[i], bytes + top - offset, 8);
	}

	/* The next pc mostly lies in the same mapping. */
	uint64_t lookup = walk_lookup_address(pc, true);

	if (lookup - w->at.start >= w->at.end - w->at.start) {
		struct walk_mapping at;

		if (!pc || !walk_find(w, lookup, &at) || !at.executable)
			return false;
		w->at = at;
	}
	slots = bits & PACKED_SLOTS_MASK;
	for (unsigned i = 0; slots; i++, slots >>= 5) {
		if (!(slots & 31))
			continue;
		r->value[packed_regs[i]] = saved[i];
		known |= 1ULL << packed_regs[i];
	}
	r->value[UNWIND_X86_RSP] = cfa;
	r->value[UNWIND_X86_PC] = pc;
	r->known = known | 1ULL << UNWIND_X86_RSP | 1ULL << UNWIND_X86_PC;
	walk_frame(w)->cfa = cfa;
	w->slot = cfa - 8;
	return true;
}

/* Any kind of pc but the root, without shortcuts. */
static int step_general(struct walk *w, struct pc_info info, struct step *s)
{
	const struct unwind_rule *rule = NULL;
	int result = UNWIND_NO_RULE;

	if (info.kind == PC_RULE) {
		rule = (const struct unwind_rule *)(uintptr_t)info.bits;
	} else if (info.kind == PC_PACKED) {
		const struct unwind_frame *f = walk_frame(w);

		rule = unwind_module_rule(
			w->at.module, walk_lookup_address(f->pc, f->is_return) - w->at.bias);
	}
	if (info.kind == PC_SIGRETURN)
		result = step_by_sigframe(w, s);
	else if (rule)
		result = step_by_rule(w, rule, s);
	if (result == STEP_OK)
		result = accept(w, s);
	if (result == STEP_OK || result == UNWIND_ROOT)
		return result;

	result = step_by_fallback(w, info, result, s);
	return result == STEP_OK ? accept(w, s) : result;
}

/* Walks from w->at and w->regs, whose frame is the last one pushed. */
static int walk_on(struct walk *w, size_t limit)
{
	for (;;) {
		const struct unwind_frame *f = walk_frame(w);
		struct pc_info info = walk_pc_info(w, &w->at, f->pc, f->is_return);

		if (info.kind == PC_ROOT || info.kind == PC_PLANTED)
			return UNWIND_ROOT;
		if (info.kind == PC_PACKED && w->count < limit && step_packed(w, info.bits)) {
			push_frame(w, w->regs.value[UNWIND_X86_PC], w->slot, UNWIND_CFI, w->source,
				true);
			continue;
		}

		struct step s;

		w->may_switch = false;

		int result = step_general(w, info, &s);

		if (result != STEP_OK)
			return result;
		walk_frame(w)->cfa = s.cfa;
		if (w->count == limit)
			return UNWIND_FRAME_LIMIT;
		w->regs = s.regs;
		w->at = s.at;
		push_frame(w, s.pc, s.slot, s.how, s.source, s.is_return);
	}
}

/* Kernels before 5.10 or so report -1 for registers they did not save at the interrupt. */
static void drop_unsaved(const struct arch *arch, struct unwind_regs *r)
{
	if (!walk_knows(r, arch->fp) || r->value[arch->fp] != ~0ULL)
		return;
	for (unsigned reg = 0; reg < UNWIND_MAX_REGS; reg++)
		if ((arch->preserved >> reg & 1) && r->value[reg] == ~0ULL)
			r->known &= ~(1ULL << reg);
}

size_t unwinder_walk(struct unwinder *u, const struct unwind_target *target,
	const struct unwind_regs *regs, const struct unwind_dump *dump, struct unwind_frame *frames,
	size_t limit, enum unwind_end *ret_end)
{
	const struct arch *arch = arch_of(target->arch);
	struct walk w;

	*ret_end = UNWIND_NO_REGS;
	if (!walk_knows(regs, arch->pc) || !walk_knows(regs, arch->sp) ||
		(!regs->value[arch->pc] && !regs->value[arch->sp]))
		return 0;
	*ret_end = UNWIND_FRAME_LIMIT;
	if (!limit)
		return 0;

	w.u = u;
	w.target = target;
	w.arch = arch;
	w.address_mask = target->address_mask ? target->address_mask : arch->address_mask;
	w.dump = dump ? (const uint8_t *)dump->bytes : NULL;
	w.dump_start = dump ? dump->start : 0;
	w.dump_size = dump && dump->bytes ? dump->size : 0;
	w.live_stack = !dump;
	w.regs = *regs;
	w.frames = frames;
	w.count = 0;
	w.recent_count = w.recent_next = 0;
	w.source = UNWIND_FROM_REGS;
	w.slot = 0;
	w.tail = (struct unwind_dump){0};
	w.tail_changed = w.may_switch = false;
	w.read_too_high = false;
	for (unsigned i = 0; i < WALK_CODE_LINES; i++)
		w.code[i].addr = 0;
	drop_unsaved(arch, &w.regs);

	uint64_t pc = regs->value[arch->pc];

	if (!walk_find(&w, pc, &w.at))
		w.at = (struct walk_mapping){0};
	push_frame(&w, pc, 0, UNWIND_SAMPLED, UNWIND_FROM_REGS, false);
	*ret_end = (enum unwind_end)walk_on(&w, limit);
	if (*ret_end == UNWIND_TRUNCATED && w.tail_changed)
		*ret_end = UNWIND_CHANGED;
	u->stats.walks++;
	u->stats.frames += w.count;
	return w.count;
}
