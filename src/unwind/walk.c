/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The walk: from the sampled registers, one caller after another.
 *
 *	pc -> mapping -> module address -> what we know about it -> step -> the caller's pc ...
 *
 * "What we know about it" comes from one direct-mapped cache for all processes, keyed by module
 * and module address, so that a library is learnt once. An entry is 16 bytes and holds the common
 * rule itself (packed.h): a warm step touches the entry, the dump and the registers, nothing else.
 * Everything that looks at code bytes (roots, signal trampolines, whether the code keeps frame
 * pointers) is decided when an entry is filled, not at each step.
 */
#include "unwind/unwind.h"

#include <stdlib.h>

#include "base/hash.h"
#include "unwind/packed.h"
#include "unwind/walk_priv.h"

#define CACHE_BITS 16
#define ENTRY_BYTES 64	 /* how much of the code at e_entry is taken for _start */
#define STYLE_BYTES 4096 /* how far around a pc to look for frame pointer prologues */

#define KIND_SHIFT 61
#define KEY_ADDRESS_BITS 39
#define KEY_SERIAL_BITS 24

/* key: serial, module address of the pc, whether it is a return address; 0: empty.
 * info: enum pc_kind in the upper three bits, below it the packed rule or a pointer. */
struct cache_entry {
	uint64_t key;
	uint64_t info;
};

struct unwinder {
	struct unwinder_stats stats;
	struct cache_entry cache[1 << CACHE_BITS];
};

int unwinder_new(struct unwinder **ret, struct err *err)
{
	struct unwinder *u = (struct unwinder *)calloc(1, sizeof(*u));

	if (!u)
		return err_nomem(err);
	*ret = u;
	return 0;
}

void unwinder_free(struct unwinder *u)
{
	free(u);
}

static uint64_t module_key(const struct unwind_module *m)
{
	uint64_t serial = unwind_module_serial(m);

	return serial >> KEY_SERIAL_BITS ? 0 : serial << (KEY_ADDRESS_BITS + 1);
}

void unwinder_forget(struct unwinder *u, const struct unwind_module *m)
{
	uint64_t key = module_key(m);

	for (size_t i = 0; i < 1 << CACHE_BITS; i++)
		if (u->cache[i].key >> (KEY_ADDRESS_BITS + 1) << (KEY_ADDRESS_BITS + 1) == key)
			u->cache[i] = (struct cache_entry){0};
}

void unwinder_stats(const struct unwinder *u, struct unwinder_stats *ret)
{
	*ret = u->stats;
}

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
	};

	return (unsigned)end < UNWIND_END_COUNT ? names[end] : "unknown";
}

const char *unwind_how_name(enum unwind_how how)
{
	static const char *const names[] = {
		[UNWIND_SAMPLED] = "sampled",
		[UNWIND_CFI] = "cfi",
		[UNWIND_FP] = "frame-pointer",
		[UNWIND_LEAF] = "leaf",
		[UNWIND_SCAN] = "scan",
	};

	return (unsigned)how <= UNWIND_SCAN ? names[how] : "unknown";
}

/* ---- mappings ---- */

static bool find_slow(struct walk *w, uint64_t addr, struct walk_mapping *ret)
{
	struct unwind_mapping m = {0};

	if (!w->target->find_mapping || !w->target->find_mapping(w->target->ctx, addr, &m) ||
		addr < m.start || addr >= m.end)
		return false;
	if (m.module && unwind_module_input(m.module)->arch != w->target->arch)
		m.module = NULL;
	*ret = (struct walk_mapping){
		.start = m.start,
		.end = m.end,
		.bias = m.module ? m.bias : 0,
		.module = m.module,
		.key = m.module ? module_key(m.module) : 0,
		.id = m.id,
		.executable = m.executable,
	};
	w->recent[w->recent_next] = *ret;
	w->recent_next = (w->recent_next + 1) % WALK_RECENT;
	if (w->recent_count < WALK_RECENT)
		w->recent_count++;
	return true;
}

bool walk_find(struct walk *w, uint64_t addr, struct walk_mapping *ret)
{
	for (unsigned i = 0; i < w->recent_count; i++) {
		const struct walk_mapping *m = &w->recent[i];

		if (addr - m->start < m->end - m->start) {
			*ret = *m;
			return true;
		}
	}
	return find_slow(w, addr, ret);
}

/* ---- what is known about a pc ---- */

static bool in_ranges(const struct unwind_module_input *in, uint64_t vaddr)
{
	for (size_t i = 0; i < in->root_count; i++)
		if (vaddr >= in->roots[i].start && vaddr < in->roots[i].end)
			return true;
	return false;
}

/* Code around `vaddr`, as much of the window as one text section holds. */
static bool keeps_frame_pointers(
	const struct arch *arch, const struct unwind_module *m, uint64_t vaddr)
{
	for (uint64_t reach = STYLE_BYTES; reach >= 32; reach /= 2) {
		uint64_t from = vaddr > reach ? vaddr - reach : 0;
		const uint8_t *code = unwind_module_text(m, from, (size_t)(vaddr + reach - from));

		if (!code && (code = unwind_module_text(m, from, (size_t)(vaddr - from))))
			return arch->keeps_frame_pointer(code, (size_t)(vaddr - from));
		if (!code && (code = unwind_module_text(m, vaddr, (size_t)reach)))
			return arch->keeps_frame_pointer(code, (size_t)reach);
		if (code)
			return arch->keeps_frame_pointer(code, (size_t)(vaddr + reach - from));
	}
	return false;
}

static enum pc_kind kind_by_code(struct walk *w, const struct walk_mapping *at, uint64_t pc,
	bool is_return, const struct unwind_rule *rule)
{
	uint8_t code[ARCH_CODE_MAX];
	size_t len = walk_code_from(w, at, pc, code, sizeof(code));

	if (w->arch->is_sigreturn(code, len))
		return PC_SIGRETURN;
	if (!rule && is_return && w->arch->is_thread_exit(code, len))
		return PC_ROOT;
	return PC_UNSEEN;
}

static bool ra_undefined(const struct unwind_rule *rule)
{
	for (unsigned i = 0; i < rule->reg_count && i < RULE_MAX_REGS; i++)
		if (rule->regs[i].reg == rule->ra_reg)
			return rule->regs[i].kind == REG_UNDEFINED;
	return false;
}

static struct pc_info learn_in_module(
	struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return)
{
	const struct unwind_module_input *in = unwind_module_input(at->module);
	uint64_t vaddr = walk_lookup_address(pc, is_return) - at->bias;

	if (in_ranges(in, vaddr))
		return (struct pc_info){PC_ROOT, 0};

	const struct unwind_rule *rule = unwind_module_rule(at->module, vaddr);
	enum pc_kind kind = kind_by_code(w, at, pc, is_return, rule);

	if (kind != PC_UNSEEN)
		return (struct pc_info){kind, 0};
	if (!rule) {
		if (in->entry && vaddr - in->entry < ENTRY_BYTES)
			return (struct pc_info){PC_ROOT, 0};
		return (struct pc_info){in->go || keeps_frame_pointers(w->arch, at->module, vaddr)
						? PC_NO_RULE
						: PC_BARE,
			0};
	}
	if (ra_undefined(rule))
		return (struct pc_info){PC_ROOT, 0};

	struct pc_info info = {PC_RULE, (uint64_t)(uintptr_t)rule};
	uint64_t bits;

	if (w->target->arch == UNWIND_X86_64 && packed_from_rule(rule, &bits))
		info = (struct pc_info){PC_PACKED, bits};
	return info;
}

static struct pc_info learn(struct walk *w, const struct walk_mapping *at, uint64_t pc,
	bool is_return, struct cache_entry *e, uint64_t key)
{
	struct pc_info info = learn_in_module(w, at, pc, is_return);

	w->u->stats.cache_misses++;
	if (key && !(info.bits >> KIND_SHIFT)) {
		e->key = key;
		e->info = (uint64_t)info.kind << KIND_SHIFT | info.bits;
	}
	return info;
}

struct pc_info walk_pc_info(
	struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return)
{
	/* Memory that is no file, or a file that is not there: it may change, nothing is kept. */
	if (!at->module)
		return (struct pc_info){PC_NO_RULE, 0};

	uint64_t vaddr = pc - at->bias, key = 0;

	if (at->key && !(vaddr >> KEY_ADDRESS_BITS))
		key = at->key | vaddr << 1 | is_return;

	uint64_t slot = key * 0x9e3779b97f4a7c15ULL >> (64 - CACHE_BITS);
	struct cache_entry *e = &w->u->cache[slot];

	if (key && e->key == key) {
		w->u->stats.cache_hits++;
		return (struct pc_info){(enum pc_kind)(e->info >> KIND_SHIFT),
			e->info & ((1ULL << KIND_SHIFT) - 1)};
	}
	return learn(w, at, pc, is_return, e, key);
}

bool walk_pc_return_slot(
	struct walk *w, const struct walk_mapping *at, uint64_t pc, uint64_t sp, uint64_t *ret)
{
	struct pc_info info = walk_pc_info(w, at, pc, true);

	if (info.kind != PC_PACKED || (info.bits & PACKED_FROM_RBP))
		return false;
	*ret = sp + 8 * packed_cfa_words(info.bits) - 8;
	return true;
}

/* ---- steps ---- */

static bool find_code(struct walk *w, uint64_t addr, struct walk_mapping *ret)
{
	return walk_find(w, addr, ret) && ret->executable;
}

int walk_accept(struct walk *w, struct step *s)
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

static void push_frame(struct walk *w, uint64_t pc, uint8_t how, uint8_t source, bool is_return)
{
	w->frames[w->count++] = (struct unwind_frame){
		.pc = pc,
		.vaddr = pc - w->at.bias,
		.mapping_id = w->at.end ? w->at.id : UINT32_MAX,
		.how = how,
		.source = source,
		.is_return = is_return,
	};
}

/* The common rule, in place. False where a word is not in the dump or something about it is off:
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

	uint64_t cfa = base + 8 * packed_cfa_words(bits), top = cfa - w->dump_start, pc;

	if (cfa <= sp || top < 8 || top > w->dump_size)
		return false;
	memcpy(&pc, w->dump + top - 8, 8);
	pc &= w->address_mask;

	uint64_t known = r->known & arch_x86_64.preserved;
	uint64_t slots = bits & PACKED_SLOTS_MASK;

	for (unsigned i = 0; slots; i++, slots >>= 5) {
		uint64_t offset = (slots & 31) * 8;

		if (!offset)
			continue;
		if (offset > top)
			return false;
		memcpy(&saved[i], w->dump + top - offset, 8);
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
		result = walk_accept(w, s);
	if (result == STEP_OK || result == UNWIND_ROOT)
		return result;

	result = step_by_fallback(w, info.kind, result, s);
	return result == STEP_OK ? walk_accept(w, s) : result;
}

/* Walks from w->at and w->regs, whose frame is the last one pushed. */
static int walk_on(struct walk *w, size_t limit)
{
	for (;;) {
		const struct unwind_frame *f = walk_frame(w);
		struct pc_info info = walk_pc_info(w, &w->at, f->pc, f->is_return);

		if (info.kind == PC_ROOT)
			return UNWIND_ROOT;
		if (info.kind == PC_PACKED && w->count < limit && step_packed(w, info.bits)) {
			push_frame(w, w->regs.value[UNWIND_X86_PC], UNWIND_CFI, UNWIND_FROM_DUMP,
				true);
			continue;
		}

		struct step s;
		int result = step_general(w, info, &s);

		if (result != STEP_OK)
			return result;
		walk_frame(w)->cfa = s.cfa;
		if (w->count == limit)
			return UNWIND_FRAME_LIMIT;
		w->regs = s.regs;
		w->at = s.at;
		push_frame(w, s.pc, s.how, s.source, s.is_return);
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
	w.read_too_high = false;
	for (unsigned i = 0; i < WALK_CODE_LINES; i++)
		w.code[i].addr = 0;
	drop_unsaved(arch, &w.regs);

	uint64_t pc = regs->value[arch->pc];

	if (!walk_find(&w, pc, &w.at))
		w.at = (struct walk_mapping){0};
	push_frame(&w, pc, UNWIND_SAMPLED, UNWIND_FROM_REGS, false);
	*ret_end = (enum unwind_end)walk_on(&w, limit);
	u->stats.walks++;
	u->stats.frames += w.count;
	return w.count;
}
