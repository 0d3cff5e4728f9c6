/* SPDX-License-Identifier: BSD-2-Clause */
/* Between guards.c (files, threads, holders), guard_types.c (what a guard looks like) and lock_name.c. */
#ifndef SONDE_WAIT_GUARDS_PRIV_H
#define SONDE_WAIT_GUARDS_PRIV_H

#include "base/table.h"
#include "base/vec.h"
#include "symbol/variables.h"
#include "wait/guards.h"

#define GUARDS_MOST_FRAMES 512u
#define GUARDS_MOST_POINTERS 16u

/* An object file that code of some frame is in. */
struct guard_module {
	struct table_node node; /* by the elf_file's address */
	struct variables *variables;
	struct elf_file *file;
};

/* A pointer somewhere in a variable, itself not behind one. */
struct guard_pointer {
	uint64_t offset;
	const struct variable_type *target; /* NULL: not known */
	bool tagged; /* a number: the lowest bit is set while the lock is held, the rest is the pointer */
};

/* What matters of a type that a variable in scope has. */
struct guard_type {
	struct table_node node; /* by the type's address */
	bool is_guard;
	struct guard_pointer pointers[GUARDS_MOST_POINTERS];
	size_t pointer_count;
	bool has_flag;          /* a bool that says whether the lock is held */
	uint64_t flag_offset;
};

/* A guard in scope at a frame. */
struct guard_variable {
	const struct variable *variable;
	const struct guard_type *type;
	bool waits; /* of the wait of a condition variable, which has let go of the lock */
	bool given; /* between its declaration and this address something is given away that may be it */
};

/* A code address: what is in scope there does not depend on the thread. */
struct guard_code {
	struct table_node node; /* by the frame's id */
	struct guard_module *module; /* NULL: no file */
	bool system;                 /* in the C or C++ library */
	uint64_t address;            /* in the file, of the call */
	bool named;                  /* `waits` was found out */
	bool waits;                  /* in the wait of a condition variable */
	VEC(struct guard_variable) guards;
};

/* A guard of a thread, and what it leads to. */
struct guard_held {
	size_t frame;
	struct guard_module *module;
	const struct variable *variable;
	uint64_t pointer;
	const struct variable_type *target; /* NULL: not known */
	bool waits;    /* as in struct guard_variable */
	bool unsure;   /* it may have been given back: the thread is in such a wait, or given away */
};

struct guard_thread {
	struct table_node node; /* by tid */
	VEC(struct guard_held) held;
	VEC(struct guard_held) lost; /* what these lead to was optimised away */
};

/* A file where a process has it. */
struct guard_place {
	struct guard_module *module;
	uint64_t bias;
};

struct guard_process {
	struct table_node node; /* by pid */
	VEC(struct guard_place) places; /* of all that stacks of it lead through */
};

struct guards {
	struct snapshot *snapshot; /* borrowed */
	struct table modules, types, codes, threads, processes;
};

/* Never NULL but when out of memory. */
struct guard_code *guards_code(struct guards *g, const struct snapshot_thread *t, size_t frame);
const struct guard_process *guards_process(struct guards *g, struct snapshot_process *p);

/* One frame of a thread, to evaluate variables in. */
struct guard_memory {
	struct snapshot *snapshot;
	const struct snapshot_process *process;
};
struct variable_frame guards_frame(
	struct guard_memory *m, const struct snapshot_frame *frame, const struct unwind_regs *regs);

/* ---- guard_types.c ---- */

bool guard_name_is_guard(const char *name); /* "lock_guard<std::mutex>" */
bool guard_name_is_lock(const char *name);  /* "shared_mutex" */
const struct guard_type *guards_type(
	struct guards *g, struct variables *v, const struct variable_type *t);

/* Whether what a guard points at with `pointer` is the lock that holds the byte at `address`: not another one
 * that is part of the data which the lock protects. */
bool guard_leads_to(struct variables *v, const struct variable_type *target, uint64_t pointer,
	uint64_t address);

/* variable_find_part() for locks. */
bool guard_find_lock(struct variables *v, const struct variable_type *t, uint64_t offset,
	struct variable_part *ret, struct buf *path);

#endif
