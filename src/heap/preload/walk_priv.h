/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between walk.c (frames), paths.c (known ones), steps.c (from one to its caller), walk_python.c (Python's), nodes.c (the
 * shared tree) and readable.c (which memory may be looked at); nobody else's.
 */
#ifndef SONDE_HEAP_PRELOAD_WALK_PRIV_H
#define SONDE_HEAP_PRELOAD_WALK_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/preload/walk.h"

/* Functions that read whatever they are told to, inline. AddressSanitizer knows of other words on the stack than C does,
 * and looks at what is inline as at what is around it: for it they stand alone. */
#ifdef __has_feature
#if __has_feature(address_sanitizer)
#define LOOKS_ANYWHERE __attribute__((noinline, unused, no_sanitize("address"), no_sanitize("undefined")))
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define LOOKS_ANYWHERE __attribute__((noinline, unused, no_sanitize("address"), no_sanitize("undefined")))
#endif
#ifndef LOOKS_ANYWHERE
#define LOOKS_ANYWHERE inline
#endif

#define WALK_MOST_FRAMES 16384u
#define WALK_RULE_SETS 512u /* of two entries each; powers of two */
#define WALK_STACK_SETS 1024u /* of four entries */
#define WALK_PATH_SETS 128u   /* of two entries */
#define WALK_PATH_FRAMES 8u
#define WALK_PATHS_MOST 56u   /* stacks of more frames are compared with the last one */
#define WALK_PATH_MARKS 4096u
#define WALK_RANGES 4u
#define WALK_HASH_FACTOR 0x9e3779b97f4a7c15ull

/*
 * A frame of the last walk that was whole.
 *
 * Its frame pointer matters only if a frame further out is found by it before it is saved or restored from elsewhere:
 * where code keeps none the register holds anything, other things all the time, and no word of it is compared.
 */
struct walk_frame {
	uint64_t pc, sp;
	uint64_t fp;   /* what it was, if it matters */
	uint64_t hash; /* of its pc, and those of all further out (and the number of the node that calls
			* the outermost one): a sum of each times the power of its place, so that it can be made from both ends */
	uint64_t power; /* of WALK_HASH_FACTOR, by how many frames there are further out */
	uint32_t node; /* 0: nobody has asked for it so far */
	uint32_t marks; /* WALK_MARKS(checks, flags); checks: those of this frame and of all further out,
			 * and of the end */
};

#define WALK_MARKS(checks, flags) ((checks) << 4 | (flags))
#define WALK_CHECKS(marks) ((marks) >> 4)
#define WALK_FLAGS(marks) ((marks) & 7)

#define WALK_EXACT 1u    /* pc is where a signal came, not a return address */
#define WALK_FP_LOST 2u  /* fp is 0 and not known */
#define WALK_LR_KNOWN 4u /* of a frame that a walk stands on: its link register is known */
#define WALK_NEEDS_FP 8u /* of a frame that is kept: fp matters */

/* A word that the walk read to get to a frame: while it is the same, so is the frame. */
struct walk_check {
	uint64_t at, value;
};

/* A frame that a walk has found, and the words that led to it. */
struct walk_fresh {
	uint64_t pc, sp, fp;
	uint64_t pc_slot, pc_word; /* slot 0: none, it is where the walk began */
	uint64_t fp_slot;          /* 0: the frame that it called had not touched it */
	uint64_t flags;
	uint64_t rule;             /* that led on from it */
};

struct walk_rule_entry {
	uint64_t address, rule;
};

/* Whole stacks, by the hashes of their innermost frames. */
struct walk_stack_set {
	uint64_t hashes[4];
	uint32_t nodes[4]; /* 0: empty */
	uint32_t turn;     /* which comes out next */
	uint32_t pad[3];
};

/* A frame of a path (paths.c): what it had when the path was made. Places are bytes above the path's stack pointer. */
struct walk_path_frame {
	uint64_t mark;  /* of its rule */
	uint64_t pc;
	uint32_t pc_at; /* where its caller's pc is */
	uint32_t sp_at; /* its own stack pointer */
	uint32_t fp_at; /* where its frame pointer was saved; UINT32_MAX: nowhere since the path began */
	uint32_t pad;
};

/* Its frame pointer, if the frame is found by that and it was saved on the way; else a word that always holds. */
struct walk_path_fp {
	uint64_t slot, value;
};

struct walk_path {
	uint64_t pc, sp;    /* of the first frame; sp 0: empty */
	uint64_t fp;        /* what it was there; if it matters (`by_fp`) */
	uint64_t sum;       /* hash of the pcs */
	uint32_t count;     /* frames; 0: the first one is none for a path */
	uint32_t last_word; /* place of the last word that is read */
	uint32_t bytes;     /* to the stack pointer of whoever called the last frame */
	uint32_t fp_at;     /* of that one, as above */
	uint8_t by_fp;      /* WALK_PATH_... */
	bool ends;          /* nobody called the last frame */
	uint8_t steady;     /* so many walks in a row have found just these pcs */
	uint8_t others;     /* so many have not */
	uint8_t pad[12];
	struct walk_path_frame frames[WALK_PATH_FRAMES];
	struct walk_path_fp fps[WALK_PATH_FRAMES]; /* looked at with WALK_PATH_SAVED_FP alone */
};

#define WALK_PATH_FIRST_FP 1u /* a frame is found by the frame pointer of the first one */
#define WALK_PATH_SAVED_FP 2u /* a frame is found by a frame pointer that was saved on the way */

_Static_assert(sizeof(struct walk_path) == 448, "whole cache lines");
_Static_assert(sizeof(struct walk_stack_set) == 64, "a cache line");

struct walk_range {
	uint64_t start, end;
};

/* Memory that is known to be readable. ranges[0] is the stack that the thread is on; it reaches at least from the sp of the
 * last walk to the highest word that was needed. */
struct walk_readable {
	struct walk_range ranges[WALK_RANGES];
	uint32_t count, pad;
};

#define PYTHON_MOST_SEEN 16384u /* frames; what is further out is left off, and the chain counts as cut */
#define PYTHON_STACK_SETS 2048u
#define PYTHON_PAGES 512u       /* powers of two */
#define PYTHON_PAIRS 1024u
#define PYTHON_TOLD 4096u

/* A chain of frames or a pair of stacks, by hash. */
struct walk_stack_entry {
	uint64_t hash;
	uint32_t node, pad; /* node 0: empty */
};

/* A frame of Python's as its node has it. */
struct python_seen {
	uint64_t pc;
	uint32_t detail, node; /* node: of those of the last new chain */
};

/* All zero at first. */
struct walk_python {
	bool used;
	uint32_t last_count;
	uint64_t epoch;   /* pages of an older one have to be asked for again; below a page */
	uint64_t pages[PYTHON_PAGES]; /* address and epoch of those that can be read */
	struct walk_stack_entry stacks[PYTHON_STACK_SETS][2]; /* chains */
	struct walk_stack_entry pairs[PYTHON_PAIRS];        /* by native and Python node */
	uint64_t told[PYTHON_TOLD];                         /* keys of code objects, and addresses of calls */
	struct python_seen fresh[PYTHON_MOST_SEEN]; /* innermost first */
	struct python_seen last[PYTHON_MOST_SEEN];  /* of the last chain that was new, outermost first */
};

struct walk_state {
	uint64_t directory;    /* header->directory that `rules` is of */
	uint64_t address_mask; /* what it says */
	uint64_t never;        /* always 0 */
	uint32_t gone;         /* header->modules_gone that all of this is of */
	uint32_t base;         /* parent of outermost frames; 0: not looked up yet */
	uint32_t count;        /* of `frames` */
	uint32_t spare;        /* a node that was taken but not used; 0: none */
	uint32_t end_checks;   /* 0 or 1: of the word that said that frames[0] has no caller */
	uint32_t alike;        /* of `frames`: their pcs, hashes and nodes belong together, whatever is on the stack now */
	uint32_t paths_off;    /* so many more walks do without paths */
	bool stale;            /* code was unmapped that the directory still has */
	uint8_t missing;       /* so many more walks found no path than found one */
	uint8_t turn;          /* which of two paths is replaced next */
	uint8_t pad[1];
	struct walk_readable readable;
	struct walk_start last; /* where the last walk began, if it was by paths; else pc is 0 */
	uint8_t pad2[40];
	struct walk_rule_entry rules[WALK_RULE_SETS][2];
	struct walk_stack_set stacks[WALK_STACK_SETS];
	struct walk_path paths[WALK_PATH_SETS][2];
	uint64_t marks[WALK_PATH_MARKS]; /* by pc: itself, exclusive or the mark of its rule */
	struct walk_frame frames[WALK_MOST_FRAMES];     /* of the last walk that was whole, outermost first */
	struct walk_check checks[2 * WALK_MOST_FRAMES + 1]; /* of those */
	struct walk_fresh fresh[WALK_MOST_FRAMES + 1];  /* of this walk, innermost first; the last is where it stands */
	struct walk_python python;
};

_Static_assert(offsetof(struct walk_state, rules) % 64 == 0, "whole cache lines");
_Static_assert(offsetof(struct walk_state, stacks) % 64 == 0, "whole cache lines");
_Static_assert(offsetof(struct walk_state, paths) % 64 == 0, "whole cache lines");

/* ---- walk.c ---- */

/* `frames` are those of the walk that was just done, however that was: its innermost is the last one. Unless it was cut. */
void walk_keep_frames(const struct walk_memory *memory, struct walk_state *state);

/* ---- paths.c ---- */

struct walk;

enum walk_paths_result {
	WALK_PATHS_KNOWN,
	WALK_PATHS_NEW,   /* most of it had to be walked by rules */
	WALK_PATHS_DEEP,  /* there are too many */
	WALK_PATHS_LOST,  /* there is no rule for one, or it cannot be followed */
};

/* *ret_hash: of the whole stack, as struct walk_frame has it. */
enum walk_paths_result walk_paths(struct walk *w, const struct walk_start *start, uint64_t *ret_hash);
void walk_paths_forget(struct walk_state *s);

/* ---- readable.c ---- */

/* The thread's stack pointer is there now. False: even that cannot be read. *ret_same: all memory that was readable at
 * the last walk still counts as readable. */
bool readable_enter(struct walk_readable *r, uint64_t sp, bool *ret_same);

/* Asks the kernel; `page`: an address that a page begins at. */
bool readable_page(uint64_t page);

/* Makes the 8 bytes at `at` readable, if they are. */
bool readable_extend(struct walk_readable *r, uint64_t at);

static inline bool readable_has(const struct walk_readable *r, uint64_t at)
{
	uint64_t start = r->ranges[0].start;

	/* Unsigned, so that what lies below fails as well; a range is never smaller than a page. */
	return __builtin_expect(at - start <= r->ranges[0].end - start - 8, 1);
}

/* ---- nodes.c ---- */

/* The node of `pc` called by `parent`, new when there is none. 0: there is no room. */
uint32_t node_find(const struct walk_memory *m, struct walk_state *s, uint32_t parent, uint64_t pc, uint32_t detail);

#endif
