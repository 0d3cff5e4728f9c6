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
#include "capture/writer.h"
#include "os/proc.h"
#include "sample/modules.h"
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

/* A process that was running before the session: reads its mappings, threads and names. Call after
 * the sampler watches it. -ESRCH when it is gone. */
int session_adopt(struct session *s, pid_t pid, struct err *err);

/* One look at one thread. */
struct raw_sample {
	uint64_t time_ns;
	pid_t pid, tid;
	uint16_t cpu;
	uint64_t weight_ns; /* of every sample in the recording */
	uint64_t period_ns; /* CPU time the thread has between its samples, 0: weight_ns; where it is
			       another, samples are left out or repeated to fit */
	const uint64_t *kernel_ips; /* leaf first, without context markers; may be empty */
	size_t kernel_count;
	bool kernel_thread; /* the kernel part is the whole stack */
	bool has_regs;      /* else there is a user part that cannot be unwound (32-bit code) */
	struct unwind_regs regs;
	struct unwind_dump dump;
};
void session_sample(struct session *s, const struct raw_sample *raw);

/* pid mapped something executable; `m` as in /proc/PID/maps. */
void session_mapped(struct session *s, pid_t pid, uint64_t time_ns, const struct proc_mapping *m);
void session_renamed(
	struct session *s, pid_t pid, pid_t tid, const char *name, bool exec, uint64_t time_ns);
void session_forked(struct session *s, pid_t ppid, pid_t pid, pid_t ptid, pid_t tid, uint64_t time_ns);
void session_exited(struct session *s, pid_t pid, pid_t tid, uint64_t time_ns);

/* Something was lost; counted now, written at the next session_flush(). */
void session_lost(struct session *s, enum loss_kind kind, uint64_t count);

/* Whether the thread, as known so far, is one to be sampled. */
bool session_selects(struct session *s, pid_t tid);

/* Writes what is pending, so that a kill -9 from now on loses nothing older. */
void session_flush(struct session *s, uint64_t now_ns);

struct session_stats {
	uint64_t samples, frames, weight_ns;
	uint64_t ends[UNWIND_END_COUNT];
	uint64_t losses[LOSS_KIND_COUNT];
	uint64_t threads; /* threads that had samples */
};
void session_stats(const struct session *s, struct session_stats *ret);

/* Names every address seen so far and writes the names into the recording. `progress` (may be
 * NULL) is told how far it is. */
struct naming_options {
	bool debuginfod;
	void (*progress)(void *ctx, size_t done, size_t all);
	void *ctx;
};
void session_name_frames(struct session *s, const struct naming_options *options);

#endif
