/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * The model every report and every export is made from: stacks x weights x threads x time.
 *
 * A recording has time on the CPU, time off it, or both (enum profile_mode). Samples on the CPU all
 * weigh the same and counting them is as good as adding them up; intervals off the CPU weigh what
 * they lasted, so that there only the weights mean something. In stacks, time off the CPU hangs
 * below a frame of no code that says what the thread was in: "[futex]", "[syscall poll]",
 * "[run queue]". A function's self time is then time on the CPU, and no view has to tell them apart.
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
 * ("[kernel]+0xff.." and "[unmapped]+0x.." where there is no file). Putting a whole stripped module
 * under one name would hide the hot spots that were asked for; `reason` says why the name is missing.
 * Generated code of a process is one function, "[jit]", as far as nothing names it: its addresses
 * are of that run alone, so they say nothing, and two runs could not be compared.
 */
struct profile_function {
	const char *name;   /* never NULL */
	const char *file;   /* of one of its frames; NULL when unknown */
	uint32_t module;    /* index, PROFILE_NONE when not mapped */
	bool unresolved;    /* the name is a placeholder, or of no code: "[truncated]", "[lost]" */
	bool kernel;
	uint8_t state;      /* enum thread_state: what "[futex]" stands for; STATE_ON_CPU: it is code */
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
	uint8_t kind, how, source; /* kind: enum frame_kind, or PROFILE_FRAME_STATE */
	uint8_t role;         /* enum frame_role */
	bool is_return;
};

/* No code: the one level is the function of a state. Only leaves are such frames. */
#define PROFILE_FRAME_STATE 0xff

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
	uint64_t samples, weight; /* of its samples in the profile */
	uint64_t cpu_ns;          /* the part of `weight` on the CPU */

	/* How long it was in which state: measured where the recording says so (`exact`), else what
	 * its samples stand for. Unlike `samples` and `weight` not subject to the filter of states. */
	uint64_t state_ns[STATE_COUNT];
	uint64_t watched_ns; /* their sum */
	bool exact;

	/* Blocked all the time, and in one place (docs/heuristics/idle-threads.md). `apart`: its samples are therefore not in the profile (filter.idle_apart). */
	bool idle, apart;
	uint32_t waits_in;   /* where it was off the CPU for longest: leaf node, or PROFILE_NONE */
};

/* How a thread came to run again. */
struct profile_waker {
	uint32_t pid, tid;
	const char *name, *process; /* never NULL */
};

/* One interval off the CPU. */
struct profile_wait {
	uint64_t start_ns, duration_ns;
	uint32_t stack;       /* leaf node of code, PROFILE_NONE: not known */
	int32_t syscall;      /* number; -1 none, or not known */
	const char *syscall_name; /* NULL: not known */
	const char *awaits;   /* of a task: "asyncio.Lock"; NULL: it is a thread's */
	uint32_t waker;       /* index into wakers; PROFILE_NONE: not known, or an interrupt */
	uint32_t waker_stack; /* leaf node, PROFILE_NONE: not known */
	uint8_t waker_kind;   /* enum waker_kind */
	bool was_open;        /* began before the recording */
	bool still_open;      /* was not over at its end */
	bool thinned;         /* its samples weigh more than it lasted: others were left out */
};

/*
 * A look at a thread on the CPU, or a part of an interval off it: the time it was blocked, or the
 * time it then waited for a CPU. An interval has one such sample or two, of the same stack but for
 * the frame of the state.
 */
struct profile_sample {
	uint64_t time_ns; /* CLOCK_MONOTONIC of the recording machine; off the CPU: when it began */
	uint64_t weight;  /* ns */
	uint32_t thread;  /* index */
	uint32_t stack;   /* leaf node, PROFILE_NONE for no frame (never off the CPU) */
	uint32_t wait;    /* index into waits, PROFILE_NONE: on the CPU */
	uint32_t used_bytes;
	uint32_t live_frames; /* outermost ones that were read after the sample */
	uint16_t cpu;
	uint8_t end; /* enum unwind_end */
	uint8_t state; /* enum thread_state */
	uint8_t python; /* SAMPLE_PYTHON_... */
};

/* How far the stacks may be believed, for the samples that pass the filter. An interval off the CPU
 * is one stack, however many samples it has. Percentages are 0..100 of stacks (frames for the frame
 * ones); 0 when there is nothing to count. rooted_pct counts UNWIND_ROOT and truncated_pct
 * UNWIND_TRUNCATED, UNWIND_CHANGED and UNWIND_FRAME_LIMIT, which includes stacks that damage cut
 * short. */
struct profile_quality {
	uint64_t samples, frames; /* on and off the CPU; frames of code */
	uint64_t intervals;       /* of `samples`: those off the CPU */
	uint64_t intervals_rooted, intervals_without_stack, intervals_thinned;
	uint64_t ends[UNWIND_END_COUNT]; /* samples by the end of their stack */
	uint64_t guessed_frames;         /* UNWIND_SCAN; UNWIND_LEAF not above a sampled one */
	uint64_t guessed_roots;          /* of these: outermost frames of stacks that end there */
	uint64_t fp_frames, prologue_frames;
	uint64_t live_frames;
	uint64_t unresolved_frames;
	uint64_t python, python_torn, python_cut; /* stacks with Python frames; those that lack some of them,
						     which may have none left */
	double rooted_pct, truncated_pct, guessed_frames_pct, fp_frames_pct, prologue_frames_pct;
	double unresolved_frames_pct;
	double live_frames_pct;
	double on_cpu_rooted_pct, off_cpu_rooted_pct;
	uint64_t losses[LOSS_KIND_COUNT];
};

/* What a recording has. */
enum profile_mode {
	PROFILE_CPU,
	PROFILE_WALL, /* time on the CPU and off it */
	PROFILE_OFF_CPU,
	PROFILE_HEAP, /* no time: weights are bytes (profile_heap_weigh()) */
};

struct profile_heap; /* profile/heap.h */
struct profile_notes; /* profile/notes.h */

struct profile {
	enum profile_mode mode;
	struct profile_heap *heap; /* NULL: no allocations were recorded */
	struct profile_notes *notes; /* NULL: no program said anything */
	struct intern strings;
	VEC(struct profile_module) modules;
	VEC(struct profile_function) functions;
	VEC(struct profile_level) levels;
	VEC(struct profile_frame) frames;
	VEC(struct profile_node) nodes;
	VEC(struct profile_thread) threads;
	VEC(struct profile_sample) samples; /* by time */
	VEC(struct profile_wait) waits;     /* in no order; some belong to no sample any more */
	VEC(struct profile_waker) wakers;   /* whether they pass the filter or not */
	bool wakers_known;                  /* somebody looked: at least one interval tells */
	uint32_t truncated_function;        /* the one named "[truncated]"; always there */
	VEC(const char *) meta;             /* key, value, key, value... */
	uint64_t start_ns, end_ns;          /* CLOCK_MONOTONIC, first and last moment recorded */
	uint64_t start_realtime_ns;
	uint64_t total_weight;              /* of all samples */
	uint64_t cpu_ns;                    /* the part of it on the CPU */
	/* Of the threads that are not apart: how long they were watched, and in which states they
	 * were; zeros when the mode is PROFILE_CPU. */
	uint64_t watched_ns, state_ns[STATE_COUNT];
	uint32_t watched_threads;
	bool of_tasks;     /* samples are of tasks, by the threads that their loops run in (filter.tasks) */
	uint64_t task_ns;  /* time of tasks that was recorded, shown or not */
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
	uint32_t states;       /* keep samples in these: bits 1 << enum thread_state; 0: all */
	/* Leave out the samples of threads that were blocked all the time: one pool of idle threads
	 * outweighs everything else. Not done when all threads are such. */
	bool idle_apart;
	/* In the stacks of waits and of wakers, leave out what is below the call that the program
	 * made: the kernel, and the inside of the C library (docs/heuristics/wait-calls.md). Quality
	 * is that of whole stacks all the same. */
	bool brief_waits;
	bool no_inline;        /* one level a frame: the real function */
	/* Of stacks with Python frames. Quality is that of whole stacks all the same. */
	bool interpreter;      /* keep the interpreter's own functions (symbol/interpreter.h) */
	bool python_only;      /* keep Python frames alone, and samples that have some */
	bool native_only;      /* leave out Python frames; the interpreter's own are kept then */
	bool gil;              /* keep samples whose thread held the interpreter lock */
	bool tasks;            /* time of asyncio's tasks, instead of that of threads */
	/* Of allocations: what happened between these times since the recording began. 0: its start, its end. */
	uint64_t heap_from_ns, heap_to_ns;
};

/* Frames that a recording cut short left without names (no SYMBOL records) are named from the
 * local files when `name_locally` is set. */
struct profile_load_options {
	struct profile_filter filter;
	bool name_locally;
};

/* "futex", "run-queue": as in --state and in JSON. The second gives -EINVAL for other words. */
const char *profile_state_name(enum thread_state state);
int profile_state_by_name(const char *name, enum thread_state *ret);

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
	uint32_t first_child, next_sibling; /* indices, PROFILE_NONE; by weight, largest first */
	uint64_t self, total;  /* samples */
	uint64_t self_weight, total_weight; /* ns */
	bool inlined; /* always inlined into its caller here */
	bool guessed; /* at least one of its frames was a guess */
};

struct profile_tree {
	VEC(struct tree_node) nodes; /* nodes.data[0] is the root */
	/* By stack node, for rooted stacks and for cut ones: the tree node where its path ends, where
	 * there are samples of it. NULL in inverted trees, the second without cut stacks. */
	uint32_t *ends[2];
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

/* Where a sample with a stack stands in a tree that is not inverted. */
static inline uint32_t profile_tree_leaf(
	const struct profile_tree *t, const struct profile_sample *s)
{
	return t->ends[s->end != UNWIND_ROOT][s->stack];
}

/* ---- who woke whom ---- */

/* Blocked time under one leaf of the call tree that ended in the same way: woken by threads of one
 * name, of processes of one name, on one path. */
struct profile_wake {
	uint32_t node; /* of the tree */
	uint8_t kind;  /* enum waker_kind */
	bool asleep;   /* kind is WAKER_UNKNOWN because the recording ended first */
	uint32_t waker; /* index into wakers: one of them; PROFILE_NONE but for WAKER_THREAD */
	uint32_t path;  /* node of `paths`, PROFILE_NONE: no stack */
	uint64_t samples, weight;
};

struct profile_wakes {
	VEC(struct profile_wake) rows; /* by node, then the heaviest first */
	struct profile_tree paths;     /* the stacks of wakers; its counts mean nothing */
};

/* For all samples that were blocked; `tree` is not inverted. *ret is untouched after a failure. */
int profile_wakes_build(const struct profile *p, const struct profile_tree *tree,
	struct profile_wakes *ret, struct err *err);
void profile_wakes_release(struct profile_wakes *w);

/* The rows of one node of the tree; *ret_count may be 0. */
const struct profile_wake *profile_wakes_of(
	const struct profile_wakes *w, uint32_t node, size_t *ret_count);

/* ---- time lines ---- */

/* Samples thread by thread, each thread's by time: those of thread t are
 * samples.data[order[i]] for begin[t] <= i < begin[t + 1]. */
struct profile_timelines {
	uint32_t *order;
	size_t *begin; /* threads.len + 1 */
};
int profile_timelines_build(
	const struct profile *p, struct profile_timelines *ret, struct err *err);
void profile_timelines_release(struct profile_timelines *t);

#endif
