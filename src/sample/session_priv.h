/* SPDX-License-Identifier: BSD-2-Clause */
/* What session.c, stack.c, rolling.c and naming.c share. */
#ifndef SONDE_SAMPLE_SESSION_PRIV_H
#define SONDE_SAMPLE_SESSION_PRIV_H

#include "base/vec.h"
#include "sample/processes.h"
#include "sample/python/known.h"
#include "sample/python/stacks.h"
#include "sample/session.h"
#include "sample/tail.h"

#define FRAME_LIMIT 16384 /* half a millisecond a sample, in a recursion without end */

#if defined(__aarch64__)
#define SESSION_PC UNWIND_A64_PC
#define SESSION_SP UNWIND_A64_SP
#else
#define SESSION_PC UNWIND_X86_PC
#define SESSION_SP UNWIND_X86_RSP
#endif

struct session_keeper {
	const struct session_keeper_ops *ops;
	void *ctx;
};

struct session {
	struct capture_writer *writer;
	const struct source *source;
	const struct thread_selection *selection;
	struct module_store *modules;
	struct process_table *processes;
	struct unwinder *unwinder;
	bool maps_untold;            /* nobody tells when something is mapped */
	struct python_stacks *python;
	bool runs_python;            /* one of the processes does */
	VEC(struct python_follower) followers;
	VEC(struct session_python) pythons;
	struct tail tail;
	struct unwind_frame *frames; /* room for FRAME_LIMIT */
	uint32_t *frame_ids;         /* of the user frames in the last stack, in the recording */
	size_t walked;               /* of them in the last stack */
	uint64_t now_ns;             /* time of the event being handled */
	uint64_t sampled_pc;         /* of the sample being walked */
	uint64_t other_stack;        /* where it went on to another stack, 0: nowhere */
	uint64_t pending_losses[LOSS_KIND_COUNT];
	struct session_stats stats;
	unsigned perf_maps;          /* that are open */
	VEC(uint64_t) seen_ns;       /* by frame: see jit_seen(); 0: not noted */
	uint32_t truncated;          /* frame of session_truncated(); CAPTURE_NONE: not needed so far */
	VEC(uint32_t) named;         /* frames of session_named() */
	VEC(struct session_keeper) keepers;
	uint64_t rested_ns;          /* when rolling.c looked at our own memory last */
	size_t sweep_modules_above;  /* known modules; see rolling.c */
	size_t sweep_above; /* known threads and processes above which the dead are looked for */
};

/* Writes down the names of the thread and its process where that was not done yet, in the file or in
 * this segment of the window. */
void session_tell(struct session *s, struct thread *th);

/* The same for a mapping: each segment of a window is told those that its stacks run through. */
void session_tell_mapping(struct session *s, const struct process *p, struct space_mapping *m);

/* What a thread's own program calls it; nothing where it is not known or is called so already. */
void session_name_thread(struct session *s, pid_t tid, const char *name);

/* stack.c: unwinds and stores what was copied of a thread. */
void session_store_stack(struct session *s, const struct thread *th, const struct raw_stack *raw,
	struct stored_stack *ret);

/* stack.c: unwinds alone, and tells the registers of the first `limit` frames. */
size_t session_walk_regs(struct session *s, const struct thread *th, const struct raw_stack *raw,
	struct unwind_regs *regs, size_t limit);

/* stack.c: the user part alone, into s->frames; how many frames. */
size_t session_walk(struct session *s, const struct thread *th, const struct raw_stack *raw, enum unwind_end *ret_end);

/* The thread, added with its process when it was not known; NULL: out of memory. */
struct thread *session_thread(struct session *s, pid_t pid, pid_t tid);

/* rolling.c: begins a new segment of the window when that is due. */
void session_roll(struct session *s, uint64_t now_ns);

#endif
