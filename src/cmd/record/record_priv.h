/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * sonde record, in the order in which things happen:
 *
 *	record.c    what was asked for: options, targets
 *	samplers.c  which samplers answer it here, with these rights
 *	setup.c     opens everything, writes the facts, starts
 *	run.c       the loop, until something ends it
 *	finish.c    names, the end of the file, what was seen
 *	on_signal.c the same for samples at a signal, which go to another file
 */
#ifndef SONDE_CMD_RECORD_PRIV_H
#define SONDE_CMD_RECORD_PRIV_H

#include <regex.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/term.h"
#include "base/vec.h"
#include "capture/writer.h"
#include "cmd/options.h"
#include "cmd/record/flight.h"
#include "os/child.h"
#include "os/proc.h"
#include "sample/live_names.h"
#include "sample/ptrace/on_signal.h"
#include "sample/python/task_times.h"
#include "sample/sampler.h"
#include "sample/session.h"

#define NAME "record"
#define RECORD_MAX_SAMPLERS 2

struct record_args {
	struct option_list pids;
	const char *name;
	bool all;
	const char *cgroup;
	bool off_cpu, wall;
	const char *sampler, *on_signal;
	uint64_t frequency_hz, stack_bytes, duration_ns, min_block_ns;
	const char *output;
	struct thread_options threads;
	bool debuginfod, quiet, nonblocking, tasks;
	/* the flight recorder */
	uint64_t last_ns, memory_bytes, windows;
	struct option_list when;
};

/* A line of folded stacks, of a sample that is being taken. */
struct folded_thread {
	pid_t tid;
	struct buf line;
};

/* Of --on-signal. */
struct on_signal {
	int number; /* of the signal; 0: not asked for */
	int fd;
	struct live_names *names;
	VEC(struct folded_thread) threads;
	uint64_t samples, stacks;
	struct err failed; /* writing; the end of it all */
};

/* Everything that is open while recording. */
struct recording {
	const struct record_args *args;
	char **command;
	struct pid_vec pids; /* targets, in all but system-wide mode */
	VEC(int) pid_fds;    /* one a target that still runs */
	int cgroup_fd;
	struct child child;
	regex_t regex;
	bool has_regex;
	struct thread_selection selection;
	struct sampler *samplers[RECORD_MAX_SAMPLERS];
	size_t sampler_count;
	bool on_cpu, off_cpu; /* what is recorded */
	struct flight *flight; /* NULL without --last */
	struct capture_writer *writer;
	struct session *session;
	struct task_times *tasks; /* NULL without --tasks */
	int signal_fd;
	struct child_inherits inherits;
	struct session_stats stats; /* when all is done */
	uint64_t start_ns, start_cpu_ns, end_ns, wakeups, file_bytes;
	int forward_signal; /* sent to us alone: the command should get it too */
	enum end_reason reason;
	char unsampled[256]; /* what to say about time that no sample stands for, or "" */
	char pauses[160];    /* how long threads were stopped, or "" */
	struct on_signal on_signal;
	struct term term;
};

/* samplers.c: opens r->samplers. */
int record_open_samplers(struct recording *r, struct err *err);

/* setup.c */
int record_open(struct recording *r, struct err *err);
int record_block_signals(struct recording *r, struct err *err);
int record_start(struct recording *r, struct err *err);

/* run.c. The second: a signal for us was there, and is in r->reason. */
void record_run(struct recording *r);
bool record_take_signal(struct recording *r);

/* finish.c */
int record_finish(struct recording *r, struct err *err);
void record_tell(const struct recording *r);

/* What recording has cost until now; and names, this cost and the end, after all else is written. */
void record_cost_now(const struct recording *r, struct record_cost *ret);
void record_write_sampler_facts(struct recording *r);
int record_write_rest(struct recording *r, struct record_cost *cost, struct err *err);
/* What both kinds of recording end with: into the recording and r->pauses; to the user. */
void record_note_pauses(struct recording *r);
void record_tell_losses(const struct recording *r);

/* on_signal.c: what open, finish and tell are for a recording. */
int on_signal_parse(const char *text, int *ret, struct err *err);
int on_signal_open(struct recording *r, struct err *err);
int on_signal_finish(struct recording *r, struct err *err);
void on_signal_tell(const struct recording *r);
void on_signal_release(struct recording *r);

/* The recording is done; what the command does from now on is its own business. Until it ends we
 * stand before it and pass on what is sent to us. Its exit status. */
int record_leave_command(struct recording *r);

#endif
