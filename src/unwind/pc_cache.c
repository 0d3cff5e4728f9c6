/* SPDX-License-Identifier: BSD-2-Clause */
#include "unwind/pc_cache.h"

#include <stdlib.h>

#include "unwind/flow.h"
#include "unwind/packed.h"

#define ENTRY_BYTES 64	 /* how much of the code at e_entry is taken for _start */
#define SWITCH_BYTES 48	 /* from where a stack is changed to the call that then runs on it */
#define STYLE_BYTES 4096 /* how far around a pc to look for frame pointer prologues */
#define KEY_SERIAL_BITS 24

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

	return serial >> KEY_SERIAL_BITS ? 0 : serial << (PC_KEY_ADDRESS_BITS + 1);
}

void unwinder_forget(struct unwinder *u, const struct unwind_module *m)
{
	uint64_t key = module_key(m);

	for (size_t i = 0; i < 1 << PC_CACHE_BITS; i++)
		if (u->cache[i].key >> (PC_KEY_ADDRESS_BITS + 1) << (PC_KEY_ADDRESS_BITS + 1) == key)
			u->cache[i] = (struct pc_cache_entry){0};
}

void unwinder_stats(const struct unwinder *u, struct unwinder_stats *ret)
{
	*ret = u->stats;
}

/* ---- mappings ---- */

bool walk_find_slow(struct walk *w, uint64_t addr, struct walk_mapping *ret)
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
		.bias = m.bias,
		.module = m.module,
		.key = m.module ? module_key(m.module) : 0,
		.id = m.id,
		.executable = m.executable,
		.uretprobes = m.uretprobes,
	};
	if (m.holds_other_code)
		return true;
	w->recent[w->recent_next] = *ret;
	w->recent_next = (w->recent_next + 1) % WALK_RECENT;
	if (w->recent_count < WALK_RECENT)
		w->recent_count++;
	return true;
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

/* Coroutines begin with the address of what is to run after them as their return address. */
static bool is_planted(struct walk *w, const struct walk_mapping *at, uint64_t pc)
{
	uint8_t code[ARCH_CALL_MAX];
	size_t len = walk_code_before(w, at, pc, code, sizeof(code));
	uint64_t start;

	return len && w->arch->call_before(code, len, pc).form == CALL_NONE &&
	       unwind_module_function(at->module, pc - at->bias, &start) && start == pc - at->bias;
}

bool walk_changes_stack(struct walk *w, const struct walk_mapping *at, uint64_t pc)
{
	uint8_t code[SWITCH_BYTES];
	size_t len = walk_code_before(w, at, pc, code, sizeof(code));

	return w->arch->changes_stack(code, len & ~(size_t)(w->arch->code_align - 1));
}

static enum pc_kind kind_by_code(struct walk *w, const struct walk_mapping *at, uint64_t pc,
	bool is_return, const struct unwind_rule *rule)
{
	uint8_t code[ARCH_CODE_MAX];
	size_t len = walk_code_from(w, at, pc, code, sizeof(code));

	if (w->arch->is_sigreturn(code, len))
		return PC_SIGRETURN;
	if (!rule && is_return &&
		(w->arch->is_thread_exit(code, len) || flow_only_ends(w->arch, code, len, pc)))
		return PC_ROOT;
	if (is_return && is_planted(w, at, pc))
		return PC_PLANTED;
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
	if (in->go && is_return && walk_changes_stack(w, at, pc))
		return (struct pc_info){PC_NO_RULE, 0};
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

struct pc_info walk_pc_learn(struct walk *w, const struct walk_mapping *at, uint64_t pc,
	bool is_return, struct pc_cache_entry *e, uint64_t key)
{
	struct pc_info info = learn_in_module(w, at, pc, is_return);

	w->u->stats.cache_misses++;
	if (key && !(info.bits >> PC_KIND_SHIFT)) {
		e->key = key;
		e->info = (uint64_t)info.kind << PC_KIND_SHIFT | info.bits;
	}
	return info;
}

void walk_pc_keep(struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return,
	struct pc_info info)
{
	uint64_t key = walk_pc_key(at, pc, is_return);
	struct pc_cache_entry *e = walk_pc_entry(w, key);

	if (!key)
		return;
	e->key = key;
	e->info = (uint64_t)info.kind << PC_KIND_SHIFT | info.bits;
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
