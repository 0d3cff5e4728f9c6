/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What is known about a code address before looking at the stack: its mapping, and which step leads
 * to its caller.
 *
 * One direct-mapped cache for all processes, keyed by module and module address, so that a library
 * is learnt once. An entry is 16 bytes and holds the common rule itself (packed.h): a warm step
 * touches the entry, the dump and the registers, nothing else. Everything that looks at code bytes
 * (roots, signal trampolines, whether the code keeps frame pointers) is decided when an entry is
 * filled, not at each step.
 */
#ifndef SONDE_UNWIND_PC_CACHE_H
#define SONDE_UNWIND_PC_CACHE_H

#include "unwind/walk_priv.h"

#define PC_CACHE_BITS 16
#define PC_KIND_SHIFT 61
#define PC_KEY_ADDRESS_BITS 39

/* key: serial, module address of the pc, whether it is a return address; 0: empty.
 * info: enum pc_kind in the upper three bits, below it the packed rule or a pointer. */
struct pc_cache_entry {
	uint64_t key;
	uint64_t info;
};

#define LIVE_SHAPE_BITS 13

/* What code that is no file says of its frame (prologue.c). key: the pc and the bytes around it. */
struct live_shape {
	uint64_t key, bits;
};

/* Where a function calls a probed one (uretprobe.c); the key hashes both and the caller's frame. */
#define PROBED_CALLS 256

struct probed_call {
	uint64_t key;
	uint32_t offset; /* in the calling function, 0: nowhere */
};

struct unwinder {
	struct unwinder_stats stats;
	struct live_shape live[1 << LIVE_SHAPE_BITS];
	struct probed_call probed[PROBED_CALLS];
	struct pc_cache_entry cache[1 << PC_CACHE_BITS];
};

/* Asks the target, and remembers the answer for this walk. */
bool walk_find_slow(struct walk *w, uint64_t addr, struct walk_mapping *ret);

/* The mapping that holds `addr`. Asks the target only when the last few do not hold it. */
static inline bool walk_find(struct walk *w, uint64_t addr, struct walk_mapping *ret)
{
	for (unsigned i = 0; i < w->recent_count; i++) {
		const struct walk_mapping *m = &w->recent[i];

		if (addr - m->start < m->end - m->start) {
			*ret = *m;
			return true;
		}
	}
	return walk_find_slow(w, addr, ret);
}

/* Works it out from code bytes and rules, and fills the entry; key 0: not to be kept. */
struct pc_info walk_pc_learn(struct walk *w, const struct walk_mapping *at, uint64_t pc,
	bool is_return, struct pc_cache_entry *e, uint64_t key);

/* 0: not to be kept. */
static inline uint64_t walk_pc_key(const struct walk_mapping *at, uint64_t pc, bool is_return)
{
	uint64_t vaddr = pc - at->bias;

	return at->key && !(vaddr >> PC_KEY_ADDRESS_BITS) ? at->key | vaddr << 1 | is_return : 0;
}

static inline struct pc_cache_entry *walk_pc_entry(const struct walk *w, uint64_t key)
{
	return &w->u->cache[key * 0x9e3779b97f4a7c15ULL >> (64 - PC_CACHE_BITS)];
}

static inline struct pc_info walk_pc_info(
	struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return)
{
	/* Memory that is no file, or a file that is not there: it may change, nothing is kept. */
	if (!at->module)
		return (struct pc_info){PC_NO_RULE, 0};

	uint64_t key = walk_pc_key(at, pc, is_return);
	struct pc_cache_entry *e = walk_pc_entry(w, key);

	if (key && e->key == key) {
		w->u->stats.cache_hits++;
		return (struct pc_info){(enum pc_kind)(e->info >> PC_KIND_SHIFT),
			e->info & ((1ULL << PC_KIND_SHIFT) - 1)};
	}
	return walk_pc_learn(w, at, pc, is_return, e, key);
}

/* Keeps what was learnt later about a pc in a file. */
void walk_pc_keep(struct walk *w, const struct walk_mapping *at, uint64_t pc, bool is_return,
	struct pc_info info);

/* Whether what was called before the return address `pc` runs on another stack than the code there. */
bool walk_changes_stack(struct walk *w, const struct walk_mapping *at, uint64_t pc);

/* Where the return address of the frame at `pc` stands when its sp is `sp`; false when its rule
 * needs more than the sp. */
bool walk_pc_return_slot(
	struct walk *w, const struct walk_mapping *at, uint64_t pc, uint64_t sp, uint64_t *ret);

#endif
