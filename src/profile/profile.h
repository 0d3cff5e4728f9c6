/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model every report and every export is made from: stacks x weights x threads x time.
 *
 * A profile is loaded whole from a recording, then only read. Everything is arrays and indices;
 * all strings live in one table and are valid until profile_free(). References that a damaged file
 * left dangling are replaced on loading by PROFILE_NONE or by a placeholder, so that readers of
 * the model need no checks beyond those stated here. Control characters in strings become '?', so
 * that a name cannot drive a terminal. Once loaded a profile may be read by many threads.
 */
#ifndef SONDE_PROFILE_PROFILE_H
#define SONDE_PROFILE_PROFILE_H

#include <regex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/intern.h"
#include "base/vec.h"
#include "capture/reader.h"
#include "capture/records.h"
#include "symbol/symbol.h"
#include "unwind/unwind.h"

#define PROFILE_NONE UINT32_MAX

struct profile_module {
	const char *path; /* never NULL */
	const char *name; /* last component of path */
	uint32_t kind;    /* enum module_kind */
	uint32_t pid;
	uint8_t build_id_bytes;
	uint8_t build_id[64];
	/* Where the first process seen mapped it, for formats that want addresses; 0: unknown. */
	uint64_t start, end, bias;
};

/*
 * A function as reports count it: one name in one module.
 *
 * Code without a name is called by its place: "libfoo.so+0x1a2b40", where the function starts when
 * unwind information tells, else the address itself, which makes each address a function of its own
 * ("[jit]+0x7f..", "[kernel]+0xff.." and "[unmapped]+0x.." where there is no file). Putting a whole
 * stripped module under one name would hide the hot spots that were asked for; `reason` says why
 * the name is missing.
 */
struct profile_function {
	const char *name;   /* never NULL */
	const char *file;   /* of one of its frames; NULL when unknown */
	uint32_t module;    /* index, PROFILE_NONE when not mapped */
	bool unresolved;    /* the name is a placeholder, or of no code: "[truncated]", "[lost]" */
	bool kernel;
	uint8_t reason;     /* enum symbol_reason */
};

/* One level of a frame: what stands in a report line. */
struct profile_level {
	uint32_t function; /* index */
	uint32_t line;     /* 0 unknown */
	const char *file;  /* NULL unknown */
	bool inlined;      /* inlined into the level after it */
};

struct profile_frame {
	uint64_t address;
	uint32_t module;      /* index or PROFILE_NONE */
	uint32_t first_level; /* into levels; innermost first */
	uint32_t level_count; /* >= 1 */
	uint8_t kind, how, source;
	bool is_return;
};

/* A node of the stack tree. parent < own index, or PROFILE_NONE at the outermost frame. */
struct profile_node {
	uint32_t parent, frame;
	uint32_t depth; /* 1 for the outermost */
};

/* Every thread that was seen and passes the filter, by first appearance; some have no samples. */
struct profile_thread {
	uint32_t pid, tid;
	const char *name;    /* last name seen; never NULL */
	const char *process; /* name of the process's first thread; never NULL */
	uint64_t samples, weight;
};

struct profile_sample {
	uint64_t time_ns; /* CLOCK_MONOTONIC of the recording machine */
	uint64_t weight;  /* ns */
	uint32_t thread;  /* index */
	uint32_t stack;   /* leaf node, PROFILE_NONE for no frame */
	uint32_t used_bytes;
	uint32_t live_frames; /* outermost ones that were read after the sample */
	uint16_t cpu;
	uint8_t end; /* enum unwind_end */
};

/* How far the stacks may be believed, for the samples that pass the filter. Percentages are 0..100
 * of samples (frames for the frame ones); 0 when there is nothing to count. rooted_pct counts
 * UNWIND_ROOT and truncated_pct UNWIND_TRUNCATED, UNWIND_CHANGED and UNWIND_FRAME_LIMIT, which
 * includes stacks that damage cut short. */
struct profile_quality {
	uint64_t samples, frames;
	uint64_t ends[UNWIND_END_COUNT]; /* samples by the end of their stack */
	uint64_t guessed_frames;         /* UNWIND_SCAN; UNWIND_LEAF not above a sampled one */
	uint64_t guessed_roots;          /* of these: outermost frames of stacks that end there */
	uint64_t fp_frames;
	uint64_t live_frames;
	uint64_t unresolved_frames;
	double rooted_pct, truncated_pct, guessed_frames_pct, fp_frames_pct, unresolved_frames_pct;
	double live_frames_pct;
	uint64_t losses[LOSS_KIND_COUNT];
};

struct profile {
	struct intern strings;
	VEC(struct profile_module) modules;
	VEC(struct profile_function) functions;
	VEC(struct profile_level) levels;
	VEC(struct profile_frame) frames;
	VEC(struct profile_node) nodes;
	VEC(struct profile_thread) threads;
	VEC(struct profile_sample) samples; /* by time */
	uint32_t truncated_function;        /* the one named "[truncated]"; always there */
	VEC(const char *) meta;             /* key, value, key, value... */
	uint64_t start_ns, end_ns;          /* CLOCK_MONOTONIC, first and last moment recorded */
	uint64_t start_realtime_ns;
	uint64_t total_weight;
	struct record_cost cost;
	uint64_t file_bytes;
	uint32_t end_reason; /* enum end_reason; meaningful when !damage.no_end */
	struct capture_damage damage;
	struct profile_quality quality;
};

/* What to leave out. All-zero: nothing. */
struct profile_filter {
	const regex_t *thread; /* keep threads whose name matches */
	bool main_only;        /* keep each process's first thread */
	uint32_t tid;          /* keep this thread; 0: all */
	bool no_inline;        /* one level a frame: the real function */
};

/* Frames that a recording cut short left without names (no SYMBOL records) are named from the
 * local files when `name_locally` is set. */
struct profile_load_options {
	struct profile_filter filter;
	bool name_locally;
};

int profile_load(const char *path, const struct profile_load_options *options,
	struct profile **ret, struct err *err);
int profile_load_memory(const void *bytes, size_t size, const struct profile_load_options *options,
	struct profile **ret, struct err *err);
void profile_free(struct profile *p);

/* The value of a META key, the last one written; NULL when absent. */
const char *profile_meta(const struct profile *p, const char *key);

/* Levels of a whole stack, leaf first (inlines innermost first). Returns how many there are; writes
 * at most `limit` level indices. */
size_t profile_stack_levels(
	const struct profile *p, uint32_t node, uint32_t *ret_levels, size_t limit);

/* Samples in which a function was on top (self) and anywhere (total, recursion counted once),
 * in samples and in weight. An array of functions.len, to be freed by the caller. "[truncated]" has
 * the samples that hang under it in the tree as total, and those without any frame as self. */
struct profile_count {
	uint64_t self, total, self_weight, total_weight;
};
int profile_count_functions(const struct profile *p, struct profile_count **ret, struct err *err);

/* ---- the call tree: stacks merged by function ---- */

struct tree_node {
	uint32_t function;     /* PROFILE_NONE at the root node (index 0) */
	uint32_t parent;       /* index */
	uint32_t first_child, next_sibling; /* indices, PROFILE_NONE; by total, largest first */
	uint64_t self, total;  /* samples */
	uint64_t self_weight, total_weight;
	bool inlined; /* always inlined into its caller here */
	bool guessed; /* at least one of its frames was a guess */
};

struct profile_tree {
	VEC(struct tree_node) nodes; /* nodes.data[0] is the root */
};

/*
 * Not inverted: callers above callees. Stacks that do not reach their root hang under a node for
 * the function named "[truncated]", and samples without frames are its `self`.
 *
 * Inverted: leaves at the root (who calls this), at most PROFILE_INVERTED_DEPTH levels of a stack;
 * `self` counts the stacks whose outermost frame this is. Samples without frames are as above.
 *
 * In both, total = self + the totals of the children. *ret is untouched after a failure.
 */
#define PROFILE_INVERTED_DEPTH 1024
int profile_tree_build(
	const struct profile *p, bool inverted, struct profile_tree *ret, struct err *err);
void profile_tree_release(struct profile_tree *t);

#endif
