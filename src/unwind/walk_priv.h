/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files of the walk: walk.c (the loop), fallback.c (where no rule covers the pc),
 * uretprobe.c (where the kernel took the pc away), prologue.c (what the code says then), evidence.c
 * (what is a return address), step.c (one rule applied), pc_cache.c (what is known about a pc),
 * memory.c (who may read what);
 * each knows only those behind it.
 *
 * A walk holds the registers of the frame it stands on. A step works out the caller's in a
 * struct step, without touching the walk; only a step whose return address passed accept() in walk.c
 * is taken. So a fallback always starts from the frame as it was.
 */
#ifndef SONDE_UNWIND_WALK_PRIV_H
#define SONDE_UNWIND_WALK_PRIV_H

#include <string.h>

#include "unwind/arch.h"
#include "unwind/rule.h"
#include "unwind/table.h"

/* How far above the sampled sp an address still counts as this stack: the usual size limit. */
#define WALK_STACK_BYTES (8ULL << 20)

#define WALK_RECENT 8

/* A mapping as the walk keeps it; key is the upper part of cache keys, 0: do not cache. */
struct walk_mapping {
	uint64_t start, end, bias;
	struct unwind_module *module;
	uint64_t key;
	uint32_t id;
	bool executable, uretprobes;
};

/* What is known about a code address before looking at the stack. */
enum pc_kind {
	PC_UNSEEN,
	PC_PACKED,    /* the common rule, as bits: packed.h */
	PC_RULE,      /* any other rule */
	PC_ROOT,      /* nothing called this */
	PC_SIGRETURN, /* the kernel's signal frame is on top of the stack */
	PC_NO_RULE,   /* no CFI, in code that keeps frame pointers */
	PC_BARE,      /* no CFI, in code that does not */
	PC_PLANTED,   /* a return address no call left: the first byte of a function */
};

struct pc_info {
	enum pc_kind kind;
	uint64_t bits; /* PC_PACKED: the rule; PC_RULE: pointer to struct unwind_rule; PC_NO_RULE and
			* PC_BARE: what prologue.c knows */
};

/* Code of a target that is no file, read a cache line at a time: what calls into a function and
 * what it does next lie close together. addr 0: empty. */
#define WALK_CODE_LINES 8
#define WALK_LINE_BYTES 64

struct code_line {
	uint64_t addr; /* a multiple of WALK_LINE_BYTES */
	uint8_t bytes[WALK_LINE_BYTES];
};

struct walk {
	struct unwinder *u;
	const struct unwind_target *target;
	const struct arch *arch;
	uint64_t address_mask;

	const uint8_t *dump;
	uint64_t dump_start, dump_size; /* size 0 also where there is no dump */
	bool live_stack;		/* no dump: stack bytes come from read_memory */
	struct unwind_dump tail;	/* what read_tail gave last; size 0: nothing */
	bool tail_changed;		/* it has refused, for good */
	bool may_switch;		/* the step may lead to another stack at any address */

	struct unwind_regs regs; /* of the frame we stand on */
	struct walk_mapping at;	 /* where its pc lies; at.end == 0: nowhere */
	struct unwind_frame *frames;
	size_t count;

	struct walk_mapping recent[WALK_RECENT];
	unsigned recent_count, recent_next;
	struct code_line code[WALK_CODE_LINES];

	uint8_t source;	    /* where the last stack word came from (enum unwind_source) */
	uint64_t slot;	    /* its address */
	bool read_too_high; /* a read failed because the dump is too short */
};

/* A caller as one way of stepping sees it. */
struct step {
	struct unwind_regs regs; /* without the pc, which accept() in walk.c puts in */
	uint64_t pc, cfa, slot;
	struct walk_mapping at;
	uint8_t how, source;
	bool is_return;
};

enum step_result {
	STEP_OK = UNWIND_END_COUNT, /* otherwise an enum unwind_end */
};

static inline struct unwind_frame *walk_frame(const struct walk *w)
{
	return &w->frames[w->count - 1];
}

static inline bool walk_knows(const struct unwind_regs *r, unsigned reg)
{
	return reg < UNWIND_MAX_REGS && (r->known >> reg & 1);
}

static inline void walk_set(struct unwind_regs *r, unsigned reg, uint64_t value)
{
	r->value[reg] = value;
	r->known |= 1ULL << reg;
}

/* The address to look a frame up by. A return address may be the first byte of the next row, or
 * of the next function after a call that never returns; the call itself is the byte before. This
 * is the only place that takes the one away. */
static inline uint64_t walk_lookup_address(uint64_t pc, bool is_return)
{
	return pc - is_return;
}

/* ---- memory.c ---- */

/* A word of the stack: from the dump, beyond it from the live tail; from the target's memory without
 * more ado only where there is no dump. Sets source and slot. */
bool walk_read_stack_slow(struct walk *w, uint64_t addr, uint64_t *ret);

static inline bool walk_read_stack(struct walk *w, uint64_t addr, uint64_t *ret)
{
	uint64_t offset = addr - w->dump_start;

	w->slot = addr;
	if (__builtin_expect(w->dump_size >= 8 && offset <= w->dump_size - 8, 1)) {
		memcpy(ret, w->dump + offset, 8);
		w->source = UNWIND_FROM_DUMP;
		return true;
	}
	return walk_read_stack_slow(w, addr, ret);
}

/* Why walk_read_stack(addr) failed: UNWIND_TRUNCATED or UNWIND_BAD_RULE. */
int walk_unreadable(const struct walk *w, uint64_t addr);

/* Any other memory an expression or a GOT look-up asks for. Never the stack beyond the dump. */
bool walk_read_data(struct walk *w, uint64_t addr, void *buf, size_t len);

/* Up to `len` bytes of code from `addr` on, or ending at `addr`, clipped to the mapping and to
 * what can be read; returns how many. Before: the bytes stand at the end of nothing, buf[0..n). */
size_t walk_code_from(
	struct walk *w, const struct walk_mapping *at, uint64_t addr, uint8_t *buf, size_t len);
size_t walk_code_before(
	struct walk *w, const struct walk_mapping *at, uint64_t addr, uint8_t *buf, size_t len);

/* The WALK_LINE_BYTES of the target that hold `addr`, NULL when they cannot be read; valid until the next
 * look at code. */
const uint8_t *walk_code_line(struct walk *w, uint64_t addr);

/* ---- step.c ---- */

/* The caller's registers by `rule` of the module w->at. */
int step_by_rule(struct walk *w, const struct unwind_rule *rule, struct step *s);

/* The interrupted frame by the kernel's signal frame at sp. */
int step_by_sigframe(struct walk *w, struct step *s);

/* ---- fallback.c ---- */

/* No rule covers the pc (kind PC_NO_RULE or PC_BARE), or the one that does failed with `why`. */
int step_by_fallback(struct walk *w, struct pc_info info, int why, struct step *s);

/* ---- lost_frame.c ---- */

/* A rule covers the pc and counts from the frame pointer, which is not known: the rule failed with `why`,
 * which is returned where the frame is not found. */
int step_lost_frame(struct walk *w, int why, struct step *s);

/* ---- uretprobe.c ---- */

/* The frame stands for one whose return address the kernel keeps. The step is the caller's as far as it
 * can be proved. */
int step_over_uretprobe(struct walk *w, struct step *s);

#endif
