/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A recording session: what samplers tell, in time order, becomes stacks in the recording.
 *
 * Samplers (sample/perf/ ...) deliver raw samples and address space events through the
 * session_* calls below, sorted by time. The session keeps the process table, unwinds each
 * sample at once (so that stack bytes are never stored) and writes records. It opens files of the
 * target and reads its memory, and never stops it.
 */
#ifndef SONDE_SAMPLE_SESSION_H
#define SONDE_SAMPLE_SESSION_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "capture/window.h"
#include "capture/writer.h"
#include "os/proc.h"
#include "python/python.h"
#include "sample/modules.h"
#include "sample/source.h"
#include "unwind/unwind.h"

/* Which threads are sampled; all-zero: all. */
struct thread_selection {
	const regex_t *name; /* match anywhere in the thread's name */
	bool main_only;      /* the first thread of each process */
	pid_t tid;           /* this thread alone; 0: any */
};

struct session;

/* The writer and the selection are borrowed until session_free(). */
int session_new(struct capture_writer *w, const struct thread_selection *selection,
	struct session **ret, struct err *err);
void session_free(struct session *s);

/* A session whose recording is nobody's, for stacks and names alone, of processes that `source` (borrowed)
 * tells of. *ret_writer is the caller's, to abandon after session_free(). */
int session_new_unrecorded(const struct thread_selection *selection, const struct source *source,
	struct capture_writer **ret_writer, struct session **ret, struct err *err);

/* A process that was running before the session: reads its mappings, threads and names. Call after
 * the sampler watches it. -ESRCH when it is gone. */
int session_adopt(struct session *s, pid_t pid, struct err *err);

/* A child of ours that has not yet called exec: what is sampled of it before its new program runs is
 * exec itself. */
void session_expect_exec(struct session *s, pid_t pid);

/* The chain of Python frames of one thread state, copied with the registers. */
struct raw_chain {
	uint64_t state; /* the PyThreadState whose it is */
	struct python_chain chain; /* PYTHON_CUT: the rest is read when the stack is stored, if it still stands */
	bool holds_gil;
};

/* Whether what CPython keeps of a thread may be read when its stack is stored. */
enum python_when {
	PYTHON_NOT_NOW, /* it runs: its frames are others by now */
	PYTHON_STILL,   /* it stands still until the call is over: what is read is exact */
	PYTHON_LIVE,    /* it runs, and is read all the same: what does not fit its stack is left out, and told */
};

/* One look at one thread: what a sampler copied, borrowed during the call. */
struct raw_stack {
	const uint64_t *kernel_ips; /* leaf first, without context markers; may be empty */
	size_t kernel_count;
	bool kernel_thread; /* the kernel part is the whole stack */
	bool has_regs;      /* else there is a user part that cannot be unwound (32-bit code) */
	struct unwind_regs regs; /* `known` says which of them were copied */
	struct unwind_dump dump;
	/* The end of the dump and what lies beyond it, as read a moment later (tail.h); may be
	 * empty. What it does not hold is read when the stack is unwound. */
	struct unwind_dump early;
	/* Of another stack that its frame pointers lead to, as read before `early`; may be empty. */
	struct unwind_dump other;
	/* Python frames: those that were copied (of each interpreter that the thread is in), else what its
	 * memory says. */
	const struct raw_chain *chains;
	size_t chain_count;
	enum python_when python;
	uint64_t look; /* memory that was read for Python is good for all stacks with the same number, from 1 */
};

struct raw_sample {
	uint64_t time_ns;
	pid_t pid, tid;
	uint16_t cpu;
	uint64_t weight_ns; /* of every sample in the recording */
	uint64_t period_ns; /* CPU time the thread has between its samples, 0: weight_ns; where it is
			       another, samples are left out or repeated to fit */
	struct raw_stack stack;
};

/* What became of a stack. */
struct stored_stack {
	uint32_t leaf; /* its node in the recording; CAPTURE_NONE: no frame at all */
	enum unwind_end end;
	uint32_t used_bytes, live_frames; /* as in struct record_sample */
	uint8_t python; /* SAMPLE_PYTHON_... */
	bool has_python; /* there are frames of Python's in it */
	bool switched; /* the stack goes on in another place, */
	uint32_t other_bytes; /* and used so many bytes there, as far as it could be read */
};

/* A thread was on a CPU. `ret` (may be NULL) tells what became of the stack, so that the sampler
 * can copy more the next time; true when that was filled in: the sample was not left out. */
bool session_sample(struct session *s, const struct raw_sample *raw, struct stored_stack *ret);

/* Unwinds a stack now, for an interval that is told later: of the thread itself, or of the one that
 * woke it, selected or not. False: out of memory. */
bool session_stack(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns,
	const struct raw_stack *raw, struct stored_stack *ret);

/* The user frames of the stack that was stored last, leaf first, by their ids in the recording. Valid
 * until the next one. */
size_t session_last_frames(const struct session *s, const uint32_t **ret);

/* The same frames as they were found. */
const struct unwind_frame *session_last_walk(const struct session *s);

/* A Python frame of a stack. */
struct placed_frame {
	size_t before; /* it stands in front of this native frame (leaf first), which runs it; their number: outside
			  of all that are known */
	size_t order;
	uint32_t id;   /* in the recording */
	struct python_frame frame;
};

/* The Python frames of the stack that was stored last, innermost first. Valid until the next one. */
size_t session_last_python(const struct session *s, const struct placed_frame **ret);

/* The CPython in a process, its memory read by `reader`, one of its threads that is alive; NULL: it has none, or
 * none that can be read, and *ret_refusal says why or is "". Both are the session's. */
struct python *session_python(struct session *s, pid_t pid, pid_t reader, const char **ret_refusal);

/* What Python calls the threads of a process, by our ids; nothing where it has no CPython that can be read. */
void session_python_names(struct session *s, pid_t pid, pid_t reader,
	void (*each)(void *ctx, pid_t tid, const char *name), void *ctx);

/* Its threads as they are now, ascending by tid, and how many; what was read of its memory before is forgotten.
 * Valid until the next call for the process. */
struct known_python_thread;
size_t session_python_threads(struct session *s, pid_t pid, pid_t reader, const struct known_python_thread **ret);

/* Walks a stack for the registers of its frames, as in struct unwind_target; nothing is stored. How many
 * frames there are, of which the last walk tells all. */
size_t session_frame_regs(struct session *s, pid_t pid, pid_t tid, const struct raw_stack *raw,
	struct unwind_regs *regs, size_t limit);

/*
 * Stacks that somebody else has walked come frame by frame, outermost first: `pc` is a return address in a frame of
 * `pid` that is called by `parent`. How it was found says `how`. The number of the stack up to there.
 */
uint32_t session_called(
	struct session *s, pid_t pid, uint32_t parent, uint64_t pc, enum unwind_how how);

/* A stack that was copied in front of a call: registers of the frame that makes it, `pc` the return address. It is
 * walked here, and stored as if it had come by session_called(). CAPTURE_NONE: there is no frame. */
uint32_t session_walk_called(
	struct session *s, pid_t pid, pid_t tid, uint64_t time_ns, const struct raw_stack *raw);

/* The same, but it is not stored: its frames as session_called() takes them, innermost first; how many. *ret_rooted: the outermost
 * one is there. */
size_t session_walk_only(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns, const struct raw_stack *raw, uint64_t *pcs,
	size_t limit, bool *ret_rooted);

/* The parent of the outermost known frame of a stack whose callers are not known: a frame "[truncated]". */
uint32_t session_truncated(struct session *s);

/* The process says itself that the `bytes` at `address`, memory without a file, are the function `name` from time_ns on. */
void session_told_code(
	struct session *s, pid_t pid, uint64_t time_ns, uint64_t address, uint64_t bytes, const char *name);

/* A frame of no code, called by `parent`, that has this name from the start. The number of the stack up to there. For a few
 * names. */
uint32_t session_named(struct session *s, uint32_t parent, const char *name);

/* Reads the mappings of a process now, because some are known to have changed. 0; -ESRCH, -EACCES. */
int session_read_maps(struct session *s, pid_t pid, struct err *err);

/* Its executable mappings as they are known now, ascending; valid during the call. */
void session_each_mapping(struct session *s, pid_t pid,
	void (*fn)(void *ctx, const struct unwind_mapping *m), void *ctx);

/* A thread was off the CPU; fields as in struct record_off_cpu. In order of `start_ns +
 * duration_ns`; not necessarily in order with samples. */
struct off_cpu_interval {
	uint64_t start_ns, duration_ns, blocked_ns, queued_ns;
	pid_t pid, tid;
	uint16_t cpu;
	enum thread_state state;
	int syscall;
	bool was_open, still_open;
	struct stored_stack stack;
	enum waker_kind waker;
	pid_t waker_pid, waker_tid;
	uint32_t waker_stack; /* leaf node or CAPTURE_NONE */
};
void session_off_cpu(struct session *s, const struct off_cpu_interval *interval);

/* The times of a thread so far; the last call counts. `ns` by enum thread_state. */
struct thread_times {
	uint64_t since_ns, until_ns;
	uint64_t ns[STATE_COUNT];
};
void session_thread_times(
	struct session *s, pid_t pid, pid_t tid, const struct thread_times *times);

/* pid mapped something executable; `m` as in /proc/PID/maps. */
void session_mapped(struct session *s, pid_t pid, uint64_t time_ns, const struct proc_mapping *m);
void session_renamed(
	struct session *s, pid_t pid, pid_t tid, const char *name, bool exec, uint64_t time_ns);
void session_forked(struct session *s, pid_t ppid, pid_t pid, pid_t ptid, pid_t tid, uint64_t time_ns);
void session_exited(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns);

/* The processes that are known to live, in no order. */
void session_each_process(struct session *s, void (*fn)(void *ctx, pid_t pid), void *ctx);

/* Something was lost; counted now, written at the next session_flush(). */
void session_lost(struct session *s, enum loss_kind kind, uint64_t count);

/* What was given to session_new(); it does not change, so other threads of ours may look at it. */
const struct thread_selection *session_selection(const struct session *s);

/* The sampler does not tell of mappings: they are read again when an address is in none of them. */
void session_maps_untold(struct session *s);

/* Whether the process was adopted, expected, or forked by one that was; or woke a thread of those. */
bool session_knows(const struct session *s, pid_t pid);

/* What the thread is called, as known so far; NULL: it is not known. Valid until the next event. */
const char *session_thread_name(struct session *s, pid_t tid);

/* Whether the thread, as known so far, is one to be sampled. */
bool session_selects(struct session *s, pid_t tid);

/* Writes what is pending, so that a kill -9 from now on loses nothing older. */
void session_flush(struct session *s, uint64_t now_ns);

/*
 * Into a rolling window (capture/window.h) numbers of stacks hold only until the next session_sample()
 * or session_flush(), and what was told is forgotten some time. Whoever keeps numbers for longer, or
 * tells times or intervals only when they are over, says so. -ENOMEM.
 */
struct session_keeper_ops {
	/* A new segment began: session_kept_stack() for each number (CAPTURE_NONE or not), and times so
	 * far are to be told again. */
	void (*carry)(void *ctx, struct session *s, uint64_t now_ns);
	/* The window is about to be written: tells what is not over. It is not called again. */
	void (*tell_open)(void *ctx, uint64_t now_ns);
};
int session_keep(
	struct session *s, const struct session_keeper_ops *ops, void *ctx, struct err *err);
void session_kept_stack(struct session *s, uint32_t *leaf);

/* Calls all tell_open. */
void session_tell_open(struct session *s, uint64_t now_ns);

/* From now on the session writes to `w`, a file into which its window was written with this map. All
 * known processes and threads are named in it. For the end of a session: nothing can be sampled after
 * that. */
void session_move(
	struct session *s, struct capture_writer *w, const struct capture_window_map *map);

struct session_stats {
	uint64_t samples, frames, weight_ns;
	uint64_t ends[UNWIND_END_COUNT];
	uint64_t losses[LOSS_KIND_COUNT];
	uint64_t off_cpu, off_cpu_ns, off_cpu_rooted; /* intervals, their weight, with a whole stack */
	/* Stacks of samples and intervals with Python frames; those that lack some of them. */
	uint64_t python, python_torn, python_cut;
};
void session_stats(const struct session *s, struct session_stats *ret);

/* What there was of CPython: a version, or why one was refused, and of how many processes. Valid as long as the
 * session is. */
struct session_python {
	const char *text; /* "3.12.1", or the words of a refusal */
	bool refused;
	unsigned processes;
};
/* Whether the process runs CPython that can be read. */
bool session_runs_python(struct session *s, pid_t pid);

size_t session_pythons(const struct session *s, const struct session_python **ret);

/* Names every address seen so far and writes the names into the recording. `progress` (may be
 * NULL) is told how far it is. */
struct naming_options {
	bool debuginfod;
	/* The C library, other runtime_library()s and CPython by their symbols alone: no lines and no inlined functions. */
	bool plain_runtime;
	bool plain_beside_python; /* the same in a session that has seen a process run Python */
	void (*progress)(void *ctx, size_t done, size_t all);
	void *ctx;
};
void session_name_frames(struct session *s, const struct naming_options *options);

#endif
