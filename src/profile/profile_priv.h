/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * Between the files that load a profile:
 *   load.c    records -> struct loader
 *   naming.c  frames without SYMBOL records -> names from local files
 *   finish.c  struct loader -> what profile.h promises
 *   states.c  the same for time off the CPU
 *   python.c  what is shown of stacks with Python frames
 *   notes.c   what programs say themselves
 *   heap_load.c  allocations, from their records to what heap.h promises
 */
#ifndef SONDE_PROFILE_PROFILE_PRIV_H
#define SONDE_PROFILE_PROFILE_PRIV_H

#include "capture/id_table.h"
#include "profile/heap.h"
#include "profile/notes.h"
#include "profile/profile.h"

/* Ids of a recording -> positions in our arrays. Ids ascend in a file, so a list of them in order
 * serves: position i holds ids[i], and as long as nothing was lost that is i itself. */
struct id_map {
	VEC(uint32_t) ids;
};

/* The position, or PROFILE_NONE. */
uint32_t id_map_find(const struct id_map *m, uint32_t id);

/* Whether a record may define this id: ids ascend, and CAPTURE_NONE is none. */
static inline bool id_map_accepts(const struct id_map *m, uint32_t id)
{
	return id != CAPTURE_NONE && (!m->ids.len || id > m->ids.data[m->ids.len - 1]);
}

struct loaded_level {
	const char *name; /* NULL: lost with a damaged block */
	const char *file; /* NULL: unknown */
	uint32_t line;
};

/* What is known about the name of a frame. `known`: somebody tried to name it. */
struct frame_name {
	uint32_t first, count; /* into loader.levels, innermost first */
	uint8_t reason;        /* enum symbol_reason */
	bool known;
	uint64_t function_start; /* of a function without a name; 0: not known */
};

/* Identifies a module's file besides its build id. */
struct module_file {
	uint64_t inode, device;
};

struct loaded_process {
	uint32_t pid;
	const char *command;
};

/* What is needed of allocations while they are loaded. */
struct heap_loader {
	struct id_map site_ids;
	struct id_table process_ids, flow_ids, thread_ids; /* of the heap's arrays */
	bool ranged;                   /* only what happened from from_ns to to_ns */
	uint64_t from_ns, to_ns;
	VEC(struct heap_sum) before;   /* by site, with a range: up to from_ns */
	struct record_heap_total total, total_before;
};

struct loader {
	struct profile *p;
	const struct profile_load_options *options;
	struct id_map string_ids, module_ids, frame_ids, node_ids;
	VEC(const char *) strings;        /* by position */
	VEC(struct module_file) files;    /* by module */
	VEC(struct frame_name) names;     /* by frame */
	VEC(struct loaded_level) levels;
	VEC(uint8_t) cut_nodes;           /* by node: its parents were lost */
	VEC(struct loaded_process) processes; /* one each pid, with its last command */
	struct id_table process_ids;          /* processes by pid */
	struct id_table thread_ids;       /* profile.threads by (pid, tid) */
	VEC(uint32_t) waker_threads;      /* by wait: position in profile.threads, PROFILE_NONE */
	struct id_table function_ids;     /* profile.functions by name and module */
	uint64_t last_ns;                 /* latest time of any record */
	uint64_t end_ns;                  /* of the END record, 0 without one */
	struct heap_loader heap;
};

/* `bytes` as a string that lives as long as the profile, control characters replaced; NULL when
 * out of memory. */
const char *loader_text(struct loader *l, const char *bytes, size_t len);

/* The string of an id, NULL when it was lost or is CAPTURE_NONE. */
const char *loader_string(const struct loader *l, uint32_t id);

/* The index of a thread, added when it is new; PROFILE_NONE when out of memory. */
uint32_t loader_thread(struct loader *l, uint32_t pid, uint32_t tid);

/* What a process is called; NULL when out of memory. Before threads without names have been given some. */
const char *loader_process_name(struct loader *l, uint32_t pid);

/* ---- allocations (heap_load.c); 0 or -ENOMEM ---- */

/* Before the first record: what the filter asks for; `start_ns`: of the recording. */
void loader_heap_range(struct loader *l, uint64_t start_ns);
int loader_heap_record(struct loader *l, const struct record_header *record);
void loader_heap_exit(struct loader *l, uint32_t pid);
/* Threads become others, PROFILE_NONE: they are left out. And the same of stack nodes. */
int loader_heap_filter(struct loader *l, const uint32_t *kept_as);
void loader_heap_move_nodes(struct loader *l, const uint32_t *as);
/* Of processes; before threads without names have been given some. */
int loader_heap_names(struct loader *l);
/* Last, when the profile has its times. */
void loader_heap_finish(struct loader *l);
void loader_heap_release(struct loader *l);
void profile_heap_free(struct profile_heap *h);

/* ---- what programs say (notes.c) ---- */

int loader_note(struct loader *l, const struct record_header *record); /* 0 or -ENOMEM */
void profile_notes_free(struct profile_notes *n);

/* The process, NULL when none of that number was recorded; and the hash of one by its position, for
 * process_ids. */
struct loaded_process *loader_process(const struct loader *l, uint32_t pid);
uint64_t loader_process_hash(const void *ctx, uint32_t index);

/* The last command line of a process, NULL when none was recorded. */
const char *loader_command(const struct loader *l, uint32_t pid);

/* Names frames that nobody has named from the files they came from, as far as these still are what
 * they were. Only running out of memory is an error. */
int loader_name_locally(struct loader *l, struct err *err);

/* Functions and levels of all frames, threads and their filter, samples, quality. */
int loader_finish(struct loader *l, struct err *err);

/* The function "[futex]" of a state; PROFILE_NONE when out of memory. */
uint32_t loader_state_function(struct loader *l, const char *name, enum thread_state state);

/* Times that cannot be those of a thread are not taken. */
void loader_set_times(struct profile_thread *t, const struct record_thread_times *r);

/* The steps for time off the CPU (states.c), in this order; 0 or -ENOMEM. The third drops samples
 * of states that are not asked for, and of threads that are apart. */
void loader_find_mode(struct loader *l);
int loader_add_state_frames(struct loader *l);
int loader_thread_states(struct loader *l);
void loader_filter_samples(struct loader *l);

/* Samples of stacks without what the filter asks of Python (python.c): dropped. Then, when quality was
 * measured, frames that are not to be shown leave the stacks. 0 or -ENOMEM. */
int loader_filter_python(struct loader *l);
int loader_hide_frames(struct loader *l);

/* Whether a frame was guessed; `inner` is the frame it called, NULL for the leaf. */
static inline bool frame_is_guess(const struct profile_frame *f, const struct profile_frame *inner)
{
	return f->how == UNWIND_SCAN ||
		(f->how == UNWIND_LEAF && inner && inner->how != UNWIND_SAMPLED);
}

/* In a state that somebody else ends: who waits for a CPU is woken by nobody. */
static inline bool is_blocked(const struct profile_sample *s)
{
	return s->wait != PROFILE_NONE && s->state != STATE_RUN_QUEUE &&
	       s->state != STATE_THROTTLED;
}

/* Samples and weight by stack node: of the samples whose leaf it is. */
struct node_weight {
	uint64_t samples, weight;
};

enum stack_class {
	STACK_ROOTED,
	STACK_CUT,
	STACK_CLASS_COUNT,
};

struct leaf_weights {
	struct node_weight *by_node[STACK_CLASS_COUNT]; /* arrays of nodes.len */
	struct node_weight no_stack;                    /* samples without frames */
	bool any_cut; /* there is something in STACK_CUT or in no_stack */
};

/* 0 or -ENOMEM. */
int leaf_weights_init(const struct profile *p, struct leaf_weights *ret);
void leaf_weights_release(struct leaf_weights *w);

/* The tree of the stacks that have a weight in `by_node`, not inverted, all taken to be whole. */
int tree_of_stacks(const struct profile *p, const struct node_weight *by_node,
	struct profile_tree *ret);

/* Turns weights of leaves into weights of subtrees, in place. */
void leaf_weights_sum(const struct profile *p, struct node_weight *by_node);

#endif
